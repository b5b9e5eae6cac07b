"""Events and results of commands, without input and output."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from ._sse import ServerSentEvent
from ._values import decode
from .types import ExitStatus, OutputStream


class Position(NamedTuple):
    """A place in the output of a process, in bytes from its beginning."""

    stdout: int = 0
    stderr: int = 0

    @classmethod
    def parse(cls, text: str | None) -> Position:
        """Return the position that the id of an event names."""
        stdout, _, stderr = (text or "0,0").partition(",")
        return cls(int(stdout), int(stderr))


@dataclass(frozen=True)
class Started:
    """A command has started."""

    process: int
    """The handle of the process."""
    pid: int
    """The process id inside the sandbox."""


@dataclass(frozen=True)
class Output:
    """Bytes that a process has written."""

    stream: OutputStream
    """`stdout` or `stderr`."""
    data: bytes
    """The bytes. They can end in the middle of a character."""
    offset: int
    """The offset of the first byte in its stream."""
    read_at: datetime | None
    """When the bytes were read from the process."""
    position: Position
    """The position after these bytes. `events(after=...)` continues there."""

    @property
    def text(self) -> str:
        """The bytes as text, with a replacement character for what is not UTF-8."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class Lost:
    """Output that is no longer kept, because it was read too late."""

    stream: OutputStream
    """`stdout` or `stderr`."""
    offset: int
    """The offset of the first lost byte."""
    bytes: int
    """How many bytes are lost."""
    position: Position
    """The position after the lost bytes."""


@dataclass(frozen=True)
class Exit:
    """The process has ended. This is the last event."""

    status: ExitStatus
    """How it ended."""
    position: Position
    """The position after all output."""


ProcessEvent = Output | Lost | Exit
"""An event in the output of a process."""


@dataclass(frozen=True)
class CheckpointTaken:
    """A snapshot was taken before the command."""

    snapshot: str


CommandEvent = CheckpointTaken | Started | Output | Lost | Exit


def command_event(event: ServerSentEvent) -> CommandEvent | None:
    """Convert an event of a command's stream. Kinds that this version does not know are None."""
    data = event.json()
    position = Position.parse(event.id)
    if event.kind in ("stdout", "stderr"):
        return Output(
            stream="stdout" if event.kind == "stdout" else "stderr",
            data=base64.b64decode(data["data"]) if data["encoding"] == "base64" else data["data"].encode(),
            offset=data["offset"],
            read_at=None if data.get("read_at") is None else decode(datetime, data["read_at"]),
            position=position,
        )
    if event.kind == "lost":
        return Lost(data["stream"], data["offset"], data["bytes"], position)
    if event.kind == "exit":
        return Exit(decode(ExitStatus, data), position)
    if event.kind == "started":
        return Started(data["process"], data["pid"])
    if event.kind == "checkpoint":
        return CheckpointTaken(data["snapshot"])
    return None


def process_event(event: ServerSentEvent) -> ProcessEvent | None:
    """Convert an event of a process's output."""
    converted = command_event(event)
    return converted if isinstance(converted, (Output, Lost, Exit)) else None


@dataclass(frozen=True)
class ExecResult:
    """The result of a command that has ended."""

    process: int
    """The handle of the process."""
    exit_code: int | None
    """The exit code, unless a signal ended the command."""
    signal: int | None
    """The number of the signal that ended the command, if one did."""
    timed_out: bool
    """Whether the command was killed at its time limit."""
    stdout_bytes: bytes
    """Standard output."""
    stderr_bytes: bytes
    """Standard error."""
    lost_bytes: int = 0
    """How many bytes of output are missing, because they were read too late after a lost connection."""
    checkpoint: str | None = None
    """ID of the snapshot that was taken first, if one was requested."""

    @property
    def stdout(self) -> str:
        """Standard output as text, with a replacement character for what is not UTF-8."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """Standard error as text, with a replacement character for what is not UTF-8."""
        return self.stderr_bytes.decode(errors="replace")

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0 and not self.timed_out

    @property
    def outcome(self) -> str:
        """How the command ended, in words: `exited with code 1`."""
        if self.timed_out:
            return "was killed at its time limit"
        if self.signal is not None:
            return f"was ended by signal {self.signal}"
        return f"exited with code {self.exit_code}"


class Collector:
    """Collects the events of a command into its result."""

    def __init__(self, process: int = 0, on_output: Callable[[Output], Any] | None = None) -> None:
        self.process = process
        self._on_output = on_output
        self._output: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._lost_bytes = 0
        self._checkpoint: str | None = None
        self._status: ExitStatus | None = None

    def add(self, event: CommandEvent) -> None:
        if isinstance(event, Output):
            self._output[event.stream].append(event.data)
            if self._on_output is not None:
                self._on_output(event)
        elif isinstance(event, Lost):
            self._lost_bytes += event.bytes
        elif isinstance(event, Started):
            self.process = event.process
        elif isinstance(event, CheckpointTaken):
            self._checkpoint = event.snapshot
        else:
            self._status = event.status

    def result(self) -> ExecResult:
        status = self._status or ExitStatus(timed_out=False)
        return ExecResult(
            process=self.process,
            exit_code=status.exit_code,
            signal=status.signal,
            timed_out=status.timed_out,
            stdout_bytes=b"".join(self._output["stdout"]),
            stderr_bytes=b"".join(self._output["stderr"]),
            lost_bytes=self._lost_bytes,
            checkpoint=self._checkpoint,
        )


class TextSplitter:
    """Converts pieces of one output stream to text, also where they end inside a character."""

    def __init__(self, stream: OutputStream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, event: ProcessEvent) -> str:
        """Return the text that this event completes."""
        if isinstance(event, Exit):
            return self._decoder.decode(b"", final=True)
        if event.stream != self._stream or isinstance(event, Lost):
            return ""
        return self._decoder.decode(event.data)
