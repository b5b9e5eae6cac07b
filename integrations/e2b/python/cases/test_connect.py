"""Connecting to running and paused sandboxes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from e2b import SandboxException, SandboxNotFoundException

from support.guest import Work, boot_id, output
from support.surface import Surface

Create = Callable[..., Any]


def left(sandbox: Any) -> float:
    """Return how many seconds a sandbox still lives."""
    return float((sandbox.get_info().end_at - datetime.now(UTC)).total_seconds())


def test_connecting_to_a_running_sandbox_by_its_id_gives_the_same_one(api: Surface, create: Create) -> None:
    sandbox = create()
    sandbox.files.write("note", "here")
    same = api.Sandbox.connect(sandbox.sandbox_id)
    assert same.sandbox_id == sandbox.sandbox_id
    assert same.files.read("note") == "here"


def test_connecting_only_extends_the_timeout_of_a_running_sandbox(api: Surface, create: Create) -> None:
    sandbox = create(timeout=1000)
    api.Sandbox.connect(sandbox.sandbox_id, timeout=50)
    assert left(sandbox) == pytest.approx(1000, abs=30)
    api.Sandbox.connect(sandbox.sandbox_id, timeout=2000)
    assert left(sandbox) == pytest.approx(2000, abs=30)


def test_connecting_without_a_timeout_extends_to_five_minutes(api: Surface, create: Create) -> None:
    sandbox = create(timeout=60)
    api.Sandbox.connect(sandbox.sandbox_id)
    assert left(sandbox) == pytest.approx(300, abs=10)


def test_connecting_to_a_paused_sandbox_resets_its_timeout_to_five_minutes(create: Create) -> None:
    sandbox = create(timeout=3000)
    sandbox.pause()
    sandbox.connect()
    assert left(sandbox) == pytest.approx(300, abs=10)


def test_connecting_to_a_paused_sandbox_sets_its_timeout_if_told(create: Create) -> None:
    sandbox = create(timeout=3000)
    sandbox.pause()
    sandbox.connect(timeout=1234)
    assert left(sandbox) == pytest.approx(1234, abs=10)


def test_an_object_connects_to_its_own_sandbox(create: Create) -> None:
    sandbox = create()
    work = boot_id(sandbox)
    sandbox.pause()
    same = sandbox.connect(timeout=100)
    assert same.sandbox_id == sandbox.sandbox_id
    assert boot_id(same) == work
    assert boot_id(sandbox) == work, "the object that paused it still works"


def test_connecting_by_id_resumes_a_paused_sandbox(api: Surface, create: Create) -> None:
    sandbox = create()
    api.Sandbox.pause(sandbox.sandbox_id)
    assert not sandbox.is_running()
    assert output(api.Sandbox.connect(sandbox.sandbox_id, timeout=100), "echo back") == "back"
    assert sandbox.get_info().state.value == "running"


def test_two_connects_at_once_restore_a_sandbox_once(api: Surface, create: Create) -> None:
    sandbox = create()
    work = Work(api, sandbox)
    sandbox.pause()
    with ThreadPoolExecutor(4) as pool:
        same = list(pool.map(lambda _: api.Sandbox.connect(sandbox.sandbox_id, timeout=500), range(4)))
    assert {one.sandbox_id for one in same} == {sandbox.sandbox_id}
    starts = {one.get_info().started_at for one in same}
    assert len(starts) == 1
    for one in same:
        work.continues(one)


def test_a_logger_is_told_of_connecting(api: Surface, create: Create, caplog: Any) -> None:
    sandbox = create()
    with caplog.at_level(logging.INFO, logger="cases.connect"):
        api.Sandbox.connect(sandbox.sandbox_id, logger=logging.getLogger("cases.connect"))
    assert any("connect" in record.getMessage() for record in caplog.records)


@pytest.mark.needs("e2b.Sandbox.connect(on_resume)")
def test_a_paused_sandbox_can_be_rebooted_instead(create: Create) -> None:
    sandbox = create()
    sandbox.files.write("note", "kept")
    first = boot_id(sandbox)
    sandbox.pause()
    sandbox.connect(on_resume="reboot", timeout=200)
    assert boot_id(sandbox) != first
    assert sandbox.files.read("note") == "kept"


@pytest.mark.needs("e2b.Sandbox.connect(on_resume)")
def test_a_paused_sandbox_is_restored_by_default_and_if_told(api: Surface, create: Create) -> None:
    sandbox = create()
    first = boot_id(sandbox)
    sandbox.pause()
    api.Sandbox.connect(sandbox.sandbox_id, on_resume="restore", timeout=200)
    assert boot_id(sandbox) == first


@pytest.mark.needs("e2b.Sandbox.connect(on_resume)")
def test_rebooting_a_running_sandbox_does_nothing(api: Surface, create: Create) -> None:
    sandbox = create()
    first = boot_id(sandbox)
    api.Sandbox.connect(sandbox.sandbox_id, on_resume="reboot")
    assert boot_id(sandbox) == first


def test_connecting_to_an_unknown_sandbox_says_so(api: Surface, unique: str) -> None:
    with pytest.raises(SandboxNotFoundException, match=f"Paused sandbox {unique} not found"):
        api.Sandbox.connect(unique)


def test_connecting_to_a_killed_sandbox_says_so(api: Surface, create: Create) -> None:
    sandbox = create()
    sandbox.kill()
    with pytest.raises(SandboxNotFoundException):
        api.Sandbox.connect(sandbox.sandbox_id)


@pytest.mark.parametrize("timeout", [pytest.param(0, marks=pytest.mark.needs("ApiParams.retries")), -5, 2**40])
def test_connecting_with_a_timeout_that_makes_no_sense_is_refused(api: Surface, sandbox: Any, timeout: int) -> None:
    with pytest.raises(SandboxException, match="^400: "):
        api.Sandbox.connect(sandbox.sandbox_id, timeout=timeout)


@pytest.mark.parametrize("name", ["with space", "a.b", "..", "%2F", "ü"])
def test_an_id_that_no_sandbox_can_have_is_unknown(api: Surface, name: str) -> None:
    with pytest.raises((SandboxNotFoundException, SandboxException)):
        api.Sandbox.connect(name)
