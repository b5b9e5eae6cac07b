"""Lets one test body run with both clients: an asynchronous object that looks like a blocking one."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any

RENAMED = {"close": "aclose"}


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Any]) -> Any:
        """Call a function in the loop, await its result if that is possible, and return it."""

        async def done() -> Any:
            result = work()
            return await result if isinstance(result, Awaitable) else result

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    def close(self) -> None:
        async def cancel_tasks() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.run(cancel_tasks)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking:
    """An object of the asynchronous client with the interface of the blocking one."""

    def __init__(self, loop: Loop, target: Any) -> None:
        self._loop = loop
        self.target = target

    def __repr__(self) -> str:
        return repr(self.target)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.target, RENAMED.get(name, name))
        if not inspect.ismethod(value) and not inspect.isfunction(value):
            return wrapped(self._loop, value)

        def call(*args: Any, **kwargs: Any) -> Any:
            return wrapped(self._loop, self._loop.run(lambda: value(*args, **kwargs)))

        return call

    def __enter__(self) -> Any:
        return wrapped(self._loop, self._loop.run(self.target.__aenter__))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.run(lambda: self.target.__aexit__(kind, error, traceback))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        # A future cannot carry StopIteration, so the end of the stream is a value here.
        end = object()
        item = self._loop.run(lambda: anext(self.target, end))
        if item is end:
            raise StopIteration
        return wrapped(self._loop, item)


def wrapped(loop: Loop, value: Any) -> Any:
    """Wrap objects of the asynchronous client, also those in a list."""
    if isinstance(value, list):
        return [wrapped(loop, item) for item in value]
    is_object = type(value).__module__.startswith("dormouse._async.") and type(value).__name__.startswith(
        "Async"
    )
    if is_object or isinstance(value, AsyncIterator):
        return Blocking(loop, value)
    return value
