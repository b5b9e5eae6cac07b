"""Contexts: programs that keep their state between runs, one run at a time each."""

import asyncio
import os
import secrets

from . import output
from .errors import KernelEnded, Refused
from .kernels import LANGUAGES, unavailable
from .run import Run

CONTEXTS_MAX = 64
# Runs of one context, with the one in progress.
RUNS_MAX = 64
# A run whose client has left is interrupted, and again as long as it continues: the first time may be before its code has
# begun. The time in between doubles, since code may need some to end.
INTERRUPT_AGAIN_S = 0.1
INTERRUPT_AGAIN_MAX_S = 5
# The languages whose default contexts exist from the beginning.
FIRST_LANGUAGES = ("python", "javascript")
# Those whose programs are started then. A worker on Node.js in a memory snapshot would draw the same random numbers in
# each sandbox that continues from it.
STARTED_LANGUAGES = ("python",)


class Context:
    """A program in a directory, started when it is first needed and again when it has ended."""

    def __init__(self, identifier, language, directory, variables):
        self.identifier = identifier
        self.language = language
        self.directory = directory
        self._variables = variables
        self._kernel = None
        self._start = None
        self._turn = asyncio.Lock()
        self._runs = set()
        self._current = None

    def shown(self):
        return {"id": self.identifier, "language": self.language, "cwd": self.directory}

    def submit(self, code, variables):
        """Begins a run, or queues it behind those before it."""
        if len(self._runs) >= RUNS_MAX:
            raise Refused(429, f"Context {self.identifier} has {RUNS_MAX} runs: wait for some of them")
        run = Run(code, variables)
        self._runs.add(run)
        task = asyncio.create_task(self._carry_out(run))
        # The task is kept alive by the set it is removed from.
        run.task = task
        task.add_done_callback(lambda _: self._runs.discard(run))
        return run

    async def ready(self):
        """The kernel, started if need be. Calls that arrive meanwhile wait for the same start."""
        if self._kernel is not None and self._kernel.ended is None:
            return self._kernel
        if self._start is None:
            self._start = asyncio.create_task(self._started())
        try:
            return await asyncio.shield(self._start)
        finally:
            if self._start is not None and self._start.done():
                self._start = None

    async def restart(self):
        """Ends the program and whatever it runs, and starts another."""
        await self.close()
        await self.ready()

    async def close(self):
        if self._current is not None:
            self._current.cut = True
        start, self._start = self._start, None
        if start is not None:
            start.cancel()
        kernel, self._kernel = self._kernel, None
        if kernel is not None:
            await kernel.close()

    async def _started(self):
        self._variables.refresh()
        kernel_type = LANGUAGES[self.language]
        self._kernel = await kernel_type.start(self.language, self.directory, self._variables.now)
        return self._kernel

    async def _carry_out(self, run):
        try:
            if await self._has_turn(run):
                try:
                    await self._in_turn(run)
                finally:
                    self._turn.release()
        finally:
            await run.put(output.end())
            await run.finish()

    async def _has_turn(self, run):
        """Waits for the turn of a run; it has none if its client leaves before."""
        if self._turn.locked():
            turn = asyncio.create_task(self._turn.acquire())
            await asyncio.wait({turn, run.left}, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                turn.cancel()
                return False
        else:
            await self._turn.acquire()
        if run.left.done():
            self._turn.release()
            return False
        return True

    async def _in_turn(self, run):
        self._current = run
        ended = self._kernel.ended if self._kernel is not None else None
        try:
            kernel = await self.ready()
            if ended is not None:
                notice = f"{ended}; this is a new one, without its variables\n"
                await run.put(output.text("stderr", notice))
            await self._until_done(run, kernel)
        except (KernelEnded, asyncio.CancelledError) as error:
            await run.put(self._failure(run, error))
        finally:
            self._current = None

    def _failure(self, run, error):
        if run.cut:
            message = f"Context {self.identifier} was restarted or removed while the code was running"
            return output.error("ContextRestarting", message, message)
        message = f"{error}; the context starts again with its next run, without its variables"
        return output.error("KernelEnded", message, message)

    async def _until_done(self, run, kernel):
        """Executes the code; a run whose client leaves is interrupted until it ends."""
        self._variables.refresh()
        work = asyncio.create_task(kernel.execute(run, self._variables.now))
        await asyncio.wait({work, run.left}, return_when=asyncio.FIRST_COMPLETED)
        pause = INTERRUPT_AGAIN_S
        while not work.done():
            kernel.interrupt()
            await asyncio.wait({work}, timeout=pause)
            pause = min(2 * pause, INTERRUPT_AGAIN_MAX_S)
        await work


class Contexts:
    """All contexts by their ids, in the order of their creation, and the default one of each language."""

    def __init__(self, home, variables, modules=()):
        self._home = home
        self._variables = variables
        self._contexts = {}
        self._defaults = {}
        for language in FIRST_LANGUAGES:
            self.default(language)
        self._start = asyncio.create_task(self._started(modules))

    async def started(self):
        """Waits until the first contexts can run code."""
        await asyncio.shield(self._start)

    async def _started(self, modules):
        for language in STARTED_LANGUAGES:
            kernel = await self.default(language).ready()
            await kernel.load(modules)

    def all(self):
        return list(self._contexts.values())

    def of(self, identifier):
        try:
            return self._contexts[identifier]
        except KeyError:
            raise Refused(404, f"Context {identifier} not found") from None

    def default(self, language):
        """The default context of a language; a new one if it was removed."""
        language = known(language)
        identifier = self._defaults.get(language)
        if identifier not in self._contexts:
            self._defaults[language] = self._add(language, self._home).identifier
        return self._contexts[self._defaults[language]]

    async def create(self, language, directory):
        directory = self._home if directory is None else directory
        language = known(language)
        make_directory(directory)
        context = self._add(language, directory)
        try:
            await context.ready()
        except BaseException:
            # No client has its id.
            await self.remove(context.identifier)
            raise
        return context

    async def remove(self, identifier):
        context = self._contexts.pop(identifier, None) or self.of(identifier)
        await context.close()

    def _add(self, language, directory):
        if len(self._contexts) >= CONTEXTS_MAX:
            raise Refused(429, f"There are {CONTEXTS_MAX} contexts already: remove some of them")
        context = Context(secrets.token_hex(16), language, directory, self._variables)
        self._contexts[context.identifier] = context
        return context


def known(language):
    """The full name of a language that this image has."""
    name = {"js": "javascript", "ts": "typescript"}.get(language, language)
    if name not in LANGUAGES:
        raise Refused(400, unavailable(language))
    return name


def make_directory(path):
    """Creates the directory of a context unless it exists, and checks that a program can start in it."""
    if not os.path.isabs(path):
        raise Refused(400, f"cwd '{path}' is not an absolute path")
    try:
        os.makedirs(path, exist_ok=True)
    except (OSError, ValueError) as error:
        raise Refused(400, f"cwd '{path}' cannot be created: {reason(error)}") from None
    if not os.access(path, os.X_OK):
        raise Refused(400, f"cwd '{path}' cannot be entered by the user of the code interpreter")


def reason(error):
    return error.strerror if isinstance(error, OSError) else str(error)
