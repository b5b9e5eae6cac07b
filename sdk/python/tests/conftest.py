"""Fixtures. Tests of a daemon need DORM_SERVER and DORM_KEY, and an image with the tag `base`."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar, cast

import pytest
from blocking import Blocking, Loop

from dormouse import AsyncClient, Client, Sandbox

T = TypeVar("T")

DEADLINE_SECS = 60.0

Connect = Callable[..., Client]
"""Makes a client of the surface that is tested. It is closed at the end of the test."""


@pytest.fixture(scope="session")
def daemon() -> str:
    """The address of the daemon."""
    if "DORM_SERVER" not in os.environ or "DORM_KEY" not in os.environ:
        pytest.fail("set DORM_SERVER and DORM_KEY to those of a daemon with the image 'base'")
    return os.environ["DORM_SERVER"]


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(scope="session", params=["blocking", "async"])
def surface(request: pytest.FixtureRequest) -> str:
    """The client that is tested. Both run the same tests."""
    return cast("str", request.param)


@pytest.fixture(scope="session")
def new_client(surface: str, loop: Loop) -> Connect:
    def connect(*args: Any, **kwargs: Any) -> Client:
        if surface == "blocking":
            return Client(*args, **kwargs)
        return cast("Client", Blocking(loop, loop.run(lambda: AsyncClient(*args, **kwargs))))

    return connect


@pytest.fixture
def connect(new_client: Connect) -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(new_client(*args, **kwargs))


@pytest.fixture(scope="session")
def client(daemon: str, new_client: Connect) -> Iterator[Client]:
    with new_client() as client:
        yield client


@pytest.fixture(scope="session")
def sandbox(client: Client) -> Iterator[Sandbox]:
    """A sandbox for tests that only use its files and processes, each in a directory of its own."""
    with client.sandboxes.create("base", labels={"test": "shared"}) as sandbox:
        yield sandbox


@pytest.fixture
def directory(sandbox: Sandbox, unique: str) -> str:
    """A new directory in the shared sandbox."""
    sandbox.files.mkdir(f"/work/{unique}")
    return f"/work/{unique}"


@pytest.fixture
def unique() -> str:
    """A name that nothing else has."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def named(client: Client, unique: str) -> Iterator[Sandbox]:
    """A running sandbox with a name."""
    with client.sandboxes.create("base", name=unique) as sandbox:
        yield sandbox


def eventually(check: Callable[[], T]) -> T:
    """Return the first true result of a function, and fail if there is none in a minute."""
    deadline = time.monotonic() + DEADLINE_SECS
    while not (result := check()):
        assert time.monotonic() < deadline, "this did not happen within the deadline"
        time.sleep(0.05)
    return result
