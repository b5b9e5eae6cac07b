# Generated from _async/process.py by scripts/generate_sync.py; do not edit.
"""Processes in a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from .. import _operations as ops
from .._process import Collector, ExecResult, Output, Position, ProcessEvent, TextSplitter, process_event
from .._request import Request
from ..errors import CommandError, ConflictError, DormouseError, NotFoundError
from ..types import ExitStatus, OutputStream, ProcessInfo, SignalTarget
from ._io import Content, pieces
from ._opening import opens_stream
from ._transport import Transport
from .handle import Part
from .stream import EventStream, Stream


class Process(Part):
    """A process that runs in a sandbox, or has ended there.

    It continues when the client disconnects, when the daemon restarts, and across a suspend and a
    resume. `sandbox.processes.get(handle)` finds it again.
    """

    handle: int
    """The handle of the process, unique in its sandbox."""

    def __init__(self, transport: Transport, sandbox: str, handle: int) -> None:
        super().__init__(transport, sandbox)
        self.handle = handle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.handle} in {self._sandbox}>"

    def info(self) -> ProcessInfo:
        """Return the properties of the process."""
        return self._transport.json(ops.GET_PROCESS(self._sandbox, self.handle), ProcessInfo)

    @opens_stream
    def events(self, *, after: Position | None = None, follow: bool | None = None) -> Stream[ProcessEvent]:
        """Stream the output of the process: `Output`, `Lost`, and `Exit` as the last event.

        After a lost connection, the stream continues where it was. If the sandbox is suspended
        meanwhile, it ends with an error; `after` continues when the sandbox has been resumed.

        Args:
            after: The position at which to begin, such as that of the last event. Default: the
                beginning of the output.
            follow: False to end with the output that exists now, without an `Exit`.
        """
        begin = after or Position()
        query = {"stdout": begin.stdout, "stderr": begin.stderr, "follow": follow}
        request = ops.STREAM_PROCESS_OUTPUT(self._sandbox, self.handle, query=query)
        return output_stream(self._transport, request, follow)

    def text(self, stream: OutputStream = "stdout") -> Iterator[str]:
        """Yield the output of one stream as text until the process ends.

        Characters are complete, also where a piece of output ends inside of one.
        """
        splitter = TextSplitter(stream)
        for event in self.events():
            if text := splitter.add(event):
                yield text

    def result(self, *, check: bool = False, on_output: Callable[[Output], Any] | None = None) -> ExecResult:
        """Wait for the process to end, and return its output and exit code.

        Args:
            check: Raise `CommandError` if the exit code is not 0.
            on_output: Called with each piece of output as it arrives.
        """
        collector = Collector(self.handle, on_output)
        for event in self.events():
            collector.add(event)
        return checked(collector.result(), check)

    def wait(self) -> ExitStatus:
        """Wait for the process to end, however long that takes."""
        request = ops.WAIT_FOR_PROCESS(self._sandbox, self.handle, waits=True)
        return self._transport.json(request, ExitStatus)

    def write(self, data: Content) -> int:
        """Write to standard input, and return the number of bytes.

        The process must have been started with `stdin=True` or in a terminal. Returns when the
        kernel of the sandbox has accepted all of it, which takes as long as the process takes to read.
        """
        request = ops.WRITE_PROCESS_STDIN(self._sandbox, self.handle, content=data, waits=True)
        return int((self._transport.json(request, dict[str, int]))["bytes"])

    def close_stdin(self) -> None:
        """Close standard input. Input that was written before is delivered first."""
        self._transport.send(ops.CLOSE_PROCESS_STDIN(self._sandbox, self.handle))

    def signal(self, signal: int, *, target: SignalTarget | None = None) -> None:
        """Send a signal.

        Args:
            signal: The number of the signal, such as `signal.SIGTERM`.
            target: `process`, the default, or `group` for its whole process group.
        """
        body = {"signal": int(signal), "target": target}
        self._transport.send(ops.SIGNAL_PROCESS(self._sandbox, self.handle, body=body))

    def kill(self) -> int:
        """Kill the process with all its descendants, and return how many were killed."""
        request = ops.KILL_PROCESS(self._sandbox, self.handle)
        return int((self._transport.json(request, dict[str, int]))["killed"])

    def resize(self, rows: int, cols: int) -> None:
        """Change the size of the terminal of the process."""
        body = {"rows": rows, "cols": cols}
        self._transport.send(ops.RESIZE_PROCESS_TERMINAL(self._sandbox, self.handle, body=body))

    def feed(self, data: Content) -> None:
        """Write to standard input and close it. It is no error if the process closes it before that."""
        try:
            # A single long request would break off before its response if the process reads no more.
            for piece in pieces(data):
                self.write(piece)
            self.close_stdin()
        except (NotFoundError, ConflictError):
            pass

    def feed_or_kill(self, data: Content) -> None:
        """Do the same, and kill the process if that fails: it would wait for the rest forever."""
        try:
            self.feed(data)
        except Exception:
            with suppress(DormouseError):
                self.kill()
            raise


class Processes(Part):
    """The processes of a sandbox that were started through the API."""

    def list(
        self, *, label: str | None = None, pid: int | None = None, limit: int | None = None
    ) -> Iterator[ProcessInfo]:
        """Yield processes, the oldest first. About 4,000 ended ones are remembered.

        Args:
            label: Only processes with this label.
            pid: Only the running process with this process id.
            limit: Number of processes in one response.
        """
        query = {"label": label, "pid": pid, "limit": limit}
        return self._transport.pages(ops.LIST_PROCESSES(self._sandbox, query=query), "processes", ProcessInfo)

    def get(self, handle: int) -> Process:
        """Return the process with this handle. No request is sent."""
        return Process(self._transport, self._sandbox, handle)


def output_stream(transport: Transport, request: Request, follow: bool | None) -> Stream[ProcessEvent]:
    """Open a stream of output that continues after a lost connection."""
    stream: EventStream[ProcessEvent] = EventStream(
        transport,
        process_event,
        last=None if follow is False else ("exit",),
        resume=partial(continued, request),
    )
    return stream.open(request)


def continued(request: Request, last_id: str | None) -> Request:
    """Return the request that continues a stream after an event."""
    return request if last_id is None else request.with_headers({"Last-Event-ID": last_id})


def checked(result: ExecResult, check: bool) -> ExecResult:
    """Return the result, or raise an error if `check` is true and it is not a success."""
    if check and not result.ok:
        raise CommandError(result)
    return result
