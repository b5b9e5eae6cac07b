"""Sandbox: internet access, public URLs, secured access."""

import os
import time

import httpx
from e2b import ALL_TRAFFIC, Sandbox

from pages import example, main, until, visit

INTERNET = os.environ["E2B_CASES_INTERNET"]


def reaches(sandbox: Sandbox, address: str = INTERNET) -> bool:
    command = f"timeout 5 bash -c 'exec 3<>/dev/tcp/{address}/8000' 2> /dev/null && echo yes || echo no"
    return sandbox.commands.run(command).stdout == "yes\n"


@example("Allow or disable the internet")
def allow_or_disable() -> None:
    sandbox = Sandbox.create(allow_internet_access=True)
    isolated = Sandbox.create(allow_internet_access=False)
    assert (reaches(sandbox), reaches(isolated)) == (True, False)
    sandbox.kill()
    isolated.kill()


@example("Allow and deny addresses")
def lists() -> None:
    sandbox = Sandbox.create(network={"deny_out": [ALL_TRAFFIC], "allow_out": [INTERNET, "8.8.8.0/24"]})
    restricted = Sandbox.create(network={"deny_out": [INTERNET]})
    assert (reaches(sandbox), reaches(restricted)) == (True, False)
    sandbox.kill()
    restricted.kill()


@example("Allow names")
def names() -> None:
    network = {"allow_out": ["api.example.com", "*.github.com"], "deny_out": [ALL_TRAFFIC]}
    sandbox = Sandbox.create(network=network)
    assert sandbox.get_info().network["allow_out"] == ["api.example.com", "*.github.com"]
    assert not reaches(sandbox)
    sandbox.kill()


@example("Allow takes precedence")
def precedence() -> None:
    sandbox = Sandbox.create(network={"deny_out": [ALL_TRAFFIC, INTERNET], "allow_out": [INTERNET]})
    assert reaches(sandbox)
    sandbox.kill()


@example("Change the network of a running sandbox")
def change() -> None:
    sandbox = Sandbox.create()
    sandbox.update_network({"deny_out": [ALL_TRAFFIC]})
    assert not reaches(sandbox)
    sandbox.update_network({"allow_internet_access": True})
    assert reaches(sandbox)
    sandbox.kill()


@example("The public URL of a port")
def url() -> None:
    sandbox = Sandbox.create()
    assert sandbox.get_host(3000).startswith(f"3000-{sandbox.sandbox_id}.")
    sandbox.kill()


@example("Connect to a server in the sandbox")
def server() -> None:
    sandbox = Sandbox.create()
    process = sandbox.commands.run("python3 -m http.server 3000", background=True, timeout=0)
    answer = until(lambda: (found := visit(sandbox.get_host(3000))).status_code == 200 and found)
    assert "Directory listing for /" in answer.text
    process.kill()
    sandbox.kill()


@example("Restrict the public URL")
def restrict() -> None:
    sandbox = Sandbox.create(network={"allow_public_traffic": False})
    sandbox.commands.run("python3 -m http.server 8080", background=True, timeout=0)
    token = {"e2b-traffic-access-token": sandbox.traffic_access_token}
    until(lambda: visit(sandbox.get_host(8080), **token).status_code == 200)
    assert visit(sandbox.get_host(8080)).status_code == 403
    sandbox.kill()


@example("Mask the host of requests")
def mask() -> None:
    sandbox = Sandbox.create(network={"mask_request_host": "localhost:${PORT}"})
    script = (
        "import http.server\nclass A(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n        self.send_response(200); self.end_headers()\n"
        "        self.wfile.write(self.headers['Host'].encode())\n"
        "http.server.HTTPServer(('', 8080), A).serve_forever()\n"
    )
    sandbox.files.write("server.py", script)
    sandbox.commands.run("python3 server.py", background=True, timeout=0)
    until(lambda: visit(sandbox.get_host(8080)).text == "localhost:8080")
    sandbox.kill()


@example("Secured access: signed URLs of files")
def signed() -> None:
    sandbox = Sandbox.create(secure=True)
    upload = sandbox.upload_url("demo.txt", use_signature_expiration=10_000)
    assert httpx.post(upload, files={"file": b"hello"}).status_code == 200
    download = sandbox.download_url("demo.txt", user="user", use_signature_expiration=1)
    assert httpx.get(download).text == "hello"
    time.sleep(2)
    assert httpx.get(download).json() == {"code": 401, "message": "signature is already expired"}
    sandbox.kill()


if __name__ == "__main__":
    main()
