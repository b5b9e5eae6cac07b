"""The code blocks of the README and the examples are run, and their output is compared."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from generated import PROJECT

from dormouse import Client

README = PROJECT / "README.md"
EXAMPLES = sorted((PROJECT / "examples").glob("*.py"))

pytestmark = pytest.mark.usefixtures("daemon")


def blocks() -> list[tuple[str, str | None]]:
    """Return the Python blocks of the README, each with the output that follows it."""
    found: list[tuple[str, str | None]] = []
    for kind, text in re.findall(
        r"^```(python|text)\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL
    ):
        if kind == "python":
            found.append((text, None))
        else:
            found[-1] = (found[-1][0], text)
    return found


def test_the_readme_tells_the_truth() -> None:
    names: dict[str, Any] = {"__name__": "readme"}
    try:
        for code, expected in blocks():
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                exec(compile(code, str(README), "exec"), names)
            assert expected is None or shown.getvalue() == expected
    finally:
        with Client() as client:
            for environment in client.environments.list():
                if (environment.key or "").startswith("readme"):
                    client.environments.remove(environment.id)
            for sandbox in client.sandboxes.list(name="readme", labels={"from": "readme"}):
                sandbox.terminate()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: str(path.stem))
def test_an_example_shows_what_it_should(example: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "src")}
    done = subprocess.run(
        [sys.executable, str(example)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == example.with_suffix(".out").read_text()
    assert done.returncode == 0
