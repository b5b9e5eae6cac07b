"""Timeouts and killing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from e2b import SandboxException, SandboxNotFoundException, TimeoutException

from support.surface import Surface
from support.waiting import eventually

Create = Callable[..., Any]

KILLED = "killed or reached its end of life|likely due to sandbox timeout"
"""The reason that newer and older clients give."""


def left(sandbox: Any) -> float:
    return float((sandbox.get_info().end_at - datetime.now(UTC)).total_seconds())


def state(sandbox: Any) -> str:
    try:
        return str(sandbox.get_info().state.value)
    except SandboxNotFoundException:
        return "gone"


@pytest.mark.parametrize("timeout", [60, 5000])
def test_a_timeout_can_be_shortened_and_extended(create: Create, timeout: int) -> None:
    sandbox = create(timeout=1000)
    sandbox.set_timeout(timeout)
    assert left(sandbox) == pytest.approx(timeout, abs=10)


def test_a_timeout_can_be_set_by_id(api: Surface, create: Create) -> None:
    sandbox = create()
    api.Sandbox.set_timeout(sandbox.sandbox_id, 4000)
    assert left(sandbox) == pytest.approx(4000, abs=10)


def test_a_sandbox_is_gone_after_its_timeout(create: Create) -> None:
    sandbox = create(timeout=1)
    eventually(lambda: not sandbox.is_running())
    eventually(lambda: state(sandbox) == "gone")


def test_a_sandbox_that_pauses_on_timeout_is_paused_then(create: Create) -> None:
    sandbox = create(timeout=1, lifecycle={"on_timeout": "pause"})
    eventually(lambda: state(sandbox) == "paused")
    assert not sandbox.is_running()


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_that_is_over_ends_a_sandbox_now(create: Create, timeout: int) -> None:
    sandbox = create()
    sandbox.set_timeout(timeout)
    eventually(lambda: state(sandbox) == "gone")


def test_a_timeout_that_is_over_pauses_a_sandbox_that_pauses_on_timeout(create: Create) -> None:
    sandbox = create(lifecycle={"on_timeout": "pause"})
    sandbox.set_timeout(0)
    eventually(lambda: state(sandbox) == "paused")


def test_a_timeout_of_centuries_is_refused(create: Create) -> None:
    sandbox = create(timeout=1000)
    with pytest.raises(SandboxException, match="^400: "):
        sandbox.set_timeout(10**30)
    assert left(sandbox) == pytest.approx(1000, abs=60)


def test_a_paused_sandbox_has_no_timeout(create: Create) -> None:
    sandbox = create()
    sandbox.pause()
    with pytest.raises(SandboxNotFoundException):
        sandbox.set_timeout(100)


def test_the_timeout_of_an_unknown_sandbox_cannot_be_set(api: Surface, unique: str) -> None:
    with pytest.raises(SandboxNotFoundException):
        api.Sandbox.set_timeout(unique, 100)


def test_a_killed_sandbox_does_not_run(create: Create) -> None:
    sandbox = create()
    assert sandbox.is_running()
    assert sandbox.kill() is True
    assert sandbox.is_running() is False
    assert state(sandbox) == "gone"


def test_killing_twice_tells_that_there_was_nothing_to_kill(create: Create) -> None:
    sandbox = create()
    assert sandbox.kill() is True
    assert sandbox.kill() is False


def test_a_sandbox_can_be_killed_by_id(api: Surface, create: Create) -> None:
    sandbox = create()
    assert api.Sandbox.kill(sandbox.sandbox_id) is True
    assert not sandbox.is_running()


def test_an_unknown_sandbox_cannot_be_killed(api: Surface, unique: str) -> None:
    assert api.Sandbox.kill(unique) is False


def test_a_paused_sandbox_can_be_killed(api: Surface, create: Create) -> None:
    sandbox = create()
    sandbox.pause()
    assert sandbox.kill() is True
    assert state(sandbox) == "gone"
    with pytest.raises(SandboxNotFoundException):
        api.Sandbox.connect(sandbox.sandbox_id)


def test_a_kill_during_a_command_is_reported_as_the_end_of_the_sandbox(api: Surface, create: Create) -> None:
    sandbox = create()
    run = api.start(sandbox, "echo begun; sleep 600", timeout=0)
    run.says("begun")
    sandbox.kill()
    with pytest.raises(TimeoutException, match=KILLED):
        run.wait()


def test_a_kill_during_a_command_in_the_foreground_is_reported_as_the_end_of_the_sandbox(
    create: Create,
) -> None:
    sandbox = create()
    killer = threading.Timer(1, sandbox.kill)
    killer.start()
    with pytest.raises(TimeoutException, match=KILLED):
        sandbox.commands.run("sleep 600", timeout=0)
    killer.join()


def test_the_timeout_during_a_command_is_reported_as_the_end_of_the_sandbox(api: Surface, create: Create) -> None:
    sandbox = create(timeout=2)
    with pytest.raises(TimeoutException, match=KILLED):
        api.start(sandbox, "sleep 600", timeout=0).wait()


def test_a_command_in_a_killed_sandbox_is_refused(create: Create) -> None:
    sandbox = create()
    sandbox.kill()
    with pytest.raises(TimeoutException, match="The sandbox was not found"):
        sandbox.commands.run("true")


def test_a_file_of_a_killed_sandbox_cannot_be_read_or_written(create: Create) -> None:
    sandbox = create()
    sandbox.kill()
    with pytest.raises(TimeoutException, match="The sandbox was not found"):
        sandbox.files.read("/etc/hostname")
    with pytest.raises(TimeoutException, match="The sandbox was not found"):
        sandbox.files.write("note", "text")


def test_a_kill_during_a_watch_ends_it(api: Surface, create: Create) -> None:
    sandbox = create()
    with api.watch(sandbox, "/home/user") if not api.is_async else exits(api, sandbox) as watch:
        sandbox.kill()
        if api.is_async:
            error = eventually(lambda: watch.exits)[0]
            assert isinstance(error, TimeoutException)
        else:
            with pytest.raises(TimeoutException, match="The sandbox was not found"):
                watch.handle.get_new_events()
            watch.stop = lambda: None


class exits:
    """A watch of the asynchronous client that keeps the reason of its end."""

    def __init__(self, api: Surface, sandbox: Any) -> None:
        self.exits: list[Any] = []
        self.handle = sandbox.files.watch_dir("/home/user", lambda event: None, on_exit=self.exits.append)

    def __enter__(self) -> exits:
        return self

    def __exit__(self, *error: object) -> None:
        self.handle.stop()
