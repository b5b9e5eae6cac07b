"""Streams: server-sent events, which continue after a lost connection, and bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Generic, TypeVar

import httpx

from .._http import EVENT_STREAM, LOST, translated
from .._request import Request
from .._sse import EventParser, ServerSentEvent
from ..errors import ApiError, ConnectionLostError, DormouseError, api_error
from . import _io
from ._transport import AsyncTransport

T = TypeVar("T")


class AsyncStream(Generic[T]):
    """Items that arrive one after the other.

    Iterate over it. It is a context manager that closes the connection at its end, also if the
    iteration was not finished.
    """

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close the connection."""
        raise NotImplementedError

    async def __aenter__(self) -> AsyncStream[T]:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncByteStream(AsyncStream[bytes]):
    """The body of a response, in pieces of bytes."""

    def __init__(self, server: str, response: httpx.Response) -> None:
        self._server = server
        self._response = response
        self._pieces = response.aiter_bytes()

    async def __anext__(self) -> bytes:
        with translated(self._server):
            return await anext(self._pieces)

    async def aclose(self) -> None:
        await self._response.aclose()


class AsyncEventStream(AsyncStream[T]):
    """Server-sent events of a request.

    If the connection is lost, the stream continues with the request that `resume` returns for the
    id of the last event, after pauses and for as long as the client reconnects. Without `resume`, or if
    it returns None, a lost connection is an error.

    `convert` returns None for events to skip. The stream ends with an event of one of the kinds
    `last`; an end of the response before that is a lost connection. Without `last`, the stream
    ends with the response.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        convert: Callable[[ServerSentEvent], T | None],
        *,
        last: tuple[str, ...] | None = None,
        resume: Callable[[str | None], Request | None] | None = None,
    ) -> None:
        self._transport = transport
        self._convert = convert
        self._last = last
        self._resume = resume
        self._delays = transport.config.reconnects()
        self._waiting: deque[ServerSentEvent] = deque()
        self._last_id: str | None = None
        self._is_over = False
        self._response: httpx.Response | None = None

    async def open(self, request: Request) -> AsyncEventStream[T]:
        """Send the request that begins the stream."""
        await self._read(await self._transport.send(_for_events(request), stream=True))
        return self

    async def __anext__(self) -> T:
        while True:
            try:
                event = await self._receive()
            except LOST as error:
                await self._reconnect(error)
                continue
            except ApiError:
                await self.aclose()
                raise
            if event is None:
                await self.aclose()
                raise StopAsyncIteration
            self._delays = self._transport.config.reconnects()
            self._last_id = event.id or self._last_id
            self._is_over = self._last is not None and event.kind in self._last
            item = self._convert(event)
            if item is not None:
                return item

    async def aclose(self) -> None:
        """Close the connection."""
        self._is_over = True
        self._waiting.clear()
        if self._response is not None:
            await self._response.aclose()
            self._response = None

    async def _receive(self) -> ServerSentEvent | None:
        """Return the next event, or None at the end of the stream."""
        while not self._waiting:
            if self._is_over:
                return None
            with translated(self._transport.config.server):
                data = await anext(self._pieces, None)
            if data is None:
                if self._last is not None:
                    raise ConnectionLostError(f"{self._transport.config.server}: the stream ended too early")
                return None
            self._waiting.extend(self._parser.feed(data))
        event = self._waiting.popleft()
        if event.kind == "error":
            raise api_error(event.json())
        return event

    async def _reconnect(self, error: DormouseError) -> None:
        """Continue after the last event, or raise the error."""
        while True:
            request = None if self._resume is None else self._resume(self._last_id)
            delay = next(self._delays, None)
            if request is None or delay is None:
                await self.aclose()
                raise error
            await _io.sleep(delay)
            try:
                request = self._transport.prepared(_for_events(request))
                await self._read(await self._transport.attempt(request, stream=True))
                return
            except LOST as again:
                error = again

    async def _read(self, response: httpx.Response) -> None:
        """Continue with this response."""
        if self._response is not None:
            await self._response.aclose()
        self._waiting.clear()
        self._parser = EventParser()
        self._response = response
        self._pieces = response.aiter_bytes()


def _for_events(request: Request) -> Request:
    return request.with_headers({"Accept": EVENT_STREAM})
