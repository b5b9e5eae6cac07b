"""Events of all sandboxes or of one, as a list or as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .. import _operations as ops
from .._request import Request
from .._sse import ServerSentEvent
from .._values import decode
from ..types import Event
from ._transport import AsyncTransport
from .stream import AsyncEventStream, AsyncStream


async def list_events(
    transport: AsyncTransport,
    *,
    sandbox: str | None,
    after: int | None,
    newest: int | None,
    limit: int | None,
) -> AsyncIterator[Event]:
    """Yield the events that have happened, page by page."""
    query = {"sandbox": sandbox, "after": after, "newest": newest, "limit": limit}
    while True:
        events = await transport.items(ops.LIST_EVENTS(query=query), "events", Event)
        for event in events:
            yield event
        if not events or newest is not None:
            return
        query["after"] = events[-1].number


async def follow_events(
    transport: AsyncTransport, *, sandbox: str | None, after: int | None
) -> AsyncStream[Event]:
    """Open a stream of events that continues after a lost connection."""

    def resume(last_id: str | None) -> Request:
        return ops.LIST_EVENTS(query={"sandbox": sandbox, "after": last_id or after})

    stream = AsyncEventStream(transport, _event, last=(), resume=resume)
    return await stream.open(resume(None))


def _event(event: ServerSentEvent) -> Event:
    return decode(Event, event.json())
