"""The daemon itself: its data on disk, its metrics and its certificates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _operations as ops
from ..types import Authority, CollectorItem, Quarantine, Stored, Verified
from .resources import AsyncResource


class AsyncDaemon(AsyncResource):
    """The daemon. Most of this needs a key of the project `local`."""

    async def metrics(self) -> str:
        """Return metrics in the text format of Prometheus."""
        return (await self._transport.send(ops.GET_METRICS())).text

    async def authority(self) -> Authority:
        """Return the certificate authority of the daemon, to trust for HTTPS."""
        return await self._transport.json(ops.GET_AUTHORITY(), Authority)

    async def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of the daemon's version."""
        return await self._transport.json(ops.GET_OPEN_API(), dict[str, Any])

    async def garbage(self) -> Sequence[CollectorItem]:
        """Return everything on disk, whether `collect_garbage` would delete it, and why."""
        return await self._transport.items(ops.PREVIEW_GARBAGE_COLLECTION(), "items", CollectorItem)

    async def collect_garbage(self, *, runs: bool | None = None) -> Sequence[CollectorItem]:
        """Delete files that records mark for deletion.

        Args:
            runs: Also end runs of this data directory that no record names.
        """
        request = ops.COLLECT_GARBAGE(query={"runs": runs})
        return await self._transport.items(request, "items", CollectorItem)

    async def stored(self) -> Sequence[Stored]:
        """Return the images, layers and saved states that `verify` can check."""
        return await self._transport.items(ops.LIST_STORED_OBJECTS(), "stored", Stored)

    async def verify(self, stored: Stored) -> Verified:
        """Read every byte of an object on disk, and compare it with what was written."""
        body = {"kind": stored.kind, "id": stored.id}
        return await self._transport.json(ops.VERIFY_STORED_OBJECT(body=body), Verified)

    async def quarantine(self) -> Quarantine:
        """Return records that cannot be read, and files that are damaged."""
        return await self._transport.json(ops.GET_QUARANTINE(), Quarantine)
