"""A terminal in a sandbox, over a WebSocket."""

from __future__ import annotations

import json
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from .._http import query
from .._request import Request
from .._values import decode
from ..errors import ConnectError, ConnectionLostError, api_error, response_error
from ..types import ExitStatus
from ._io import Socket, open_socket
from ._transport import AsyncTransport
from .stream import AsyncStream


class AsyncTerminal(AsyncStream[bytes]):
    """An open terminal. Iterate over it for the bytes to show, until its process has ended.

    After a lost connection, `sandbox.pty(attach=terminal.process, offset=terminal.offset)`
    continues where it was.
    """

    process: int
    """The handle of the process in the terminal."""

    offset: int
    """The offset of the next byte of the output."""

    exit: ExitStatus | None
    """How the process ended, once the iteration has."""

    def __init__(self, server: str, socket: Socket, process: int, offset: int) -> None:
        self._server = server
        self._socket = socket
        self.process = process
        self.offset = offset
        self.exit = None

    async def write(self, data: str | bytes) -> None:
        """Type something."""
        await self._send(data.encode() if isinstance(data, str) else data)

    async def resize(self, rows: int, cols: int) -> None:
        """Change the size of the terminal."""
        await self._send(json.dumps({"type": "resize", "rows": rows, "cols": cols}))

    async def send_eof(self) -> None:
        """Send the end-of-file character."""
        await self._send(json.dumps({"type": "eof"}))

    async def aclose(self) -> None:
        """Disconnect. The process in the terminal continues."""
        await self._socket.close()

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __anext__(self) -> bytes:
        while self.exit is None:
            message = await receive(self._server, self._socket)
            if isinstance(message, bytes):
                self.offset += len(message)
                return message
            if message["type"] == "lost":
                self.offset = message["offset"] + message["bytes"]
            elif message["type"] == "exit":
                self.exit = decode(ExitStatus, {"timed_out": False, **message})
        raise StopAsyncIteration

    async def _send(self, data: str | bytes) -> None:
        try:
            await self._socket.send(data)
        except ConnectionClosed as error:
            raise ConnectionLostError(f"the terminal of {self._server} is disconnected") from error


async def open_terminal(transport: AsyncTransport, request: Request, offset: int) -> AsyncTerminal:
    """Open the terminal that a request asks for."""
    config = transport.config
    request = transport.prepared(request)
    url = f"ws{config.base_url.removeprefix('http')}{request.path}?{query(request.query) or ''}"
    try:
        socket = await open_socket(config, url, {**config.headers, **request.headers})
    except InvalidStatus as error:
        response = error.response
        raise response_error(
            config.server, response.status_code, response.headers, bytes(response.body or b"")
        ) from None
    except (OSError, InvalidHandshake) as error:
        raise ConnectError(f"cannot open a terminal of {config.server}: {error}") from error
    try:
        started = await receive(config.server, socket)
        while isinstance(started, bytes) or started["type"] != "started":
            started = await receive(config.server, socket)
    except BaseException:
        await socket.close()
        raise
    return AsyncTerminal(config.server, socket, started["process"], offset)


async def receive(server: str, socket: Socket) -> bytes | Any:
    """Return the next bytes or message, or raise the error that the daemon reports."""
    try:
        message = await socket.recv()
    except ConnectionClosed as error:
        raise ConnectionLostError(f"the terminal of {server} is disconnected") from error
    if isinstance(message, bytes):
        return message
    data = json.loads(message)
    if data["type"] == "error":
        raise api_error(data)
    return data
