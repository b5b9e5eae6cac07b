"""Terminals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    SandboxException,
)

from support.surface import Surface, Terminal
from support.waiting import eventually


@pytest.fixture
def terminal(api: Surface, sandbox: Any) -> Iterator[Terminal]:
    terminal = api.terminal(sandbox, timeout=0)
    yield terminal
    terminal.handle.kill()


def type_in(sandbox: Any, terminal: Terminal, text: str) -> None:
    sandbox.pty.send_stdin(terminal.pid, text.encode(), request_timeout=30)


def test_a_terminal_runs_a_shell(sandbox: Any, terminal: Terminal) -> None:
    type_in(sandbox, terminal, "echo $((6 * 7))-$TERM-$(whoami)-$PWD\n")
    terminal.shows("42-xterm-256color-user-/home/user")


def test_a_terminal_has_the_size_that_is_asked_for(api: Surface, sandbox: Any) -> None:
    terminal = api.terminal(sandbox, rows=33, cols=111)
    type_in(sandbox, terminal, "stty size; exit\n")
    terminal.shows("33 111")
    assert terminal.wait().exit_code == 0


def test_a_terminal_can_be_resized(sandbox: Any, terminal: Terminal) -> None:
    terminal.prompts()
    sandbox.pty.resize(terminal.pid, PtySize(rows=11, cols=22), request_timeout=30)
    type_in(sandbox, terminal, "stty size\n")
    terminal.shows("11 22")


def test_a_program_is_told_of_a_new_size(sandbox: Any, terminal: Terminal) -> None:
    type_in(sandbox, terminal, "trap 'echo resized $(stty size)' WINCH; echo rea''dy\n")
    terminal.shows("ready")
    terminal.prompts()
    sandbox.pty.resize(terminal.pid, PtySize(rows=12, cols=34))
    type_in(sandbox, terminal, "\n")
    terminal.shows("resized 12 34")


def test_a_terminal_has_user_directory_and_variables(api: Surface, sandbox: Any) -> None:
    terminal = api.terminal(sandbox, user="root", cwd="/tmp", envs={"SHOWN": "yes"}, timeout=60, request_timeout=30)
    type_in(sandbox, terminal, "echo $(whoami):$PWD:$SHOWN:$LANG; exit\n")
    terminal.shows("root:/tmp:yes:C.UTF-8")
    terminal.wait()


def test_the_exit_code_of_a_shell_is_reported(api: Surface, sandbox: Any) -> None:
    terminal = api.terminal(sandbox)
    type_in(sandbox, terminal, "exit 7\n")
    with pytest.raises(CommandExitException) as failed:
        terminal.wait()
    assert failed.value.exit_code == 7


def test_a_terminal_can_be_killed(api: Surface, sandbox: Any) -> None:
    terminal = api.terminal(sandbox, timeout=0)
    assert sandbox.pty.kill(terminal.pid, request_timeout=30) is True
    with pytest.raises(CommandExitException):
        terminal.wait()
    eventually(lambda: sandbox.pty.kill(terminal.pid) is False)


def test_an_unknown_terminal_cannot_be_killed(sandbox: Any) -> None:
    assert sandbox.pty.kill(4_000_000) is False


def test_a_terminal_can_be_connected_to(api: Surface, sandbox: Any, terminal: Terminal) -> None:
    type_in(sandbox, terminal, "state=kept; echo rea''dy\n")
    terminal.shows("ready")
    if api.is_async:
        terminal.handle.disconnect()
    again = api.connect_terminal(sandbox, terminal.pid, timeout=60, request_timeout=30)
    type_in(sandbox, again, "echo now-$state\n")
    again.shows("now-kept")


def test_an_unknown_terminal_cannot_be_connected_to(api: Surface, sandbox: Any) -> None:
    with pytest.raises(NotFoundException):
        api.connect_terminal(sandbox, 4_000_000).wait()


def test_control_characters_reach_the_program(sandbox: Any, terminal: Terminal) -> None:
    type_in(sandbox, terminal, "echo wai''ting; sleep 600\n")
    terminal.shows("waiting")
    type_in(sandbox, terminal, "\x03")
    type_in(sandbox, terminal, "echo inter''rupted\n")
    terminal.shows("interrupted")


def test_the_end_of_input_ends_a_shell(api: Surface, sandbox: Any) -> None:
    terminal = api.terminal(sandbox)
    terminal.shows("$")
    type_in(sandbox, terminal, "\x04")
    assert terminal.wait().exit_code == 0


def test_characters_of_all_kinds_are_shown(sandbox: Any, terminal: Terminal) -> None:
    type_in(sandbox, terminal, "printf '%s\\n' 'ü漢😀'\n")
    terminal.shows("ü漢😀")


def test_much_output_of_a_terminal_arrives(sandbox: Any, terminal: Terminal) -> None:
    type_in(sandbox, terminal, "seq 1 20000; echo fin''ished\n")
    text = terminal.shows("finished")
    assert all(f"\n{n}\r" in text for n in (1000, 10_000, 19_999))


@pytest.mark.needs("e2b.Pty.stream_input")
def test_a_stream_of_input_reaches_a_terminal(api: Surface, sandbox: Any, terminal: Terminal) -> None:
    api.input(sandbox.pty, terminal.pid, [b"echo strea", "med-$((1 + 1))\n"], timeout=60)
    terminal.shows("streamed-2")


def test_input_for_a_command_is_not_input_for_a_terminal(api: Surface, sandbox: Any, terminal: Terminal) -> None:
    with pytest.raises(SandboxException):
        sandbox.commands.send_stdin(terminal.pid, "text")
    run = api.start(sandbox, "sleep 600", stdin=True, timeout=0)
    with pytest.raises(SandboxException):
        sandbox.pty.send_stdin(run.pid, b"text")
    run.handle.kill()


def test_a_terminal_in_a_directory_that_does_not_exist_is_refused(api: Surface, sandbox: Any) -> None:
    with pytest.raises(InvalidArgumentException, match="cwd '/no/such' does not exist"):
        api.terminal(sandbox, cwd="/no/such").wait()


def test_a_terminal_of_an_unknown_user_is_refused(api: Surface, sandbox: Any) -> None:
    with pytest.raises(AuthenticationException):
        api.terminal(sandbox, user="nobody-here").wait()


def test_an_unknown_terminal_cannot_be_resized(sandbox: Any) -> None:
    with pytest.raises(NotFoundException):
        sandbox.pty.resize(4_000_000, PtySize(rows=1, cols=1))
