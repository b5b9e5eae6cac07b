"""A server for the tests, and a client for it."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

SERVER = os.path.join(os.path.dirname(__file__), "..", "files", "server")


class Client:
    """Speaks to the server as the clients of E2B do."""

    def __init__(self, port):
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, method, path, body=None):
        """The status and the text of an answer."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def lines(self, code, **fields):
        """The lines of a run, as they arrive."""
        body = json.dumps({"code": code, **fields}).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + "/execute", data=body)) as answer:
            for line in answer:
                yield json.loads(line)

    def run(self, code, **fields):
        return Ran(list(self.lines(code, **fields)))

    def context(self, **fields):
        status, text = self.ask("POST", "/contexts", fields)
        assert status == 200, text
        return json.loads(text)["id"]


class Ran:
    """The lines that a run has sent."""

    def __init__(self, lines):
        self.lines = lines
        assert lines[-1] == {"type": "end_of_execution"}

    def of(self, kind):
        return [line for line in self.lines if line["type"] == kind]

    def text(self, kind="stdout"):
        return "".join(line["text"] for line in self.of(kind))

    @property
    def result(self):
        (line,) = [line for line in self.of("result") if line["is_main_result"]]
        return line["text"]

    @property
    def error(self):
        (line,) = self.of("error")
        return line


def started(tmp_path, *options, **variables):
    """A server in a process of its own, and its client."""
    home = tmp_path / "home"
    home.mkdir()
    command = [sys.executable, SERVER, "--host", "127.0.0.1", "--port", "0", "--home", str(home)]
    own = {**os.environ, **variables}
    # With it, kernels leave the descriptors of their output alone.
    own.pop("PYTEST_CURRENT_TEST", None)
    process = subprocess.Popen([*command, *options], env=own, stdout=subprocess.PIPE, text=True)
    client = Client(int(process.stdout.readline()))
    client.home = str(home)
    return process, client


def ended(process):
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="session")
def client(tmp_path_factory):
    process, client = started(tmp_path_factory.mktemp("server"))
    yield client
    ended(process)
