"""Lets one case run with both clients: an asynchronous object that looks like a blocking one."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any


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
    """An object or class of the asynchronous client with the interface of the blocking one."""

    def __init__(self, loop: Loop, target: Any) -> None:
        self._loop = loop
        self.target = target

    def __repr__(self) -> str:
        return repr(self.target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.target(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.target, name)
        if not inspect.ismethod(value) and not inspect.isfunction(value):
            return wrapped(self._loop, value)

        def call(*args: Any, **kwargs: Any) -> Any:
            given = [unwrapped(value) for value in args]
            options = {key: unwrapped(value) for key, value in kwargs.items()}
            return wrapped(self._loop, self._loop.run(lambda: value(*given, **options)))

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
        return item


def wrapped(loop: Loop, value: Any) -> Any:
    """Wrap objects and classes of the asynchronous client, also those in a list."""
    if isinstance(value, list):
        return [wrapped(loop, item) for item in value]
    kind = value if isinstance(value, type) else type(value)
    is_object = any(base.__module__.startswith("e2b") and "_async" in base.__module__ for base in kind.__mro__)
    return Blocking(loop, value) if is_object or isinstance(value, AsyncIterator) else value


def unwrapped(value: Any) -> Any:
    """Return what a call of the asynchronous client takes, also in collections."""
    if isinstance(value, Blocking):
        return value.target
    if isinstance(value, list):
        return [unwrapped(item) for item in value]
    if isinstance(value, dict):
        return {key: unwrapped(item) for key, item in value.items()}
    return value
