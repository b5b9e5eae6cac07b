"""The client that a case runs with: the blocking or the asynchronous one, behind one interface.

Nearly everything has the same form in both. This module has the rest: output of commands and terminals, and
watched directories, are pushed to the asynchronous client and asked for with the blocking one.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import e2b

from .blocking import Blocking, Loop
from .waiting import eventually

try:
    import e2b_code_interpreter
except ImportError:
    e2b_code_interpreter = None  # type: ignore[assignment]


class Surface:
    """The classes of a client."""

    def __init__(self, name: str, loop: Loop) -> None:
        self.name = name
        self.loop = loop
        self.is_async = name == "async"
        self.Sandbox = self._of("Sandbox")
        self.Volume = self._of("Volume")
        self.Template = self._of("Template")
        self.Secret = self._of("Secret")
        if e2b_code_interpreter is not None:
            self.Interpreter = self._of("Sandbox", e2b_code_interpreter)

    def _of(self, name: str, package: Any = e2b) -> Any:
        if not self.is_async:
            return getattr(package, name)
        return Blocking(self.loop, getattr(package, f"Async{name}"))

    def bound(self, client: Any, name: str) -> Any:
        """Return a class of a client object."""
        found = getattr(client, f"Async{name}" if self.is_async else name)
        return Blocking(self.loop, found) if self.is_async else found

    def start(self, sandbox: Any, command: str, **options: Any) -> Started:
        """Start a command in the background."""
        return Started(self, lambda hooks: sandbox.commands.run(command, background=True, **options, **hooks))

    def connect(self, sandbox: Any, pid: int, **options: Any) -> Started:
        """Connect to a command that runs in the background."""
        return Started(self, lambda hooks: sandbox.commands.connect(pid, **options, **hooks))

    def terminal(self, sandbox: Any, rows: int = 24, cols: int = 80, **options: Any) -> Terminal:
        size = e2b.PtySize(rows=rows, cols=cols)
        return Terminal(self, lambda hooks: sandbox.pty.create(size, **options, **hooks))

    def connect_terminal(self, sandbox: Any, pid: int, **options: Any) -> Terminal:
        return Terminal(self, lambda hooks: sandbox.pty.connect(pid, **options, **hooks))

    @contextmanager
    def watch(self, sandbox: Any, path: str, **options: Any) -> Iterator[Watch]:
        """Watch a directory until the end of the block."""
        watch = Watch(self, sandbox, path, options)
        try:
            yield watch
        finally:
            watch.stop()

    def input(self, module: Any, pid: int, chunks: list[str | bytes], **options: Any) -> None:
        """Send a stream of input to a command or terminal."""
        if not self.is_async:
            module.stream_input(pid, chunks, **options)
            return

        async def send() -> None:
            async with module.target.stream_input(pid, **options) as stream:
                for chunk in chunks:
                    await stream.send(chunk)

        self.loop.run(send)

    def chunks(self, chunks: Iterable[bytes]) -> Any:
        """Return an iterable of bytes of the kind that this client uploads."""
        if not self.is_async:
            return iter(chunks)

        async def iterate() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        return iterate()


class Started:
    """A command in the background, with all output so far."""

    def __init__(self, surface: Surface, start: Callable[[dict[str, Any]], Any]) -> None:
        self.surface = surface
        self.out: list[str] = []
        self.err: list[str] = []
        self._reader: threading.Thread | None = None
        self._end: Any = None
        hooks = {"on_stdout": self.out.append, "on_stderr": self.err.append} if surface.is_async else {}
        self.handle = start(hooks)
        self.pid: int = self.handle.pid

    def read(self) -> Started:
        """Receive output in the background. The asynchronous client always does."""
        if not self.surface.is_async and self._reader is None:
            self._reader = threading.Thread(target=self._receive, daemon=True)
            self._reader.start()
        return self

    def _receive(self) -> None:
        try:
            self._end = self.handle.wait(on_stdout=self.out.append, on_stderr=self.err.append)
        except Exception as error:
            self._end = error

    def says(self, text: str) -> str:
        """Wait until the standard output contains a text, and return it."""
        self.read()
        return eventually(lambda: "".join(self.out) if text in "".join(self.out) else "", lambda: self.out)

    def wait(self) -> Any:
        """Wait for the end, and return the result or raise the error."""
        if self.surface.is_async:
            return self.handle.wait()
        if self._reader is None:
            return self.handle.wait(on_stdout=self.out.append, on_stderr=self.err.append)
        self._reader.join()
        if isinstance(self._end, Exception):
            raise self._end
        return self._end


class Terminal:
    """A terminal, with all output so far."""

    def __init__(self, surface: Surface, start: Callable[[dict[str, Any]], Any]) -> None:
        self.surface = surface
        self.data: list[bytes] = []
        self._end: Any = None
        self.handle = start({"on_data": self.data.append} if surface.is_async else {})
        self.pid: int = self.handle.pid
        self._reader: threading.Thread | None = None
        if not surface.is_async:
            self._reader = threading.Thread(target=self._receive, daemon=True)
            self._reader.start()

    def _receive(self) -> None:
        try:
            self._end = self.handle.wait(on_pty=self.data.append)
        except Exception as error:
            self._end = error

    @property
    def text(self) -> str:
        return b"".join(self.data).decode(errors="replace")

    def shows(self, text: str) -> str:
        """Wait until the screen has shown a text, and return all of it."""
        return eventually(lambda: self.text if text in self.text else "", lambda: self.text)

    def prompts(self) -> None:
        """Wait for the prompt. The shell reads and sets the size of the terminal before it shows one."""
        eventually(lambda: self.text.endswith("$ "), lambda: self.text)

    def wait(self) -> Any:
        if self._reader is None:
            return self.handle.wait()
        self._reader.join()
        if isinstance(self._end, Exception):
            raise self._end
        return self._end


class Watch:
    """A watched directory, with all events so far."""

    def __init__(self, surface: Surface, sandbox: Any, path: str, options: dict[str, Any]) -> None:
        self.surface = surface
        self.events: list[Any] = []
        if surface.is_async:
            self.handle = sandbox.files.watch_dir(path, self.events.append, **options)
        else:
            self.handle = sandbox.files.watch_dir(path, **options)

    def until(self, check: Callable[[list[Any]], bool]) -> list[Any]:
        """Wait until the events fulfil a condition, and return them."""

        def received() -> list[Any]:
            if not self.surface.is_async:
                self.events.extend(self.handle.get_new_events())
            return list(self.events) if check(self.events) else []

        return eventually(received, lambda: self.events)

    def until_one(self, name: str, kind: str) -> Any:
        """Wait for an event of a kind for a name, and return it."""

        def is_it(event: Any) -> bool:
            return event.name == name and event.type.value == kind

        return next(filter(is_it, self.until(lambda events: any(map(is_it, events)))))

    def stop(self) -> None:
        self.handle.stop()
