"""A server that answers requests with what a test has prepared, and breaks connections."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO


@dataclass(frozen=True)
class Received:
    """A request that the server has received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


Step = Callable[[socket.socket, Received], None]
"""Answers one request. The connection is closed after it."""


def answer(status: int, body: Any = None, headers: dict[str, str] | None = None) -> Step:
    """Answer with JSON, or with bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Status", f"content-length: {len(data)}", "connection: close"]
    lines += [f"{key}: {value}" for key, value in (headers or {}).items()]
    text = "\r\n".join(lines).encode() + b"\r\n\r\n" + data
    return lambda connection, _: connection.sendall(text)


def problem(status: int, code: str, headers: dict[str, str] | None = None) -> Step:
    body = {"code": code, "detail": f"a {code} error", "next_step": "try something else", "status": status}
    return answer(status, body, headers)


def drop(connection: socket.socket, _: Received) -> None:
    """Break the connection without an answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang(released: threading.Event) -> Step:
    """Answer nothing until the test is over."""

    def wait(_: socket.socket, __: Received) -> None:
        released.wait(60)

    return wait


def event(kind: str, data: Any, id: str | None = None) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data)}\n{f'id: {id}' if id else ':'}\n\n".encode()


def output(offset: int, data: str, stream: str = "stdout") -> bytes:
    end = offset + len(data.encode())
    position = f"{end},0" if stream == "stdout" else f"0,{end}"
    return event(stream, {"offset": offset, "read_at": None, "data": data, "encoding": "utf8"}, position)


def exit_event(position: str, code: int = 0) -> bytes:
    return event("exit", {"exit_code": code, "timed_out": False}, position)


def stream(*events: bytes, broken: bool = False) -> Step:
    """Answer with a stream of events, which is complete as HTTP unless it is broken."""

    def send(connection: socket.socket, _: Received) -> None:
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        for data in events:
            connection.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        if not broken:
            connection.sendall(b"0\r\n\r\n")

    return send


def until_closed(*events: bytes, closed: threading.Event) -> Step:
    """Answer with a stream of events that lasts until the client closes the connection."""

    def send(connection: socket.socket, received: Received) -> None:
        stream(*events, broken=True)(connection, received)
        if connection.recv(1) == b"":
            closed.set()

    return send


def terminal(*messages: bytes | dict[str, Any]) -> Step:
    """Open a WebSocket, send bytes and JSON messages, and close it, all at once."""

    def send(connection: socket.socket, received: Received) -> None:
        key = received.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        lines = ["HTTP/1.1 101 Switching Protocols", "upgrade: websocket", "connection: upgrade"]
        data = "\r\n".join([*lines, f"sec-websocket-accept: {accept}"]).encode() + b"\r\n\r\n"
        for message in messages:
            kind, body = (
                (b"\x82", message) if isinstance(message, bytes) else (b"\x81", json.dumps(message).encode())
            )
            data += kind + bytes([len(body)]) + body
        connection.sendall(data + b"\x88\x00")

    return send


class FakeServer:
    """Answers each request with the next step; after the last one it closes connections."""

    def __init__(self, path: Path | None = None) -> None:
        self.requests: list[Received] = []
        self.steps: list[Step] = []
        self.released = threading.Event()
        if path is None:
            self._socket = socket.create_server(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        else:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.bind(str(path))
            self._socket.listen()
            self.url = f"unix:{path}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def then(self, *steps: Step) -> None:
        self.steps += steps

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.released.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as file:
                received = read_request(file)
                if received is None:
                    continue
                self.requests.append(received)
                step = self.steps.pop(0) if self.steps else drop
                # The client may leave in the middle of a stream.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    step(connection, received)


def read_request(file: BinaryIO) -> Received | None:
    first = file.readline().decode().split(" ")
    if len(first) < 2:
        return None
    headers = {}
    while line := file.readline().strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding") != "chunked":
        return Received(first[0], first[1], headers, file.read(int(headers.get("content-length", "0"))))
    body = b""
    while length := int(file.readline(), 16):
        body += file.read(length)
        file.readline()
    return Received(first[0], first[1], headers, body)
