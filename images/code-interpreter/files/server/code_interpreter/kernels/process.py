"""A kernel as a process: its variables, its end, and the signals to it and the programs it has started."""

import asyncio
import os
import signal

from ..errors import KernelEnded
from ..variables import of_sandbox

# The root of the image's files, beside this package.
ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))


class Process:
    """A process in a group of its own."""

    # For messages.
    name = "kernel"

    def __init__(self, process, variables):
        self._process = process
        # The variables of the sandbox as the process has them.
        self._told = variables
        # How it ended; `None` while it lives.
        self.ended = None
        self._end = asyncio.create_task(self._watched())

    @staticmethod
    async def spawned(arguments, directory, variables, **options):
        """Starts a program with the variables of the sandbox, in a session that signals can reach as a whole."""
        own = {name: value for name, value in os.environ.items() if name not in of_sandbox(os.environ)}
        try:
            return await asyncio.create_subprocess_exec(
                *arguments,
                cwd=directory,
                env={**own, **variables},
                stdin=options.pop("stdin", asyncio.subprocess.DEVNULL),
                start_new_session=True,
                **options,
            )
        except OSError as error:
            raise KernelEnded(f"The kernel cannot be started in '{directory}': {error.strerror}") from error

    async def _watched(self):
        code = await self._process.wait()
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        self.ended = f"The {self.name} has ended {how}"

    async def unless_ended(self, work):
        """Waits for `work`; raises if the process ends first."""
        work = asyncio.ensure_future(work)
        try:
            await asyncio.wait({work, self._end}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise KernelEnded(self.ended)
            return work.result()
        finally:
            work.cancel()

    def changes(self, variables):
        """How the variables of the sandbox differ from those that the process has: values, and `None` for those that
        are gone."""
        changes = {name: value for name, value in variables.items() if self._told.get(name) != value}
        changes.update((name, None) for name in self._told if name not in variables)
        self._told = variables
        return changes

    def interrupt(self):
        """Interrupts the code and the programs it waits for, as Ctrl-C does."""
        self._signal(signal.SIGINT)

    async def close(self):
        """Ends the process and its group."""
        self._signal(signal.SIGKILL)
        await asyncio.wait({self._end})

    def _signal(self, number):
        if self.ended is None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                pass
