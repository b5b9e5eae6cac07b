"""Runs the command line of E2B, plainly or in a terminal, and records what was run."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[1] / "node_modules/.bin/e2b"
DEADLINE_SECS = 60.0
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[a-zA-Z]|\][^\x07]*\x07|[=>()][A-Z0-9]?)")


@dataclass
class Ran:
    """A program that has ended."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return ESCAPES.sub("", self.out + self.err)

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Cli:
    """The command line, with a home directory of its own."""

    home: Path
    records: list[dict[str, Any]] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        node = os.environ.get("E2B_CASES_NODE", "")
        path = f"{node}:{os.environ['PATH']}"
        return {
            **os.environ,
            "PATH": path,
            "HOME": str(self.home),
            "NO_UPDATE_NOTIFIER": "1",
            "NO_COLOR": "1",
        }

    def run(self, *args: str, stdin: str = "", cwd: Path | None = None, **env: str) -> Ran:
        """Run a command to its end, without a terminal."""
        ran = subprocess.run(
            [PROGRAM, *args],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd or self.home,
            env=self.environment() | env,
            timeout=DEADLINE_SECS * 2,
        )
        result = Ran(ran.returncode, ran.stdout, ran.stderr)
        self.record(list(args), result.code, result.all)
        return result

    def ok(self, *args: str, **options: Any) -> Ran:
        """Run a command that must succeed."""
        ran = self.run(*args, **options)
        assert ran.code == 0, ran.all
        return ran

    def terminal(self, *args: str, cwd: Path | None = None) -> Terminal:
        """Start a command in a terminal."""
        return Terminal(self, list(args), cwd or self.home)

    def record(self, args: list[str], code: int, said: str) -> None:
        self.records.append({"args": args, "code": code, "said": said[-2000:]})


class Terminal:
    """A command in a terminal, with all output so far."""

    def __init__(self, cli: Cli, args: list[str], cwd: Path) -> None:
        self.cli = cli
        self.args = args
        self.text = ""
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execve(PROGRAM, [str(PROGRAM), *args], cli.environment() | {"TERM": "xterm-256color"})

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def shows(self, text: str) -> None:
        """Wait until the screen has shown a text."""
        deadline = time.monotonic() + DEADLINE_SECS
        while text not in ESCAPES.sub("", self.text):
            assert time.monotonic() < deadline, f"{text!r} is not in {self.text!r}"
            if not self._receive():
                raise AssertionError(f"{text!r} is not in all of {self.text!r}")

    def _receive(self) -> bool:
        """Receive some output; return false at the end."""
        try:
            if select.select([self.descriptor], [], [], 0.2)[0]:
                data = os.read(self.descriptor, 65536)
                self.text += data.decode(errors="replace")
                return bool(data)
        except OSError:
            return False
        return True

    def wait(self) -> int:
        """Wait for the end, and return the exit code."""
        deadline = time.monotonic() + DEADLINE_SECS
        while self._receive():
            assert time.monotonic() < deadline, f"it did not end: {self.text!r}"
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        code = os.waitstatus_to_exitcode(status)
        self.cli.record(self.args, code, ESCAPES.sub("", self.text))
        return code

    def end(self) -> None:
        if self.pid != 0:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
            self.pid = 0
            self.cli.record(self.args, -9, ESCAPES.sub("", self.text))
        os.close(self.descriptor)
