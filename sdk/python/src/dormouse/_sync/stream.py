# Generated from _async/stream.py by scripts/generate_sync.py; do not edit.
"""Streams: server-sent events, which continue after a lost connection, and bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

import httpx

from .._http import EVENT_STREAM, LOST, translated
from .._request import Request
from .._sse import EventParser, ServerSentEvent
from ..errors import ApiError, ConnectionLostError, DormouseError, api_error
from . import _io
from ._transport import Transport

T = TypeVar("T")


class Stream(Generic[T]):
    """Items that arrive one after the other.

    Iterate over it. It is a context manager that closes the connection at its end, also if the
    iteration was not finished.
    """

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection."""
        raise NotImplementedError

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class ByteStream(Stream[bytes]):
    """The body of a response, in pieces of bytes."""

    def __init__(self, server: str, response: httpx.Response) -> None:
        self._server = server
        self._response = response
        self._pieces = response.iter_bytes()

    def __next__(self) -> bytes:
        with translated(self._server):
            return next(self._pieces)

    def close(self) -> None:
        self._response.close()


class EventStream(Stream[T]):
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
        transport: Transport,
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

    def open(self, request: Request) -> EventStream[T]:
        """Send the request that begins the stream."""
        self._read(self._transport.send(_for_events(request), stream=True))
        return self

    def __next__(self) -> T:
        while True:
            try:
                event = self._receive()
            except LOST as error:
                self._reconnect(error)
                continue
            except ApiError:
                self.close()
                raise
            if event is None:
                self.close()
                raise StopIteration
            self._delays = self._transport.config.reconnects()
            self._last_id = event.id or self._last_id
            self._is_over = self._last is not None and event.kind in self._last
            item = self._convert(event)
            if item is not None:
                return item

    def close(self) -> None:
        """Close the connection."""
        self._is_over = True
        self._waiting.clear()
        if self._response is not None:
            self._response.close()
            self._response = None

    def _receive(self) -> ServerSentEvent | None:
        """Return the next event, or None at the end of the stream."""
        while not self._waiting:
            if self._is_over:
                return None
            with translated(self._transport.config.server):
                data = next(self._pieces, None)
            if data is None:
                if self._last is not None:
                    raise ConnectionLostError(f"{self._transport.config.server}: the stream ended too early")
                return None
            self._waiting.extend(self._parser.feed(data))
        event = self._waiting.popleft()
        if event.kind == "error":
            raise api_error(event.json())
        return event

    def _reconnect(self, error: DormouseError) -> None:
        """Continue after the last event, or raise the error."""
        while True:
            request = None if self._resume is None else self._resume(self._last_id)
            delay = next(self._delays, None)
            if request is None or delay is None:
                self.close()
                raise error
            _io.sleep(delay)
            try:
                request = self._transport.prepared(_for_events(request))
                self._read(self._transport.attempt(request, stream=True))
                return
            except LOST as again:
                error = again

    def _read(self, response: httpx.Response) -> None:
        """Continue with this response."""
        if self._response is not None:
            self._response.close()
        self._waiting.clear()
        self._parser = EventParser()
        self._response = response
        self._pieces = response.iter_bytes()


def _for_events(request: Request) -> Request:
    return request.with_headers({"Accept": EVENT_STREAM})
