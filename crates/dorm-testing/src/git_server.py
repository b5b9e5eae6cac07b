"""Serves git repositories over HTTP on port 80, some of them badly.

usage: git_server.py DIRECTORY TOKEN. Paths that begin with /private/ need the token as the password,
/half/ ends in the middle of the objects, /hang/ never answers, and /refuse/ answers 503.
"""

import base64
import http.server
import os
import subprocess
import sys
import time

ROOT, TOKEN = sys.argv[1:]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.serve(b"")

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.serve(body)

    def serve(self, body):
        path, _, query = self.path.partition("?")
        mode, _, repository = path[1:].partition("/")
        if mode == "hang":
            time.sleep(1000)
        if mode == "refuse":
            return self.send_error(503)
        if mode == "private":
            wanted = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
            if self.headers.get("Authorization") != f"Basic {wanted}":
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                return self.end_headers()
            print("authorized", flush=True)
        variables = {
            "GIT_PROJECT_ROOT": ROOT,
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{repository}",
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GIT_CONFIG_KEY_1": "uploadpack.allowAnySHA1InWant",
            "GIT_CONFIG_VALUE_1": "true",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=variables, stdout=subprocess.PIPE)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [line.split(": ", 1) for line in head.decode().split("\r\n") if line]
        status = next((value for name, value in headers if name == "Status"), "200 OK")
        self.send_response(int(status.split()[0]))
        for name, value in headers:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if mode == "half" and self.command == "POST" and len(content) > 2000:
            content = content[: len(content) // 2]
        self.wfile.write(content)
        self.close_connection = True

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("0.0.0.0", 80), Handler)
print("ready", flush=True)
server.serve_forever()
