"""Lets methods that open something be used with `await`, `async with` and `async for`.

The blocking package has a file of the same name and members, written by hand.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from .stream import AsyncStream

P = ParamSpec("P")
T = TypeVar("T")


class Openable(Protocol):
    """A context manager."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


M = TypeVar("M", bound=Openable)


class Opening(Generic[M]):
    """Something that is about to be opened: `await` it, or use it with `async with`."""

    def __init__(self, coroutine: Coroutine[Any, Any, M]) -> None:
        self._coroutine = coroutine
        self._opened: M | None = None

    def __await__(self) -> Generator[Any, None, M]:
        return self._coroutine.__await__()

    async def __aenter__(self) -> M:
        self._opened = await self._coroutine
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, traceback)


class OpeningStream(Opening[AsyncStream[T]], Generic[T]):
    """A stream that is about to be opened: also for `async for`, which closes it at its end."""

    async def __aiter__(self) -> AsyncIterator[T]:
        async with self as stream:
            async for item in stream:
                yield item


def opens(method: Callable[P, Coroutine[Any, Any, M]]) -> Callable[P, Opening[M]]:
    """Let the result of a method be awaited, or used with `async with`."""

    @functools.wraps(method)
    def opening(*args: P.args, **kwargs: P.kwargs) -> Opening[M]:
        return Opening(method(*args, **kwargs))

    return opening


def opens_stream(
    method: Callable[P, Coroutine[Any, Any, AsyncStream[T]]],
) -> Callable[P, OpeningStream[T]]:
    """Let the result of a method also be iterated at once."""

    @functools.wraps(method)
    def opening(*args: P.args, **kwargs: P.kwargs) -> OpeningStream[T]:
        return OpeningStream(method(*args, **kwargs))

    return opening
