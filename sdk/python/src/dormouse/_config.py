"""How a client reaches the daemon."""

from __future__ import annotations

import itertools
import os
import random
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ._values import Duration, seconds

DEFAULT_SERVER = "http://127.0.0.1:7070"

STREAM_SILENCE_SECS = 150.0
"""The daemon sends something over each stream of events every 15 seconds. Before that, it may
wait a minute for room to resume the sandbox."""

CONNECT_SECS = 10.0

FIRST_DELAY_SECS = 0.25
LONGEST_DELAY_SECS = 4.0
LONGEST_RETRY_AFTER_SECS = 30.0


@dataclass(frozen=True)
class Config:
    """The settings of a client."""

    server: str
    """`http://` or `https://` and a host, or `unix:` and the path of a socket."""
    api_key: str | None = field(repr=False)
    project: str | None
    ca: str | None
    timeout: float | None
    retries: int
    reconnect: float

    @classmethod
    def new(
        cls,
        server: str | None,
        api_key: str | None,
        project: str | None,
        ca: str | os.PathLike[str] | None,
        timeout: Duration | None,
        retries: int,
        reconnect: Duration,
    ) -> Config:
        """Return settings, completed from the environment."""
        server = (server or os.environ.get("DORM_SERVER") or DEFAULT_SERVER).rstrip("/")
        if not server.startswith(("http://", "https://", "unix:")):
            raise ValueError(f"the server {server!r} does not begin with http://, https:// or unix:")
        if api_key is None and not server.startswith("unix:"):
            api_key = os.environ.get("DORM_KEY") or None
        ca = ca or os.environ.get("DORM_CA") or None
        return cls(
            server=server,
            api_key=api_key,
            project=project,
            ca=None if ca is None else os.fspath(ca),
            timeout=seconds(timeout),
            retries=retries,
            reconnect=seconds(reconnect) or 0.0,
        )

    @property
    def socket(self) -> str | None:
        """The path of the Unix socket, if the server is one."""
        path = self.server.removeprefix("unix:")
        return None if path == self.server else "/" + path.lstrip("/")

    @property
    def base_url(self) -> str:
        return self.server if self.socket is None else "http://localhost"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        headers = {"User-Agent": "dormouse-python"}
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        if self.project is not None:
            headers["X-Dormouse-Project"] = self.project
        return headers

    def tls(self) -> ssl.SSLContext | None:
        """The certificates that are trusted, or None for a server without TLS."""
        if not self.base_url.startswith("https:"):
            return None
        context = ssl.create_default_context()
        if self.ca is not None:
            context.load_verify_locations(self.ca)
        return context

    def delays(self) -> Iterator[float]:
        """Return the pause in seconds before each further attempt."""
        return map(_delay, range(self.retries))

    def reconnects(self) -> Iterator[float]:
        """Yield the pause in seconds before each attempt to continue a stream.

        The time for all attempts begins when the first pause is asked for.
        """
        deadline = time.monotonic() + self.reconnect
        for attempt in itertools.count():
            if time.monotonic() >= deadline:
                return
            yield _delay(attempt)

    def port_url(self, label: str) -> str:
        """The URL of a port of a sandbox, whose host begins with this label."""
        if self.socket is not None:
            raise ValueError("a Unix socket has no URL for ports: use request() or client()")
        parts = urlsplit(self.server)
        host = parts.hostname or ""
        is_address = ":" in host or host.replace(".", "").isdigit()
        domain = "localhost" if is_address else host
        port = "" if parts.port is None else f":{parts.port}"
        return f"{parts.scheme}://{label}.{domain}{port}/"

    def http_options(self) -> dict[str, Any]:
        """Arguments of the HTTP client."""
        return {"base_url": self.base_url, "headers": self.headers}


def _delay(attempt: int) -> float:
    longest = min(FIRST_DELAY_SECS * (1 << min(attempt, 10)), LONGEST_DELAY_SECS)
    return longest * random.uniform(0.5, 1.0)
