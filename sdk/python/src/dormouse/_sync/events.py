# Generated from _async/events.py by scripts/generate_sync.py; do not edit.
"""Events of all sandboxes or of one, as a list or as a stream."""

from __future__ import annotations

from collections.abc import Iterator

from .. import _operations as ops
from .._request import Request
from .._sse import ServerSentEvent
from .._values import decode
from ..types import Event
from ._transport import Transport
from .stream import EventStream, Stream


def list_events(
    transport: Transport,
    *,
    sandbox: str | None,
    after: int | None,
    newest: int | None,
    limit: int | None,
) -> Iterator[Event]:
    """Yield the events that have happened, page by page."""
    query = {"sandbox": sandbox, "after": after, "newest": newest, "limit": limit}
    while True:
        events = transport.items(ops.LIST_EVENTS(query=query), "events", Event)
        for event in events:
            yield event
        if not events or newest is not None:
            return
        query["after"] = events[-1].number


def follow_events(transport: Transport, *, sandbox: str | None, after: int | None) -> Stream[Event]:
    """Open a stream of events that continues after a lost connection."""

    def resume(last_id: str | None) -> Request:
        return ops.LIST_EVENTS(query={"sandbox": sandbox, "after": last_id or after})

    stream = EventStream(transport, _event, last=(), resume=resume)
    return stream.open(resume(None))


def _event(event: ServerSentEvent) -> Event:
    return decode(Event, event.json())
