"""Fixtures. The cases need E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL of a server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pytest

from support import options
from support.blocking import Loop
from support.recording import Record, install
from support.surface import Surface

RECORD = Record()
OPTIONS = {name for member in options.members() for name in [member.name, *member.options()]}
"""The methods and options that the installed client has."""

install(RECORD)

TIMEOUT_SECS = 600


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of what an older client does not have."""

    def is_possible(item: pytest.Item) -> bool:
        return all(mark.args[0] in OPTIONS for mark in item.iter_markers("needs"))

    left_out = [item for item in items if not is_possible(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if is_possible(item)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if "E2B_RECORDS" in os.environ:
        RECORD.write(Path(os.environ["E2B_RECORDS"]), os.environ.get("PYTEST_XDIST_WORKER", "main"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write how many cases passed with each of the two clients."""
    if "E2B_SUMMARY" not in os.environ:
        return
    passed = terminalreporter.stats.get("passed", [])
    counts = {name: sum(f"[{name}" in report.nodeid for report in passed) for name in ("sync", "async")}
    both = len(passed) - sum(counts.values())
    line = f"e2b {version('e2b')} for Python: {counts['sync']} cases sync, {counts['async']} async, {both} of both\n"
    Path(os.environ["E2B_SUMMARY"]).write_text(line)


@pytest.fixture(scope="session", autouse=True)
def server() -> str:
    """The address of the control API."""
    missing = [name for name in ("E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL") if name not in os.environ]
    if missing:
        pytest.fail(f"set {', '.join(missing)} to those of a server with the template 'base'")
    return os.environ["E2B_API_URL"]


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(scope="session", params=["sync", "async"])
def api(request: pytest.FixtureRequest, loop: Loop) -> Surface:
    """The client that a case runs with. Both run the same cases."""
    return Surface(cast("str", request.param), loop)


@pytest.fixture(scope="session")
def sandbox(api: Surface) -> Iterator[Any]:
    """A sandbox for cases that only use its files and processes."""
    with api.Sandbox.create(timeout=3600, metadata={"case": "shared"}) as sandbox:
        yield sandbox


@pytest.fixture
def create(api: Surface) -> Iterator[Callable[..., Any]]:
    """Creates sandboxes that are killed at the end of the case."""
    created: list[Any] = []

    def make(*args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("timeout", TIMEOUT_SECS)
        sandbox = api.Sandbox.create(*args, **kwargs)
        created.append(sandbox)
        return sandbox

    make.keep = created.append  # type: ignore[attr-defined]
    yield make
    for sandbox in created:
        sandbox.kill()


@pytest.fixture
def unique() -> str:
    """A name that nothing else has."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def home(sandbox: Any, unique: str) -> str:
    """A new directory in the shared sandbox."""
    path = f"/home/user/{unique}"
    sandbox.files.make_dir(path)
    return path
