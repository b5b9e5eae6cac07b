"""Directories of a sandbox as archives, which `tar` in the sandbox packs and unpacks."""

from __future__ import annotations

import os
from functools import partial

from .. import _operations as ops
from .._process import Collector, Lost, Output, command_event
from .._sse import ServerSentEvent
from .._values import Path, command
from ..errors import ConnectionLostError
from ._io import Content
from ._opening import opens_stream
from .commands import AsyncCommands
from .process import checked
from .stream import AsyncEventStream, AsyncStream


class AsyncArchives(AsyncCommands):
    """Archives of directories."""

    async def upload_archive(self, path: Path, archive: Content, *, user: str | None = None) -> None:
        """Unpack an archive in a directory, which is created if it is missing.

        Args:
            path: The directory.
            archive: An uncompressed tar archive: bytes, an open file, or pieces of bytes.
            user: Who unpacks it and owns the files: a name, a number, or `UID:GID`. Default: the
                user of the image, or root.

        Raises:
            CommandError: `tar` failed.
        """
        unpack = ["sh", "-c", 'mkdir -p -- "$1" && exec tar -C "$1" -xf -', "sh", _text(path)]
        process = await self.start(unpack, stdin=True, user=user)
        await process.feed(archive)
        await process.result(check=True)

    @opens_stream
    async def download_archive(self, path: Path) -> AsyncStream[bytes]:
        """Stream an uncompressed tar archive of all that is in a directory.

        Raises:
            CommandError: `tar` failed, perhaps only at the end of the stream.
        """
        pack = command(["tar", "-C", _text(path), "-cf", "-", "."])
        stream = AsyncEventStream(self._transport, partial(_piece, Collector()), last=("exit",))
        return await stream.open(ops.EXEC_COMMAND(self.id, body=pack))


def _piece(collector: Collector, event: ServerSentEvent) -> bytes | None:
    """Return the piece of the archive that an event contains."""
    converted = command_event(event)
    if isinstance(converted, Output) and converted.stream == "stdout":
        return converted.data
    if isinstance(converted, Lost):
        raise ConnectionLostError("the archive was read too slowly, and a part of it is lost")
    if converted is not None:
        collector.add(converted)
    if event.kind == "exit":
        checked(collector.result(), check=True)
    return None


def _text(path: Path) -> str:
    return os.fsdecode(path)
