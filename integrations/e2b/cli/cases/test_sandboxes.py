"""Commands for sandboxes."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable

import pytest
from e2b import Sandbox

from support.cli import Cli

Create = Callable[..., Sandbox]


def created(text: str) -> Sandbox:
    """Return the sandbox that a command has named."""
    found = re.search(r"\b([a-z0-9]{18,})\b", text)
    assert found, text
    return Sandbox.connect(found.group(1))


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_sandbox_is_created_without_a_terminal(cli: Cli) -> None:
    sandbox = created(cli.ok("sandbox", "create", "base", "--detach", "--timeout", "500").all)
    try:
        info = sandbox.get_info()
        assert info.name == "base"
        assert 300 <= (info.end_at - info.started_at).total_seconds() <= 501
    finally:
        sandbox.kill()


def test_a_sandbox_is_created_with_its_lifecycle(cli: Cli) -> None:
    ran = cli.ok("sbx", "cr", "-d", "--lifecycle.ontimeout", "pause", "--lifecycle.autoresume")
    sandbox = created(ran.all)
    try:
        assert sandbox.get_info().lifecycle == {"on_timeout": "pause", "auto_resume": True}
    finally:
        sandbox.kill()


def test_a_sandbox_is_created_with_a_terminal_and_killed_after_it(cli: Cli) -> None:
    with cli.terminal("sandbox", "create", "base", "-u", "root", "-c", "/tmp", "-e", "SHOWN=yes") as terminal:
        terminal.shows("#")
        terminal.type("echo at-$PWD-$SHOWN-$E2B_SANDBOX_ID-\n")
        terminal.shows("at-/tmp-yes-")
        id = re.search(r"at-/tmp-yes-([a-z0-9]+)-", terminal.text)
        terminal.type("exit\n")
        assert terminal.wait() == 0, terminal.text
    assert id
    eventually(lambda: cli.run("sandbox", "info", id.group(1)).code != 0)


def test_a_terminal_is_connected_to_a_running_sandbox(cli: Cli, sandbox: Sandbox) -> None:
    arguments = ["--user", "root", "--cwd", "/tmp", "--env", "SHOWN=yes"]
    with cli.terminal("sandbox", "connect", *arguments, sandbox.sandbox_id) as terminal:
        terminal.shows("#")
        terminal.type("echo at-$PWD-$(whoami)-$SHOWN\n")
        terminal.shows("at-/tmp-root-yes")
        terminal.type("exit\n")
        assert terminal.wait() == 0, terminal.text
    assert sandbox.is_running()


def test_a_command_is_executed(cli: Cli, sandbox: Sandbox) -> None:
    ran = cli.ok("sandbox", "exec", sandbox.sandbox_id, "echo", "out")
    assert ran.out == "out\n"


def test_a_command_is_executed_with_its_options(cli: Cli, sandbox: Sandbox) -> None:
    command = ["sh", "-c", "echo $(whoami) $PWD $SHOWN"]
    ran = cli.ok(
        "sandbox",
        "exec",
        "--user",
        "root",
        "--cwd",
        "/tmp",
        "--env",
        "SHOWN=yes",
        sandbox.sandbox_id,
        *command,
    )
    assert ran.out == "root /tmp yes\n"


def test_the_exit_code_of_a_command_is_that_of_the_program(cli: Cli, sandbox: Sandbox) -> None:
    ran = cli.run("sandbox", "exec", sandbox.sandbox_id, "sh", "-c", "echo problem >&2; exit 7")
    assert ran.code == 7
    assert ran.err.startswith("problem\n")


def test_input_is_passed_to_a_command(cli: Cli, sandbox: Sandbox) -> None:
    assert cli.ok("sandbox", "exec", sandbox.sandbox_id, "wc", "-c", stdin="12345").out.strip() == "5"


def test_a_command_in_the_background_continues(cli: Cli, sandbox: Sandbox, unique: str) -> None:
    cli.ok("sandbox", "exec", "--background", sandbox.sandbox_id, "sh", "-c", f"sleep 1; touch /tmp/{unique}")
    eventually(lambda: sandbox.files.exists(f"/tmp/{unique}"))


def test_a_kill_during_a_command_ends_it(cli: Cli, create: Create) -> None:
    sandbox = create()
    killer = threading.Timer(2, sandbox.kill)
    killer.start()
    assert cli.run("sandbox", "exec", sandbox.sandbox_id, "sleep", "600").code != 0
    killer.join()


def test_information_is_shown(cli: Cli, create: Create, unique: str) -> None:
    sandbox = create(metadata={"mark": unique})
    pretty = cli.ok("sandbox", "info", sandbox.sandbox_id).all
    assert sandbox.sandbox_id in pretty
    assert unique in pretty
    info = cli.ok("sandbox", "info", "--format", "json", sandbox.sandbox_id).json()
    assert info["sandboxId"] == sandbox.sandbox_id


def test_information_on_an_unknown_sandbox_is_refused(cli: Cli, unique: str) -> None:
    ran = cli.run("sandbox", "info", unique)
    assert ran.code != 0
    assert "wasn't found" in ran.all


def test_sandboxes_are_listed_and_filtered(cli: Cli, create: Create, unique: str) -> None:
    first, second = create(metadata={"mark": unique}), create(metadata={"mark": unique})
    second.pause()

    def ids(*args: str) -> list[str]:
        listed = cli.ok("sandbox", "list", "--format", "json", "--metadata", f"mark={unique}", *args).json()
        return [one["sandboxId"] for one in listed]

    assert ids() == [first.sandbox_id]
    assert ids("--state", "paused") == [second.sandbox_id]
    assert ids("--state", "running,paused", "--order", "asc") == [first.sandbox_id, second.sandbox_id]
    assert ids("--state", "running,paused", "--order", "desc", "--limit", "1") == [second.sandbox_id]
    assert ids("--template", "base") == [first.sandbox_id]
    assert ids("--template", "nothing-of-the-kind") == []
    assert ids("--started-after", "2100-01-01T00:00:00Z") == []
    assert first.sandbox_id in cli.ok("sandbox", "ls").all


def test_a_sandbox_is_paused_and_resumed(cli: Cli, create: Create) -> None:
    sandbox = create()
    cli.ok("sandbox", "pause", sandbox.sandbox_id)
    assert sandbox.get_info().state.value == "paused"
    cli.ok("sandbox", "resume", sandbox.sandbox_id)
    assert sandbox.get_info().state.value == "running"


def test_pausing_twice_is_said(cli: Cli, create: Create) -> None:
    sandbox = create()
    sandbox.pause()
    assert "paused" in cli.run("sandbox", "pause", sandbox.sandbox_id).all


def test_sandboxes_are_killed(cli: Cli, create: Create, unique: str) -> None:
    first, second = create(), create()
    cli.ok("sandbox", "kill", first.sandbox_id, second.sandbox_id)
    assert not first.is_running()
    assert not second.is_running()
    ran = cli.run("sandbox", "kill", unique)
    assert "wasn't found" in ran.all or "not found" in ran.all


def test_sandboxes_with_metadata_are_killed(cli: Cli, create: Create, unique: str) -> None:
    running, paused, other = create(metadata={"mark": unique}), create(metadata={"mark": unique}), create()
    paused.pause()
    cli.ok("sandbox", "kill", "--all", "--metadata", f"mark={unique}", "--state", "paused")
    assert running.is_running()
    cli.ok("sandbox", "kill", "-a", "-m", f"mark={unique}")
    assert not running.is_running()
    assert other.is_running()


@pytest.mark.parametrize("options", [[], ["--format", "json"], ["--level", "DEBUG", "--loggers", "process"]])
def test_logs_are_shown(cli: Cli, sandbox: Sandbox, options: list[str]) -> None:
    cli.ok("sandbox", "logs", *options, sandbox.sandbox_id)


def test_logs_are_followed(cli: Cli, sandbox: Sandbox) -> None:
    with cli.terminal("sandbox", "logs", "--follow", sandbox.sandbox_id) as terminal:
        terminal.shows("Logs for sandbox")


def test_metrics_are_shown(cli: Cli, sandbox: Sandbox) -> None:
    eventually(lambda: bool(sandbox.get_metrics()))
    lines = cli.ok("sandbox", "metrics", "--format", "json", sandbox.sandbox_id).out.strip().splitlines()
    assert "cpuCount" in json.loads(lines[0])
    assert "CPU" in cli.ok("sandbox", "metrics", sandbox.sandbox_id).all


def test_metrics_are_followed(cli: Cli, sandbox: Sandbox) -> None:
    with cli.terminal("sandbox", "metrics", "--follow", sandbox.sandbox_id) as terminal:
        terminal.shows("CPU")


def test_snapshots_are_made_listed_and_deleted(cli: Cli, create: Create, unique: str) -> None:
    sandbox = create()
    sandbox.files.write("note", "kept")
    assert unique in cli.ok("sandbox", "snapshot", "create", "--name", unique, sandbox.sandbox_id).all
    (listed,) = cli.ok("sandbox", "snapshot", "list", "--format", "json", sandbox.sandbox_id).json()
    id = listed["snapshotId"]
    assert create(id).files.read("note") == "kept"
    named = cli.ok("sandbox", "snapshot", "list", "--name", unique, "--limit", "5", "-f", "json").json()
    assert [one["snapshotId"] for one in named] == [id]
    assert unique in cli.ok("sandbox", "snapshot", "ls").all
    cli.ok("sandbox", "snapshot", "delete", id)
    assert cli.ok("sandbox", "snapshot", "list", "--format", "json", sandbox.sandbox_id).json() == []


def test_a_wrong_key_is_refused(cli: Cli) -> None:
    ran = cli.run("sandbox", "list", E2B_API_KEY="e2b_" + "0" * 40)
    assert ran.code != 0
    assert "401" in ran.all or "nauthorized" in ran.all


def test_a_missing_key_is_named(cli: Cli) -> None:
    ran = cli.run("sandbox", "list", E2B_API_KEY="")
    assert ran.code != 0
    assert "logged in" in ran.all or "API key" in ran.all
