"""Fixtures. The cases need E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL of a server."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2b import Sandbox

from support.cli import Cli

RECORDS: list[dict[str, Any]] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    if "E2B_RECORDS" in os.environ and RECORDS:
        directory = Path(os.environ["E2B_RECORDS"])
        directory.mkdir(parents=True, exist_ok=True)
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        (directory / f"cli-{worker}.json").write_text(json.dumps(RECORDS, indent=1))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write how many cases passed."""
    if "E2B_SUMMARY" in os.environ:
        passed = len(terminalreporter.stats.get("passed", []))
        Path(os.environ["E2B_SUMMARY"]).write_text(f"@e2b/cli: {passed} cases\n")


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path)
    yield cli
    RECORDS.extend(cli.records)


@pytest.fixture
def unique() -> str:
    """A name that nothing else has."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def create() -> Iterator[Callable[..., Sandbox]]:
    """Creates sandboxes that are killed at the end of the case."""
    made: list[Sandbox] = []

    def create(*args: Any, **kwargs: Any) -> Sandbox:
        made.append(Sandbox.create(*args, **({"timeout": 600} | kwargs)))
        return made[-1]

    yield create
    for sandbox in made:
        sandbox.kill()


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox for cases that only use its files and processes."""
    with Sandbox.create(timeout=3600) as sandbox:
        yield sandbox
