"""Programs in a sandbox, and requests to its ports."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Any

import httpx

from .surface import Started, Surface
from .waiting import eventually

BOOT_ID = "/proc/sys/kernel/random/boot_id"

STATE = """
import os, threading, time
value = {"answer": 42}
kept = open("/tmp/deleted", "w+"); kept.write("still here"); kept.flush(); os.unlink("/tmp/deleted")
ticks = 0
"""
"""A variable, and a file that is open and deleted."""


def boot_id(sandbox: Any) -> str:
    return str(sandbox.files.read(BOOT_ID)).strip()


def output(sandbox: Any, command: str, **options: Any) -> str:
    """Run a command and return what it prints, without the last line break."""
    return str(sandbox.commands.run(command, **options).stdout).removesuffix("\n")


def visit(sandbox: Any, port: int, path: str = "/", **options: Any) -> httpx.Response:
    """Send a request to a port of a sandbox, which headers name."""
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)} | options.pop("headers", {})
    method = options.pop("method", "GET")
    url = os.environ["E2B_SANDBOX_URL"] + path
    return httpx.request(method, url, headers=headers, timeout=60, **options)


def visit_by_host(sandbox: Any, port: int, path: str = "/", **options: Any) -> httpx.Response:
    """Send a request over HTTPS to the host of a port, which the authority of the server has signed."""
    host = sandbox.get_host(port)
    name = host.rsplit(":", 1)[0]
    address = httpx.URL(os.environ["E2B_API_URL"]).copy_with(scheme="https", path=path)
    with httpx.Client(verify=ssl.create_default_context(cafile=os.environ["E2B_CASES_CA"]), timeout=60) as client:
        # Not every resolver knows names that end in localhost.
        return client.get(address, headers={"Host": host}, extensions={"sni_hostname": name}, **options)


def serve(sandbox: Any, port: int = 8000, directory: str = "/home/user") -> None:
    """Start a web server and wait until it answers. No stream stays open, whose end would wake the sandbox."""
    server = f"python3 -m http.server {port} --directory {directory}"
    sandbox.commands.run(f"setsid {server} > /dev/null 2>&1 &")
    eventually(lambda: visit(sandbox, port).status_code == 200)


class Repl:
    """An interactive Python in a sandbox."""

    def __init__(self, surface: Surface, sandbox: Any, connect_to: int | None = None) -> None:
        self.surface = surface
        if connect_to is None:
            self.run: Started = surface.start(sandbox, "exec python3 -i -q -u", stdin=True, timeout=0)
        else:
            self.run = surface.connect(sandbox, connect_to, timeout=0)
        self.sandbox = sandbox
        self.pid = self.run.pid
        self._asked = 0

    def again(self, sandbox: Any) -> Repl:
        """Connect to the same process, in this sandbox."""
        return Repl(self.surface, sandbox, self.pid)

    def do(self, source: str) -> None:
        for line in source.strip().splitlines():
            self.sandbox.commands.send_stdin(self.pid, line + "\n")

    def ask(self, expression: str) -> str:
        """Return the text of a value."""
        self._asked += 1
        mark = f"<{self._asked}>"
        self.do(f"print('{mark[0]}' + '{mark[1:]}', {expression}, '{mark[0]}' + '/{mark[1:]}')")
        text = self.run.says(f"</{mark[1:]}")
        return text.split(mark)[-1].split(f"</{mark[1:]}")[0].strip()


class Work:
    """A sandbox at work: a process with a variable and a deleted file, and another one that counts."""

    def __init__(self, surface: Surface, sandbox: Any) -> None:
        self.repl = Repl(surface, sandbox)
        self.repl.do(STATE)
        counter = "i=0; while true; do i=$((i+1)); echo $i > /tmp/next; mv /tmp/next /tmp/count; sleep 0.1; done"
        self.counter = sandbox.commands.run(counter, background=True, timeout=0).pid
        eventually(lambda: self.count(sandbox) > 1)
        self.boot_id = boot_id(sandbox)
        self.seen = self.count(sandbox)

    def facts(self) -> tuple[int, int, str, int]:
        """Return what another program needs to continue with it."""
        return self.repl.pid, self.counter, self.boot_id, self.seen

    @classmethod
    def again(cls, surface: Surface, sandbox: Any, facts: tuple[int, int, str, int]) -> Work:
        """Return the work that another program has begun."""
        work = cls.__new__(cls)
        pid, work.counter, work.boot_id, work.seen = facts
        work.repl = Repl(surface, sandbox, pid)
        return work

    @staticmethod
    def count(sandbox: Any) -> int:
        return int(output(sandbox, "cat /tmp/count 2>/dev/null || echo 0") or 0)

    def continues(self, sandbox: Any) -> None:
        """Check that all of it is there in this sandbox, and continues."""
        assert boot_id(sandbox) == self.boot_id
        repl = self.repl.again(sandbox)
        assert repl.ask("value['answer']") == "42"
        assert repl.ask("(kept.seek(0), kept.read())[1]") == "still here"
        assert {self.counter, self.repl.pid} <= {process.pid for process in sandbox.commands.list()}
        assert self.count(sandbox) >= self.seen
        before = self.count(sandbox)
        eventually(lambda: self.count(sandbox) > before)
        self.seen = before


def all_items(paginator: Any, of: Callable[[Any], Any] = lambda item: item) -> list[Any]:
    """Return the items of all pages."""
    found: list[Any] = []
    while paginator.has_next:
        found.extend(of(item) for item in paginator.next_items())
    return found
