"""Pausing and resuming."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from e2b import InvalidArgumentException, SandboxNotFoundException, TimeoutException

from support.guest import Work, boot_id, output, serve, visit
from support.surface import Surface
from support.waiting import eventually

Create = Callable[..., Any]


def is_paused(sandbox: Any) -> bool:
    return bool(sandbox.get_info().state.value == "paused")


def test_a_pause_is_reported_and_shown(create: Create) -> None:
    sandbox = create()
    assert sandbox.pause() is True
    assert is_paused(sandbox)
    assert sandbox.is_running() is False


def test_pausing_twice_tells_that_it_was_paused(create: Create) -> None:
    sandbox = create()
    assert sandbox.pause() is True
    assert sandbox.pause() is False


def test_a_sandbox_can_be_paused_by_id(api: Surface, create: Create) -> None:
    sandbox = create()
    assert api.Sandbox.pause(sandbox.sandbox_id) is True
    assert is_paused(sandbox)


def test_the_former_name_of_pausing_works(api: Surface, create: Create) -> None:
    sandbox = create()
    assert sandbox.beta_pause() is True
    sandbox.connect()
    assert api.Sandbox.beta_pause(sandbox.sandbox_id) is True
    assert is_paused(sandbox)
    sandbox.connect()
    assert sandbox.beta_pause(keep_memory=False) is True
    sandbox.connect()
    assert api.Sandbox.beta_pause(sandbox.sandbox_id, keep_memory=True) is True


def test_pausing_an_unknown_sandbox_is_refused(api: Surface, unique: str) -> None:
    with pytest.raises(SandboxNotFoundException):
        api.Sandbox.pause(unique)


def test_pausing_a_killed_sandbox_is_refused(create: Create) -> None:
    sandbox = create()
    sandbox.kill()
    with pytest.raises(SandboxNotFoundException):
        sandbox.pause()


def test_a_paused_sandbox_does_not_run_commands(create: Create) -> None:
    sandbox = create()
    sandbox.pause()
    with pytest.raises(TimeoutException, match="The sandbox was not found"):
        sandbox.commands.run("true")


def test_processes_variables_and_deleted_files_survive_a_pause(api: Surface, create: Create) -> None:
    sandbox = create()
    work = Work(api, sandbox)
    sandbox.pause()
    sandbox.connect()
    work.continues(sandbox)


def test_processes_variables_and_deleted_files_survive_an_automatic_pause(api: Surface, create: Create) -> None:
    sandbox = create(lifecycle={"on_timeout": "pause"})
    work = Work(api, sandbox)
    sandbox.set_timeout(1)
    eventually(lambda: is_paused(sandbox))
    sandbox.connect()
    work.continues(sandbox)
    assert sandbox.get_info().lifecycle["on_timeout"] == "pause"


def test_the_boot_id_is_the_same_after_a_pause_with_memory(create: Create) -> None:
    sandbox = create()
    before = boot_id(sandbox)
    sandbox.pause(keep_memory=True)
    sandbox.connect()
    assert boot_id(sandbox) == before


def test_a_pause_of_files_alone_keeps_files_and_boots_again(api: Surface, create: Create) -> None:
    sandbox = create()
    before = boot_id(sandbox)
    sandbox.files.write("note", "kept")
    pid = sandbox.commands.run("sleep 600", background=True, timeout=0).pid
    sandbox.pause(keep_memory=False)
    sandbox.connect()
    assert boot_id(sandbox) != before
    assert sandbox.files.read("note") == "kept"
    assert pid not in {process.pid for process in sandbox.commands.list()}
    assert api.Sandbox.pause(sandbox.sandbox_id, keep_memory=False) is True


@pytest.mark.needs("e2b.Sandbox.pause(mode)")
@pytest.mark.parametrize("mode", ["full", "filesystem"])
def test_what_a_pause_keeps_can_be_named(api: Surface, create: Create, mode: str) -> None:
    sandbox = create()
    before = boot_id(sandbox)
    sandbox.pause(mode=mode)
    sandbox.connect()
    assert (boot_id(sandbox) == before) is (mode == "full")
    assert api.Sandbox.pause(sandbox.sandbox_id, mode=mode) is True


@pytest.mark.needs("e2b.Sandbox.beta_pause(mode)")
@pytest.mark.parametrize("by_id", [True, False])
def test_the_former_name_of_pausing_takes_the_same_options(api: Surface, create: Create, by_id: bool) -> None:
    sandbox = create()
    pause = (lambda **options: api.Sandbox.beta_pause(sandbox.sandbox_id, **options)) if by_id else sandbox.beta_pause
    assert pause(mode="filesystem") is True
    sandbox.connect()
    assert pause(keep_memory=True) is True
    assert is_paused(sandbox)


@pytest.mark.needs("e2b.Sandbox.pause(strict)")
def test_a_strict_pause_of_a_healthy_sandbox_works(api: Surface, create: Create) -> None:
    sandbox = create()
    assert sandbox.pause(strict=True) is True
    sandbox.connect()
    assert api.Sandbox.pause(sandbox.sandbox_id, strict=True) is True


@pytest.mark.needs("e2b.Sandbox.beta_pause[class](strict)")
def test_the_former_name_of_pausing_can_be_strict(api: Surface, create: Create) -> None:
    sandbox = create()
    assert api.Sandbox.beta_pause(sandbox.sandbox_id, strict=True) is True
    sandbox.connect()
    assert sandbox.beta_pause(strict=True) is True


@pytest.mark.needs("e2b.Sandbox.pause(mode)")
def test_a_mode_that_does_not_exist_is_refused(create: Create) -> None:
    sandbox = create()
    with pytest.raises(InvalidArgumentException):
        sandbox.pause(mode="half")
    assert sandbox.is_running()


def test_a_timeout_that_keeps_files_alone_boots_again(create: Create) -> None:
    sandbox = create(timeout=2, lifecycle={"on_timeout": {"action": "pause", "keep_memory": False}})
    before = boot_id(sandbox)
    sandbox.files.write("note", "kept")
    eventually(lambda: is_paused(sandbox))
    sandbox.connect()
    assert boot_id(sandbox) != before
    assert sandbox.files.read("note") == "kept"


def test_the_token_of_a_sandbox_is_the_same_after_a_pause(api: Surface, create: Create) -> None:
    sandbox = create()
    sandbox.files.write("note", "text")
    url = sandbox.download_url("note")
    sandbox.pause()
    assert api.Sandbox.connect(sandbox.sandbox_id).download_url("note") == url


def test_settings_tokens_and_timeouts_hold_after_ten_cycles(api: Surface, create: Create) -> None:
    sandbox = create(
        metadata={"keep": "me"},
        envs={"KEPT": "variable"},
        lifecycle={"on_timeout": "pause", "auto_resume": False},
        network={"allow_public_traffic": False},
    )
    before, token = sandbox.get_info(), sandbox.traffic_access_token
    url = sandbox.download_url("note")
    work = Work(api, sandbox)
    for cycle in range(10):
        sandbox.files.write("note", f"cycle {cycle}")
        sandbox.pause()
        same = sandbox.connect(timeout=500 + cycle)
        info = same.get_info()
        assert (info.end_at - info.started_at).total_seconds() == pytest.approx(500 + cycle, abs=2)
        assert (info.metadata, info.lifecycle, info.network) == (
            before.metadata,
            before.lifecycle,
            before.network,
        )
        assert info.template_id == before.template_id
        assert (same.traffic_access_token, same.download_url("note")) == (token, url)
        assert sandbox.files.read("note") == f"cycle {cycle}"
        assert output(sandbox, "echo $KEPT") == "variable"
        work.continues(sandbox)


def test_a_hundred_cycles_keep_every_file_and_variable(api: Surface, create: Create) -> None:
    if api.is_async:
        # The server does the same for both clients; a hundred cycles of one of them are enough.
        cycles = 5
    else:
        cycles = 100
    sandbox = create(timeout=3600)
    work = Work(api, sandbox)
    sums: dict[str, str] = {}
    for cycle in range(cycles):
        content = hashlib.sha512(str(cycle).encode()).digest() * 100
        path = f"/home/user/cycles/{cycle}"
        sandbox.files.write(path, content)
        sums[path] = hashlib.sha256(content).hexdigest()
        work.repl.again(sandbox).do(f"value[{cycle}] = {cycle}")
        assert sandbox.pause() is True
        sandbox.connect(timeout=3600)
    work.continues(sandbox)
    lines = output(sandbox, "sha256sum /home/user/cycles/*").splitlines()
    assert {path: digest for digest, path in (line.split() for line in lines)} == sums
    assert work.repl.again(sandbox).ask(f"sum(value[n] for n in range({cycles}))") == str(sum(range(cycles)))


def test_a_request_wakes_a_sandbox_that_resumes_by_itself(create: Create) -> None:
    sandbox = create(lifecycle={"on_timeout": "pause", "auto_resume": True})
    serve(sandbox)
    before = boot_id(sandbox)
    sandbox.pause()
    assert is_paused(sandbox)
    assert visit(sandbox, 8000).status_code == 200
    assert sandbox.get_info().state.value == "running"
    assert boot_id(sandbox) == before


def test_a_command_wakes_a_sandbox_that_resumes_by_itself(create: Create) -> None:
    sandbox = create(lifecycle={"on_timeout": "pause", "auto_resume": True})
    sandbox.pause()
    assert output(sandbox, "echo awake") == "awake"
    assert sandbox.get_info().state.value == "running"


def test_the_question_whether_it_runs_wakes_a_sandbox_that_resumes_by_itself(create: Create) -> None:
    sandbox = create(lifecycle={"on_timeout": "pause", "auto_resume": True})
    sandbox.pause()
    assert sandbox.is_running() is True


def test_a_sandbox_that_woke_by_itself_lives_for_at_least_five_minutes(create: Create) -> None:
    sandbox = create(timeout=100, lifecycle={"on_timeout": "pause", "auto_resume": True})
    sandbox.pause()
    output(sandbox, "true")
    info = sandbox.get_info()
    assert (info.end_at - info.started_at).total_seconds() == pytest.approx(300, abs=5)


def test_a_sandbox_pauses_and_wakes_by_itself_again_and_again(create: Create) -> None:
    sandbox = create(lifecycle={"on_timeout": "pause", "auto_resume": True})
    for cycle in range(3):
        sandbox.set_timeout(0)
        eventually(lambda: is_paused(sandbox))
        assert output(sandbox, f"echo {cycle}") == str(cycle)
        assert sandbox.get_info().lifecycle == {"on_timeout": "pause", "auto_resume": True}


def test_a_request_does_not_wake_a_sandbox_that_does_not_resume_by_itself(create: Create) -> None:
    sandbox = create()
    serve(sandbox)
    sandbox.pause()
    answer = visit(sandbox, 8000)
    assert answer.status_code == 502
    assert answer.json() == {
        "sandboxId": sandbox.sandbox_id,
        "message": "The sandbox was not found",
        "code": 502,
    }
    assert is_paused(sandbox)


def test_a_command_during_a_pause_continues_and_its_later_output_arrives(api: Surface, create: Create) -> None:
    sandbox = create()
    run = api.start(sandbox, "echo begun; read line; echo got $line", stdin=True, timeout=0)
    run.says("begun")
    sandbox.pause()
    sandbox.connect()
    again = api.connect(sandbox, run.pid, timeout=0)
    sandbox.commands.send_stdin(run.pid, "input\n")
    again.says("got input")
    assert again.wait().exit_code == 0
