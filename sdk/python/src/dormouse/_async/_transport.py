"""Sends requests of the API, and repeats those that are safe to repeat."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import httpx

from .._config import LONGEST_RETRY_AFTER_SECS, Config
from .._http import may_retry, query, timeout, translated
from .._request import Request
from .._values import decode
from ..errors import ApiError, DormouseError, ProtocolError, response_error
from . import _io

T = TypeVar("T")


class AsyncTransport:
    """A connection pool to one daemon, with headers for the requests that accept them."""

    def __init__(
        self,
        config: Config,
        http: httpx.AsyncClient | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.config = config
        self.http = http or _io.http_client(config)
        self.headers = dict(headers or {})

    def with_headers(self, headers: Mapping[str, str | None]) -> AsyncTransport:
        """Return the same pool, with more headers."""
        more = {key: value for key, value in headers.items() if value is not None}
        return AsyncTransport(self.config, self.http, {**self.headers, **more})

    async def aclose(self) -> None:
        await self.http.aclose()

    async def json(self, request: Request, kind: type[T]) -> T:
        """Send a request and convert its response."""
        response = await self.send(request)
        try:
            return decode(kind, response.json())
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolError(f"{self.config.server}: cannot read the response: {error}") from error

    async def items(self, request: Request, field: str, kind: type[T]) -> list[T]:
        """Send a request and convert the list in its response."""
        response = await self.json(request, dict[str, Any])
        return [decode(kind, item) for item in response[field]]

    async def pages(self, request: Request, field: str, kind: type[T]) -> AsyncIterator[T]:
        """Yield the items of all pages of a list."""
        while True:
            page = await self.json(request, dict[str, Any])
            for item in page[field]:
                yield decode(kind, item)
            if page.get("next") is None:
                return
            request = request.with_query({"after": page["next"]})

    async def send(self, request: Request, *, stream: bool = False) -> httpx.Response:
        """Send a request, and return its response if it is a success.

        With `stream`, the body of the response is not read yet.
        """
        request = self.prepared(request)
        delays = self.config.delays()
        while True:
            try:
                return await self.attempt(request, stream=stream)
            except DormouseError as error:
                delay = next(delays, None)
                if delay is None or not may_retry(request, error):
                    raise
                after = error.retry_after if isinstance(error, ApiError) else None
            await _io.sleep(delay if after is None else min(after, LONGEST_RETRY_AFTER_SECS))

    def prepared(self, request: Request) -> Request:
        """Return the request with the headers that its operation accepts."""
        request = request.accepting(self.headers)
        if "Idempotency-Key" in request.operation.accepts and "Idempotency-Key" not in request.headers:
            return request.with_headers({"Idempotency-Key": uuid.uuid4().hex})
        return request

    async def attempt(self, request: Request, *, stream: bool) -> httpx.Response:
        """Send a prepared request once."""
        built = self.http.build_request(
            request.operation.method,
            request.path,
            params=query(request.query),
            json=request.body,
            content=None if request.content is None else _io.body(request.content),
            headers=request.headers,
            timeout=timeout(self.config, request),
        )
        with translated(self.config.server):
            response = await self.http.send(built, stream=True)
            if response.is_success and stream:
                return response
            try:
                await response.aread()
            finally:
                await response.aclose()
        if not response.is_success:
            raise response_error(self.config.server, response.status_code, response.headers, response.content)
        return response
