"""A web app that is paused when nobody uses it, and wakes on a request with what it had in memory."""

from __future__ import annotations

import os
import time

import httpx
from e2b import Sandbox

APP = """
import http.server
visits = 0
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global visits
        visits += 1
        self.send_response(200); self.end_headers(); self.wfile.write(f"visit number {visits}".encode())
    def log_message(self, *rest): pass
http.server.HTTPServer(("", 8000), App).serve_forever()
"""


def visit(sandbox: Sandbox) -> str:
    """Send a request to port 8000. Two headers name the port, so no name has to be resolved."""
    port = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}
    answer = httpx.get(os.environ["E2B_SANDBOX_URL"], headers=port, timeout=60)
    return answer.text if answer.is_success else ""


def main() -> None:
    sandbox = Sandbox.create(timeout=300, lifecycle={"on_timeout": "pause", "auto_resume": True})
    try:
        sandbox.files.write("app.py", APP)
        sandbox.commands.run("python3 app.py", background=True, timeout=0)
        while not (first := visit(sandbox)):
            time.sleep(0.1)
        print(first)
        sandbox.set_timeout(0)
        while sandbox.get_info().state.value != "paused":
            time.sleep(0.1)
        print("no more visitors: paused")
        print(visit(sandbox))
        print("woken by a request:", sandbox.get_info().state.value)
    finally:
        sandbox.kill()


if __name__ == "__main__":
    main()
