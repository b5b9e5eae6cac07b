"""A template whose program is running already when a sandbox of it starts."""

from __future__ import annotations

import os

import httpx
from e2b import Sandbox, Template, wait_for_port

NAME = "example-started-server"
SERVER = """
import http.server, random
token = random.random()
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(str(token).encode())
    def log_message(self, *rest): pass
http.server.HTTPServer(("", 8000), Answer).serve_forever()
"""


def main() -> None:
    template = (
        Template()
        .from_template("base")
        .run_cmd(f"cat > /home/user/server.py <<'END'\n{SERVER}\nEND")
        .set_start_cmd("python3 /home/user/server.py", wait_for_port(8000))
    )
    Template.build(template, NAME)
    answers = []
    for _ in range(2):
        with Sandbox.create(NAME) as sandbox:
            answers.append(sandbox.commands.run("curl -s http://localhost:8000").stdout)
    print("both sandboxes have the same running program:", answers[0] == answers[1] != "")
    key = {"X-API-Key": os.environ["E2B_API_KEY"]}
    deleted = httpx.delete(f"{os.environ['E2B_API_URL']}/templates/{NAME}", headers=key)
    print("the template is deleted:", deleted.is_success)


if __name__ == "__main__":
    main()
