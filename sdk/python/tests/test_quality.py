"""Types, format and lint of the package, the tests and the examples."""

from __future__ import annotations

import subprocess
import sys

import pytest
from generated import PROJECT


@pytest.mark.parametrize(
    "command", [["mypy"], ["ruff", "check"], ["ruff", "format", "--check"]], ids=" ".join
)
def test_the_sources_pass(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
