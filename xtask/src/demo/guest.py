"""The program in the demo's sandbox: counts in memory, keeps a deleted file open, and answers on a port."""

import http.server
import json
import os
import secrets
import subprocess
import threading
import time

SECRET = secrets.token_hex(16)
NOTES = []
COUNT = 0

deleted = open("/root/deleted", "w+")
deleted.write("still here " + SECRET)
deleted.flush()
os.unlink("/root/deleted")
job = subprocess.Popen(["sh", "-c", "while :; do date +%s >> /root/job.log; sleep 0.2; done"])


def count():
    global COUNT
    while True:
        COUNT += 1
        time.sleep(0.01)


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/note/"):
            NOTES.append(self.path[6:])
        deleted.seek(0)
        body = json.dumps({
            "pid": os.getpid(),
            "secret": SECRET,
            "count": COUNT,
            "deleted_file": deleted.read(),
            "job": job.poll() is None,
            "notes": NOTES,
        }).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


threading.Thread(target=count, daemon=True).start()
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Answer).serve_forever()
