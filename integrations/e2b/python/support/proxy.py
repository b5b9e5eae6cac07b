"""A proxy for HTTP that counts what passes through it."""

from __future__ import annotations

import http.client
import http.server
import select
import socket
import threading
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

HOP = {"connection", "proxy-connection", "keep-alive", "transfer-encoding", "host", "content-length"}


class Proxy:
    """A proxy on a free port of this host, until the end of the block."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(self.passed))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def handler(passed: list[str]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_CONNECT(self) -> None:
            passed.append(f"CONNECT {self.path}")
            host, port = self.path.rsplit(":", 1)
            with socket.create_connection((host, int(port))) as upstream:
                self.send_response(200)
                self.end_headers()
                tunnel(self.connection, upstream)
            self.close_connection = True

        def forward(self) -> None:
            passed.append(f"{self.command} {self.path}")
            parts = urlsplit(self.path)
            connection = http.client.HTTPConnection(parts.netloc, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            connection.request(self.command, target, self.body(), headers)
            answer = connection.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def log_message(self, *rest: Any) -> None:
            pass

    return Handler


def tunnel(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes both ways until one side ends."""
    while True:
        for ready in select.select([one, other], [], [])[0]:
            data = ready.recv(65536)
            if not data:
                return
            (other if ready is one else one).sendall(data)
