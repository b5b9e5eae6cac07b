"""All that differs between the asynchronous and the blocking client.

The asynchronous package has a file of the same name and members.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, ParamSpec, TypeVar

import httpx
from websockets.sync.client import ClientConnection, connect, unix_connect

from .._config import Config
from .._values import split

P = ParamSpec("P")
T = TypeVar("T")

Content = str | bytes | IO[bytes] | Iterable[bytes]
"""Contents of a file or an archive: text, bytes, an open file, or pieces of bytes."""

Socket = ClientConnection

sleep = time.sleep


def http_client(config: Config) -> httpx.Client:
    tls = config.tls()
    transport = httpx.HTTPTransport(
        verify=True if tls is None else tls,
        uds=config.socket,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
    )
    return httpx.Client(transport=transport, **config.http_options())


def open_socket(config: Config, url: str, headers: dict[str, str]) -> Socket:
    """Open a WebSocket."""
    if config.socket is not None:
        socket = unix_connect(
            config.socket, uri=url, additional_headers=headers, max_size=None, create_connection=Connection
        )
    else:
        socket = connect(
            url,
            additional_headers=headers,
            max_size=None,
            proxy=None,
            ssl=config.tls(),
            create_connection=Connection,
        )
    # Not in a `with`, because the terminal closes it.
    return socket.__enter__()


class Connection(ClientConnection):
    """A WebSocket that delivers what it has received, also if the other side has closed it already.

    Otherwise, the reply to the other side's close fails, and the last messages are lost with it.
    """

    def send_data(self) -> None:
        with contextlib.suppress(OSError):
            super().send_data()


def body(content: Content) -> str | bytes | Iterable[bytes]:
    """Convert contents to what the HTTP client sends."""
    return content if isinstance(content, (str, bytes)) else pieces(content)


def pieces(content: Content) -> Iterator[bytes]:
    """Yield contents in pieces of limited length."""
    return split(content)


@contextmanager
def alongside(work: Callable[[], None]) -> Generator[None, None, None]:
    """Do something while the body of the `with` runs."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join()
    if failures:
        raise failures[0]


def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that blocks for long. In this client, that blocks the caller."""
    return function(*args, **kwargs)


class Repeated:
    """Does something again and again, with pauses, until it is stopped."""

    def __init__(self, work: Callable[[], None], pause: float) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work, pause), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], None], pause: float) -> None:
        while not self._stopped.wait(pause):
            work()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
