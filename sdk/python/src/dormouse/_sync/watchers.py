# Generated from _async/watchers.py by scripts/generate_sync.py; do not edit.
"""Watchers, which keep the changes in a directory until they are taken."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _operations as ops
from .._values import Path, text
from ..types import WatcherEvent, WatcherInfo
from .handle import Part


@dataclass(frozen=True)
class WatcherEvents:
    """Changes that a watcher has kept."""

    events: list[WatcherEvent]
    """The changes, numbered without a gap."""
    next: str
    """Pass it as `after` to take the changes that follow."""
    more: bool
    """Whether there are more changes already."""


class Watchers(Part):
    """The watchers of a sandbox. They are part of its memory and continue across a suspend."""

    def create(self, path: Path, *, recursive: bool | None = None) -> WatcherInfo:
        """Keep every change in a directory from now on, up to 65,536 of them.

        Args:
            path: The directory.
            recursive: Also everything below its entries.
        """
        body = {"path": text(path), "recursive": recursive}
        return self._transport.json(ops.CREATE_WATCHER(self._sandbox, body=body), WatcherInfo)

    def list(self) -> list[WatcherInfo]:
        """Return all watchers, the oldest first."""
        return self._transport.items(ops.LIST_WATCHERS(self._sandbox), "watchers", WatcherInfo)

    def take(self, watcher: int, *, after: str | None = None, limit: int | None = None) -> WatcherEvents:
        """Return the changes that happened before this call.

        A change of the kind `overflow` stands for changes that were not kept.

        Args:
            watcher: The number of the watcher.
            after: `next` of the previous result. The watcher forgets the changes before it.
            limit: Number of changes to return, 1,000 at most.
        """
        query = {"after": after, "limit": limit}
        request = ops.TAKE_WATCHER_EVENTS(self._sandbox, watcher, query=query)
        return self._transport.json(request, WatcherEvents)

    def remove(self, watcher: int) -> None:
        """Remove a watcher, with the changes that it has kept."""
        self._transport.send(ops.REMOVE_WATCHER(self._sandbox, watcher))
