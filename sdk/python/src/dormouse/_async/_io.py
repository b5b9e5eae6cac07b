"""All that differs between the asynchronous and the blocking client.

The blocking package has a file of the same name and members, written by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import IO, Any, ParamSpec, TypeVar

import httpx
from websockets.asyncio.client import ClientConnection, connect, unix_connect

from .._config import Config
from .._values import PIECE_BYTES, split

P = ParamSpec("P")
T = TypeVar("T")

Content = str | bytes | IO[bytes] | Iterable[bytes] | AsyncIterable[bytes]
"""Contents of a file or an archive: text, bytes, an open file, or pieces of bytes."""

Socket = ClientConnection

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
    return content if isinstance(content, (str, bytes, AsyncIterable)) else pieces(content)


async def pieces(content: Content) -> AsyncIterator[bytes]:
    """Yield contents in pieces of limited length."""
    if isinstance(content, AsyncIterable):
        async for part in content:
            for at in range(0, len(part), PIECE_BYTES):
                yield part[at : at + PIECE_BYTES]
        return
    parts = split(content)
    # A file or an iterable may block.
    while (piece := await asyncio.to_thread(next, parts, None)) is not None:
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
        await asyncio.gather(task, return_exceptions=True)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that blocks for long."""
    return await asyncio.to_thread(function, *args, **kwargs)


class Repeated:
    """Does something again and again, with pauses, until it is stopped."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], pause: float) -> None:
        self._task = asyncio.create_task(self._run(work, pause))

    async def _run(self, work: Callable[[], Coroutine[Any, Any, None]], pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            await work()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
