# Generated from _async/ports.py by scripts/generate_sync.py; do not edit.
"""Ports of a sandbox, through the gateway of the daemon."""

from __future__ import annotations

from typing import Any

import httpx

from .. import _operations as ops
from .._http import raise_gateway_error, translated
from ..types import PortAccess, PortInfo, PortLink
from ._io import http_client
from ._transport import Transport
from .handle import Part


class Port:
    """A port of a sandbox.

    Traffic to it resumes a suspended sandbox, unless its `wake` policy is `never`.
    """

    info: PortInfo
    """The properties of the port."""

    def __init__(self, transport: Transport, info: PortInfo) -> None:
        self._transport = transport
        self.info = info

    @property
    def number(self) -> int:
        """The number of the port."""
        return self.info.port

    @property
    def access(self) -> PortAccess:
        """`public` for everyone who knows the URL, or `private`."""
        return self.info.access

    @property
    def url(self) -> str:
        """The URL, such as `http://8000-ID.localhost:7070/`.

        Browsers resolve names that end in `localhost`; other clients use `headers` or `request`.
        """
        return self._transport.config.port_url(self.info.label)

    @property
    def headers(self) -> dict[str, str]:
        """Headers that send a request for the daemon's own address to this port.

        They include the token of the port, which admits to it if it is private.
        """
        return {
            "X-Dormouse-Sandbox": self.info.sandbox,
            "X-Dormouse-Port": str(self.info.port),
            "X-Dormouse-Token": self.info.token,
        }

    def request(self, method: str, path: str = "/", **options: Any) -> httpx.Response:
        """Send an HTTP request to the port, and return the response of its program.

        If there is none, because nothing listens or the sandbox cannot wake, that is an `ApiError`
        such as `PortClosedError`.

        Args:
            method: `GET`, `POST`, …
            path: The path, with a query if there is one.
            options: Arguments of `httpx.Client.request`: `headers`, `params`, `json`, `content`,
                `timeout`, …
        """
        with self.client() as client:
            with translated(self._transport.config.server):
                response = client.request(method, path, **options)
        raise_gateway_error(response)
        return response

    def client(self) -> httpx.Client:
        """Return an HTTP client for this port. Its paths begin at the root of the port."""
        client = http_client(self._transport.config)
        client.headers = httpx.Headers(self.headers)
        return client


class Ports(Part):
    """The ports of a sandbox."""

    def get(self, port: int) -> Port:
        """Return a port. A program need not listen on it yet."""
        info = self._transport.json(ops.GET_PORT(self._sandbox, port), PortInfo)
        return Port(self._transport, info)

    def link(self, port: int) -> PortLink:
        """Return a link to a private port that a browser can open once, within a minute.

        The path of the link belongs to the URL of the port.
        """
        return self._transport.json(ops.CREATE_PORT_LINK(self._sandbox, port, body={}), PortLink)
