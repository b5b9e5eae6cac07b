"""Files in a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from .. import _operations as ops
from .._sse import ServerSentEvent
from .._values import Duration, Path, Text, decode, seconds, text
from ..errors import NotFoundError
from ..types import (
    FileAttribute,
    FileKind,
    FileStat,
    FoundFiles,
    FoundLines,
    WatchEvent,
)
from ._io import Content
from ._opening import opens_stream
from .handle import AsyncPart
from .stream import AsyncByteStream, AsyncEventStream, AsyncStream


class AsyncFiles(AsyncPart):
    """The files of a sandbox.

    Paths are absolute. Where they are part of a URL, which is everywhere but in `mkdir`, `move` and
    `set_attributes`, they must be UTF-8.
    """

    async def read(self, path: Path, *, start: int | None = None, end: int | None = None) -> bytes:
        """Return the contents of a file, or the bytes from `start` up to before `end`.

        A negative `start` counts from the end of the file. A range that the file does not have is
        an `InvalidArgumentError` with status 416.
        """
        headers = {"Range": _range(start, end)}
        request = ops.READ_FILE(self._sandbox, query={"path": path}, headers=headers)
        return (await self._transport.send(request)).content

    async def read_text(self, path: Path, *, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the contents of a file as text."""
        return (await self.read(path)).decode(encoding, errors)

    @opens_stream
    async def stream(
        self, path: Path, *, start: int | None = None, end: int | None = None
    ) -> AsyncStream[bytes]:
        """Stream the contents of a file, so that it need not fit into memory."""
        headers = {"Range": _range(start, end)}
        request = ops.READ_FILE(self._sandbox, query={"path": path}, headers=headers)
        response = await self._transport.send(request, stream=True)
        return AsyncByteStream(self._transport.config.server, response)

    async def write(
        self,
        path: Path,
        content: Content,
        *,
        mode: int | None = None,
        user: str | None = None,
        parents: bool | None = None,
        in_place: bool | None = None,
        append: bool | None = None,
        offset: int | None = None,
    ) -> FileStat:
        """Write a file. Readers see the old or the new contents, never a part.

        With `in_place`, `append` or `offset`, the contents are written into the existing file as
        they arrive, and a call that breaks off leaves a part.

        Args:
            path: The file. A symbolic link is followed.
            content: Text, bytes, an open file, or pieces of bytes.
            mode: Permission bits, such as `0o755`. Default: those of the file that is replaced, or 0644.
            user: The owner: a name, a number, or `UID:GID`. Default: as for `mode`, or root.
            parents: Whether missing directories are created. Default: true.
            in_place: Empty the existing file and write into it, so that it keeps its inode.
            append: Write after the end of the existing file.
            offset: Write from this byte on.
        """
        query = {
            "path": path,
            "mode": None if mode is None else f"{mode:04o}",
            "user": user,
            "parents": parents,
            "in_place": in_place,
            "append": append,
            "offset": offset,
        }
        request = ops.WRITE_FILE(self._sandbox, query=query, content=content)
        return await self._transport.json(request, FileStat)

    async def stat(self, path: Path) -> FileStat:
        """Return the properties of a file. A symbolic link is not followed."""
        return await self._transport.json(ops.STAT_FILE(self._sandbox, query={"path": path}), FileStat)

    async def exists(self, path: Path) -> bool:
        """Return whether there is something at this path."""
        try:
            await self.stat(path)
        except NotFoundError:
            # The sandbox itself may be what does not exist.
            await self._transport.send(ops.GET_SANDBOX(self._sandbox))
            return False
        return True

    def list(
        self, path: Path, *, depth: int | None = None, limit: int | None = None
    ) -> AsyncIterator[FileStat]:
        """Yield the entries of a directory.

        Args:
            path: The directory.
            depth: How many levels of directories. Default: 1.
            limit: Number of entries in one response.
        """
        query = {"path": path, "depth": depth, "limit": limit}
        return self._transport.pages(ops.LIST_FILES(self._sandbox, query=query), "entries", FileStat)

    async def mkdir(
        self,
        path: Path,
        *,
        parents: bool | None = None,
        exclusive: bool | None = None,
        user: str | None = None,
    ) -> FileStat:
        """Create a directory.

        Args:
            path: The directory.
            parents: Create missing parents, and succeed if it exists. Default: true.
            exclusive: Fail if it exists, also with `parents`.
            user: The owner: a name, a number, or `UID:GID`. Default: root.
        """
        body = {"path": text(path), "parents": parents, "exclusive": exclusive, "user": user}
        return await self._transport.json(ops.CREATE_DIRECTORY(self._sandbox, body=body), FileStat)

    async def move(
        self, source: Path, target: Path, *, parents: bool | None = None, user: str | None = None
    ) -> FileStat:
        """Rename a file or directory. An existing file of the new name is replaced.

        Args:
            source: The current path.
            target: The new path.
            parents: Create missing parents of the new path. Default: false.
            user: The owner of created parents: a name, a number, or `UID:GID`. Default: root.
        """
        body = {"from": text(source), "to": text(target), "parents": parents, "user": user}
        return await self._transport.json(ops.RENAME_FILE(self._sandbox, body=body), FileStat)

    async def remove(self, path: Path, *, recursive: bool | None = None) -> None:
        """Delete a file or an empty directory, or with `recursive` all that is in a directory."""
        query = {"path": path, "recursive": recursive}
        await self._transport.send(ops.DELETE_FILE(self._sandbox, query=query))

    async def find(
        self,
        path: Path,
        *,
        name: str | None = None,
        kind: FileKind | None = None,
        ignore_case: bool | None = None,
        depth: int | None = None,
        limit: int | None = None,
        max_entries: int | None = None,
        timeout: Duration | None = None,
    ) -> FoundFiles:
        """Find files. `search.truncated_by` of the result says at which limit the search ended.

        Args:
            path: The directory to search in.
            name: A glob for the name, such as `*.py`.
            kind: `file`, `directory`, `link` or `other`.
            ignore_case: Whether the case of names matters. Default: it does.
            depth: How many levels of directories. Default: all.
            limit: Number of results, 10,000 at most. Default: 1,000.
            max_entries: Number of entries to look at. Default: 1,000,000.
            timeout: Time for the search. Default: 30 seconds.
        """
        query = {
            "path": path,
            "name": name,
            "kind": kind,
            "ignore_case": ignore_case,
            "depth": depth,
            "limit": limit,
            "max_entries": max_entries,
            "timeout_secs": seconds(timeout),
        }
        return await self._transport.json(ops.FIND_FILES(self._sandbox, query=query), FoundFiles)

    async def grep(
        self,
        pattern: str,
        path: Path,
        *,
        literal: bool | None = None,
        ignore_case: bool | None = None,
        name: str | None = None,
        binary: bool | None = None,
        depth: int | None = None,
        limit: int | None = None,
        max_entries: int | None = None,
        max_size: int | None = None,
        timeout: Duration | None = None,
    ) -> FoundLines:
        """Find lines in files. `search.truncated_by` of the result says at which limit it ended.

        Args:
            pattern: A regular expression, in the syntax of the Rust crate `regex`.
            path: The file or directory to search in.
            literal: Search for the text itself instead of an expression.
            ignore_case: Whether the case of the text is ignored.
            name: Only files whose name matches this glob.
            binary: Also files that contain zero bytes.
            depth: How many levels of directories. Default: all.
            limit: Number of results, 10,000 at most. Default: 1,000.
            max_entries: Number of entries to look at. Default: 1,000,000.
            max_size: Number of bytes to read. Default: 1 GiB.
            timeout: Time for the search. Default: 30 seconds.
        """
        query = {
            "pattern": pattern,
            "path": path,
            "literal": literal,
            "ignore_case": ignore_case,
            "name": name,
            "binary": binary,
            "depth": depth,
            "limit": limit,
            "max_entries": max_entries,
            "max_bytes": max_size,
            "timeout_secs": seconds(timeout),
        }
        return await self._transport.json(ops.FIND_LINES(self._sandbox, query=query), FoundLines)

    async def attributes(self, path: Path) -> dict[str, str]:
        """Return the extended attributes of a file, whose names begin with `user.`."""
        request = ops.GET_FILE_ATTRIBUTES(self._sandbox, query={"path": path})
        return _by_name(await self._transport.items(request, "attributes", FileAttribute))

    async def set_attributes(
        self, path: Path, attributes: Mapping[str, Text], *, remove: Sequence[str] = ()
    ) -> dict[str, str]:
        """Set extended attributes of a file, and return all that it has then.

        Args:
            path: The file.
            attributes: Values by name. Names begin with `user.`; 32 KiB at most for one file.
            remove: Names of attributes to remove. Missing ones are ignored.
        """
        values = [{"name": name, "value": text(value)} for name, value in attributes.items()]
        body = {"path": text(path), "set": values, "remove": remove}
        request = ops.SET_FILE_ATTRIBUTES(self._sandbox, body=body)
        return _by_name(await self._transport.items(request, "attributes", FileAttribute))

    @opens_stream
    async def watch(self, path: Path, *, recursive: bool | None = None) -> AsyncStream[WatchEvent]:
        """Stream changes in a directory from now on, as long as the connection lasts.

        A lost connection is an error, because changes may be missing. `sandbox.watchers` keep
        changes instead.

        Args:
            path: The directory.
            recursive: Also everything below its entries.
        """
        request = ops.WATCH_FILES(self._sandbox, query={"path": path, "recursive": recursive})
        stream = AsyncEventStream(self._transport, _watch_event, last=())
        return await stream.open(request)


def _range(start: int | None, end: int | None) -> str | None:
    if start is None and end is None:
        return None
    if start is not None and start < 0:
        if end is not None:
            raise ValueError("a range from the end of a file goes to its end")
        return f"bytes={start}"
    return f"bytes={start or 0}-{'' if end is None else end - 1}"


def _by_name(attributes: Sequence[FileAttribute]) -> dict[str, str]:
    return {attribute.name: attribute.value for attribute in attributes}


def _watch_event(event: ServerSentEvent) -> WatchEvent:
    return decode(WatchEvent, event.json())
