"""Runs commands in a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from .. import _operations as ops
from .._process import Collector, CommandEvent, ExecResult, Output, Started, command_event
from .._request import Request
from .._values import Duration, Path, Size, Text, command, seconds, size, text
from ..types import SnapshotKind, TerminalSize
from ._io import alongside
from ._opening import opens
from .handle import AsyncHandle
from .process import AsyncProcess, checked, continued
from .stream import AsyncEventStream
from .terminal import AsyncTerminal, open_terminal

STDIN_BYTES_MAX = 256 * 1024
"""The longest input that is part of the request; the body of a request is limited to 1 MiB."""


class AsyncCommands(AsyncHandle):
    """Commands in a sandbox."""

    async def exec(
        self,
        command_line: str | Sequence[Text],
        *,
        stdin: Text | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
        timeout: Duration | None = None,
        checkpoint: SnapshotKind | None = None,
        check: bool = False,
        on_output: Callable[[Output], Any] | None = None,
    ) -> ExecResult:
        """Run a command, wait for its end, and return its output and exit code.

        After a lost connection, and a restart of the daemon, the command continues and no output is
        lost, unless the connection broke before the command began.

        Args:
            command_line: A string is a line for `/bin/sh`, a sequence is a program and its
                arguments.
            stdin: The whole standard input. Default: empty.
            env: Variables in addition to those of the sandbox.
            cwd: Working directory. Default: that of the image, or the home directory of the user.
            user: A name, a number, or `UID:GID`. Default: the user of the image, or root.
            timeout: Time after which the command is killed. Default: no limit.
            checkpoint: Take a snapshot of this kind first; `result.checkpoint` is its id. If that fails,
                the command does not run.
            check: Raise `CommandError` if the exit code is not 0.
            on_output: Called with each piece of output as it arrives.
        """
        data = b"" if stdin is None else stdin.encode() if isinstance(stdin, str) else stdin
        is_long = len(data) > STDIN_BYTES_MAX
        body = {
            **command(command_line),
            "stdin": None if is_long or stdin is None else text(data),
            "stdin_open": True if is_long else None,
            "env": env,
            "cwd": text(cwd),
            "user": user,
            "timeout_secs": seconds(timeout),
            "checkpoint": checkpoint,
        }
        collector = Collector(on_output=on_output)
        stream: AsyncEventStream[CommandEvent] = AsyncEventStream(
            self._transport, command_event, last=("exit",), resume=partial(self._resumed, collector)
        )
        async with await stream.open(ops.EXEC_COMMAND(self.id, body=body)):
            async for event in stream:
                collector.add(event)
                if is_long and isinstance(event, Started):
                    process = AsyncProcess(self._transport, self.id, event.process)
                    async with alongside(partial(process.feed_or_kill, data)):
                        async for output in stream:
                            collector.add(output)
        return checked(collector.result(), check)

    def _resumed(self, collector: Collector, last_id: str | None) -> Request | None:
        """Return the request that continues the output of a command that has started."""
        if not collector.process:
            return None
        return continued(ops.STREAM_PROCESS_OUTPUT(self.id, collector.process), last_id)

    async def start(
        self,
        command_line: str | Sequence[Text],
        *,
        stdin: bool = False,
        terminal: TerminalSize | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
        label: str | None = None,
        timeout: Duration | None = None,
        output_kept: Size | None = None,
    ) -> AsyncProcess:
        """Start a process in the background.

        Args:
            command_line: A string is a line for `/bin/sh`, a sequence is a program and its
                arguments.
            stdin: Whether the process gets an input that can be written to. Default: an empty one.
            terminal: Run the process in a terminal of this size.
            env: Variables in addition to those of the sandbox.
            cwd: Working directory. Default: that of the image, or the home directory of the user.
            user: A name, a number, or `UID:GID`. Default: the user of the image, or root.
            label: A label to find the process by.
            timeout: Time after which the process is killed. Default: no limit.
            output_kept: How much of each output stream is kept for readers. Default: 1 MiB.
        """
        body = {
            **command(command_line),
            "stdin": "pipe" if stdin else None,
            "terminal": terminal,
            "env": env,
            "cwd": text(cwd),
            "user": user,
            "label": label,
            "timeout_secs": seconds(timeout),
            "output_kept_bytes": size(output_kept),
        }
        started = await self._transport.json(ops.START_PROCESS(self.id, body=body), dict[str, int])
        return AsyncProcess(self._transport, self.id, started["process"])

    @opens
    async def pty(
        self,
        command_line: str | None = None,
        *,
        rows: int | None = None,
        cols: int | None = None,
        user: str | None = None,
        cwd: Path | None = None,
        term: str | None = None,
        attach: int | None = None,
        offset: int | None = None,
    ) -> AsyncTerminal:
        """Open a terminal. The process in it continues when the client disconnects.

        Args:
            command_line: A line for `/bin/sh`. Default: the login shell of the user.
            rows: Rows of the terminal. Default: 24.
            cols: Columns of the terminal. Default: 80.
            user: A name, a number, or `UID:GID`. Default: the user of the image, or root.
            cwd: Working directory. Default: that of the image, or the home directory of the user.
            term: The value of `TERM`. Default: `xterm-256color`.
            attach: Handle of a process in a terminal to attach to, instead of starting one.
            offset: With `attach`, the byte of the output to begin at. Default: 0.
        """
        query = {
            "cmd": command_line,
            "rows": rows,
            "cols": cols,
            "user": user,
            "cwd": cwd,
            "term": term,
            "attach": attach,
            "offset": offset,
        }
        return await open_terminal(self._transport, ops.OPEN_TERMINAL(self.id, query=query), offset or 0)
