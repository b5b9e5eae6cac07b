"""What differs between the asynchronous and the blocking client.

The blocking package has a file of the same name and members, written by hand.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import IO, Any

import httpx
from websockets.asyncio.client import ClientConnection, connect, unix_connect

from .._config import Config

Content = str | bytes | IO[bytes] | Iterable[bytes] | AsyncIterable[bytes]
"""Contents of a file or an archive: text, bytes, an open file, or pieces of bytes."""

Socket = ClientConnection

PIECE_BYTES = 64 * 1024

sleep = asyncio.sleep


def http_client(config: Config) -> httpx.AsyncClient:
    tls = config.tls()
    transport = httpx.AsyncHTTPTransport(
        verify=True if tls is None else tls,
        uds=config.socket,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
    )
    return httpx.AsyncClient(transport=transport, **config.http_options())


async def open_socket(config: Config, url: str, headers: dict[str, str]) -> Socket:
    """Open a WebSocket."""
    if config.socket is not None:
        return await unix_connect(config.socket, uri=url, additional_headers=headers, max_size=None)
    return await connect(url, additional_headers=headers, max_size=None, proxy=None, ssl=config.tls())


def body(content: Content) -> str | bytes | AsyncIterable[bytes]:
    """Convert contents to what the HTTP client sends."""
    if isinstance(content, (str, bytes, AsyncIterable)):
        return content
    return _pieces(content)


async def _pieces(content: IO[bytes] | Iterable[bytes]) -> AsyncIterator[bytes]:
    """Read a file or an iterable in a thread, because either may block."""
    pieces = (
        iter(functools.partial(content.read, PIECE_BYTES), b"") if hasattr(content, "read") else iter(content)
    )
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece


@asynccontextmanager
async def alongside(work: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None, None]:
    """Do something while the body of the `with` runs."""
    task = asyncio.create_task(work())
    try:
        yield
        await task
    finally:
        task.cancel()
