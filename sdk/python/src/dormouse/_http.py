"""Rules of the exchange of requests and responses, without input and output."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import httpx

from ._config import CONNECT_SECS, STREAM_SILENCE_SECS, Config
from ._request import Request
from .errors import (
    ConnectError,
    ConnectionLostError,
    DormouseError,
    ResponseTimeoutError,
    UnavailableError,
    api_error,
)

EVENT_STREAM = "text/event-stream"

LOST = (ConnectError, ConnectionLostError, ResponseTimeoutError, UnavailableError)
"""Errors after which another attempt may succeed."""


def query(parameters: Mapping[str, Any]) -> str | None:
    """Encode the query of a URL.

    A path that is not UTF-8 is a `UnicodeEncodeError`: the daemon would take it for another one.
    """
    return urlencode(parameters, doseq=True) or None


def timeout(config: Config, request: Request) -> httpx.Timeout:
    """Return how long the daemon may be silent after this request."""
    if request.waits:
        silence = None
    elif request.headers.get("Accept") == EVENT_STREAM:
        silence = STREAM_SILENCE_SECS
    else:
        silence = config.timeout
    return httpx.Timeout(silence, connect=CONNECT_SECS)


def may_retry(request: Request, error: DormouseError) -> bool:
    """Return whether a request can be sent again after this error without doing its work twice."""
    if isinstance(error, ConnectError):
        return request.has_repeatable_content
    return isinstance(error, LOST) and request.is_repeatable


@contextlib.contextmanager
def translated(server: str) -> Iterator[None]:
    """Convert errors of the HTTP client to those of this package."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
        raise ConnectError(f"cannot reach {server}: {error or type(error).__name__}") from error
    except httpx.ReadTimeout as error:
        raise ResponseTimeoutError(f"{server} has sent nothing for too long") from error
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise ConnectionLostError(
            f"the connection to {server} broke: {error or type(error).__name__}"
        ) from error


def raise_gateway_error(response: httpx.Response) -> None:
    """Raise the error of a response that comes from the gateway and not from the program of a port."""
    if response.headers.get("content-type") != "application/problem+json":
        return
    with contextlib.suppress(ValueError, KeyError, TypeError):
        problem = response.json()
        if str(problem["type"]) == f"/errors/{problem['code']}":
            raise api_error(problem, response.headers)
