"""A web app that sleeps when nobody uses it, and wakes on a request.

The app counts visits in memory only. After a suspend, the next request resumes the sandbox and the
count continues.
"""

from __future__ import annotations

import os
import time

from dormouse import Client
from dormouse.types import HealthCheck

APP = """
from http.server import BaseHTTPRequestHandler, HTTPServer

visits = 0

class App(BaseHTTPRequestHandler):
    def do_GET(self):
        global visits
        if self.path == "/health":
            return self.answer("ok")
        visits += 1
        self.answer(f"visit number {visits}")

    def answer(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

HTTPServer(("", 8000), App).serve_forever()
"""


def main() -> None:
    with Client() as client, client.sandboxes.create("base", name=f"app-{os.getpid()}") as sandbox:
        sandbox.files.write("/srv/app.py", APP)
        check = HealthCheck(port=8000, path="/health", interval_secs=0.1)
        sandbox.services.start("app", ["python3", "/srv/app.py"], health=check)
        while sandbox.services.get("app").health != "healthy":
            time.sleep(0.05)
        app = sandbox.ports.get(8000)
        print(app.request("GET").text)
        print(app.request("GET").text)
        sandbox.suspend()
        print("nobody is there:", sandbox.state)
        print(app.request("GET").text)
        print("woken by a request:", sandbox.refresh().state, "in generation", sandbox.info.generation)
        kinds = [event.kind for event in sandbox.events()]
        print("events:", ", ".join(kinds))


if __name__ == "__main__":
    main()
