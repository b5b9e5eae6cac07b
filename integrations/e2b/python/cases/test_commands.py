"""Running commands: results, output, input, and processes in the background."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import pytest
from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    TimeoutException,
)

from support.guest import output
from support.surface import Surface
from support.waiting import eventually


def test_a_command_returns_its_output_and_exit_code(sandbox: Any) -> None:
    result = sandbox.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code, result.error) == ("out\n", "err\n", 0, None)


def test_a_command_runs_in_a_login_shell_of_the_user(sandbox: Any) -> None:
    assert output(sandbox, "whoami; echo $HOME; echo $USER; echo $LOGNAME; pwd").split() == [
        "user",
        "/home/user",
        "user",
        "user",
        "/home/user",
    ]
    assert output(sandbox, "shopt -q login_shell && echo yes") == "yes"


def test_a_command_can_run_as_root(sandbox: Any) -> None:
    assert output(sandbox, "whoami; echo $HOME", user="root").split() == ["root", "/root"]


def test_a_program_cannot_become_root_by_itself(sandbox: Any) -> None:
    with pytest.raises(CommandExitException) as refused:
        sandbox.commands.run("sudo -n whoami")
    assert "no new privileges" in refused.value.stderr


def test_an_unknown_user_is_refused(sandbox: Any) -> None:
    with pytest.raises(AuthenticationException, match="invalid username: 'nobody-here'"):
        sandbox.commands.run("true", user="nobody-here")


def test_a_command_runs_in_the_directory_that_is_asked_for(sandbox: Any, home: str) -> None:
    assert output(sandbox, "pwd", cwd=home) == home
    assert output(sandbox, "pwd", cwd="/tmp", user="root") == "/tmp"


def test_a_relative_directory_starts_at_the_home_of_the_user(sandbox: Any, home: str) -> None:
    assert output(sandbox, "pwd", cwd=home.removeprefix("/home/user/")) == home


def test_a_directory_that_does_not_exist_is_refused(sandbox: Any) -> None:
    with pytest.raises(InvalidArgumentException, match="cwd '/no/such' does not exist"):
        sandbox.commands.run("true", cwd="/no/such")


def test_a_command_has_the_variables_that_are_asked_for(sandbox: Any) -> None:
    envs = {"A": "1", "B": "two words", "C": "", "D": "ü\n'\"$"}
    said = sandbox.commands.run('printf \'%s|\' "$A" "$B" "$C" "$D"', envs=envs).stdout
    assert said == "1|two words||ü\n'\"$|"


def test_variables_of_one_command_are_not_those_of_the_next(sandbox: Any) -> None:
    output(sandbox, "true", envs={"ONCE": "1"})
    assert output(sandbox, "echo ${ONCE:-unset}") == "unset"


@pytest.mark.parametrize("code", [1, 2, 42, 255])
def test_an_exit_code_other_than_zero_is_an_error(sandbox: Any, code: int) -> None:
    with pytest.raises(CommandExitException) as failed:
        sandbox.commands.run(f"echo out; echo err >&2; exit {code}")
    assert failed.value.exit_code == code
    assert (failed.value.stdout, failed.value.stderr) == ("out\n", "err\n")
    assert failed.value.error == f"exit status {code}"


def test_a_program_that_does_not_exist_is_an_error_of_the_shell(sandbox: Any) -> None:
    with pytest.raises(CommandExitException, match="command not found") as failed:
        sandbox.commands.run("no-such-program")
    assert failed.value.exit_code == 127


def test_a_command_that_ends_by_a_signal_says_so(sandbox: Any) -> None:
    with pytest.raises(CommandExitException) as failed:
        sandbox.commands.run("kill -9 $$")
    assert failed.value.exit_code == -1
    assert failed.value.error == "signal: killed"


@pytest.mark.parametrize("text", ["with spaces", "line\nline", "ünï — 漢字 😀", "", "\t\0".strip("\0")])
def test_any_text_is_printed_unchanged(sandbox: Any, text: str) -> None:
    assert sandbox.commands.run('printf "%s" "$TEXT"', envs={"TEXT": text}).stdout == text


def test_a_script_of_several_lines_runs(sandbox: Any) -> None:
    assert output(sandbox, "for i in 1 2 3; do\n  echo $i\ndone\n# a comment") == "1\n2\n3"


def test_a_pipe_of_commands_runs(sandbox: Any) -> None:
    assert output(sandbox, "seq 10 | grep 1 | wc -l") == "2"


def test_a_long_command_runs(sandbox: Any) -> None:
    text = "x" * 100_000
    assert output(sandbox, f"echo {text} | wc -c") == "100001"


def test_large_output_arrives_completely_and_in_order(sandbox: Any) -> None:
    said = sandbox.commands.run("seq 1 400000").stdout
    assert said == "".join(f"{n}\n" for n in range(1, 400_001))


def test_a_line_of_ten_megabytes_arrives(sandbox: Any) -> None:
    said = sandbox.commands.run("head -c 10485760 /dev/zero | tr '\\0' x; echo").stdout
    assert len(said) == 10_485_761
    assert set(said) == {"x", "\n"}


def test_output_that_is_not_text_arrives_with_marks(sandbox: Any) -> None:
    assert sandbox.commands.run("printf 'a\\377\\376b'").stdout == "a\ufffd\ufffdb"


def test_characters_that_are_split_between_writes_arrive_whole(sandbox: Any) -> None:
    command = "for i in 1 2 3; do printf '\\360\\237'; sleep 0.05; printf '\\230\\200'; sleep 0.05; done"
    assert sandbox.commands.run(command).stdout == "😀😀😀"


def test_both_streams_of_output_are_kept_apart(sandbox: Any) -> None:
    result = sandbox.commands.run("for i in $(seq 500); do echo o$i; echo e$i >&2; done")
    assert result.stdout == "".join(f"o{n}\n" for n in range(1, 501))
    assert result.stderr == "".join(f"e{n}\n" for n in range(1, 501))


def test_output_is_passed_on_while_a_command_runs(sandbox: Any) -> None:
    out: list[str] = []
    err: list[str] = []
    result = sandbox.commands.run(
        "echo one; echo two >&2; sleep 0.2; echo three", on_stdout=out.append, on_stderr=err.append
    )
    assert "".join(out) == result.stdout == "one\nthree\n"
    assert "".join(err) == result.stderr == "two\n"
    assert len(out) >= 2


def test_a_function_that_is_awaited_can_take_output(api: Surface, sandbox: Any) -> None:
    if not api.is_async:
        handle = sandbox.commands.run("echo one; echo two >&2", background=True)
        assert [(out, err) for out, err, _ in handle] == [("one\n", None), (None, "two\n")]
        return
    taken: list[str] = []

    async def take(text: str) -> None:
        taken.append(text)

    sandbox.commands.run("echo one", on_stdout=take, on_stderr=take)
    assert "".join(taken) == "one\n"


@pytest.mark.needs("e2b.Commands.run(retain_output)")
def test_output_need_not_be_kept(api: Surface, sandbox: Any) -> None:
    taken: list[str] = []
    result = sandbox.commands.run("echo one", retain_output=False, on_stdout=taken.append)
    assert (result.stdout, result.stderr, "".join(taken)) == (None, None, "one\n")
    run = api.start(sandbox, "read line; echo $line", stdin=True, retain_output=False)
    again = api.connect(sandbox, run.pid, retain_output=False)
    sandbox.commands.send_stdin(run.pid, "two\n")
    assert again.wait().stdout is None
    assert "".join(again.out) == "two\n"


def test_a_command_is_ended_when_its_time_is_over(sandbox: Any, unique: str) -> None:
    with pytest.raises(TimeoutException, match="exceeding 'timeout'"):
        sandbox.commands.run(f"exec -a {unique} sleep 600", timeout=1)
    eventually(lambda: unique not in output(sandbox, "ps -e -o args || cat /proc/[0-9]*/cmdline | tr '\\0' ' '"))


def test_a_timeout_of_zero_is_none(sandbox: Any) -> None:
    assert output(sandbox, "sleep 1; echo done", timeout=0, request_timeout=30) == "done"


def test_a_command_without_input_reads_nothing(sandbox: Any) -> None:
    assert output(sandbox, "cat; echo end") == "end"
    assert output(sandbox, "cat; echo end", stdin=False) == "end"


def test_a_command_in_the_background_continues(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "echo begun; sleep 0.5; echo ended", timeout=30)
    assert run.pid > 0
    result = run.wait()
    assert result.stdout == "begun\nended\n"
    assert "".join(run.out) == result.stdout


def test_a_failure_in_the_background_is_reported_by_waiting(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "echo problem >&2; exit 3")
    with pytest.raises(CommandExitException) as failed:
        run.wait()
    assert failed.value.exit_code == 3
    assert "".join(run.err) == "problem\n"


def test_the_handle_of_a_command_has_its_result(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "echo out; echo err >&2; exit 4")
    with pytest.raises(CommandExitException):
        run.wait()
    if api.is_async:
        handle = run.handle
        assert (handle.stdout, handle.stderr, handle.exit_code) == ("out\n", "err\n", 4)
        assert handle.error == "exit status 4"


def test_a_process_that_is_left_behind_does_not_keep_a_command(sandbox: Any) -> None:
    assert output(sandbox, "sleep 600 > /dev/null 2>&1 & echo done", timeout=30) == "done"


def test_processes_are_listed_with_their_settings(api: Surface, sandbox: Any, home: str) -> None:
    run = api.start(sandbox, "sleep 600", envs={"LISTED": "yes"}, cwd=home, timeout=0)
    (listed,) = [process for process in sandbox.commands.list(request_timeout=30) if process.pid == run.pid]
    assert (listed.cmd, listed.args) == ("/bin/bash", ["-l", "-c", "sleep 600"])
    assert listed.envs["LISTED"] == "yes"
    assert listed.cwd == home
    assert listed.tag is None
    run.handle.kill()
    eventually(lambda: run.pid not in {process.pid for process in sandbox.commands.list()})


def test_a_killed_process_ends_by_the_signal(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "echo begun; exec sleep 600", timeout=0)
    assert run.handle.kill() is True
    with pytest.raises(CommandExitException) as failed:
        run.wait()
    assert (failed.value.exit_code, failed.value.error) == (-1, "signal: killed")


def test_a_process_can_be_killed_by_its_id(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "exec sleep 600", timeout=0)
    assert sandbox.commands.kill(run.pid, request_timeout=30) is True
    with pytest.raises(CommandExitException):
        run.wait()


def test_killing_a_process_that_has_ended_tells_that_there_was_none(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "true")
    run.wait()
    eventually(lambda: sandbox.commands.kill(run.pid) is False)
    assert run.handle.kill() is False


def test_killing_an_unknown_process_tells_that_there_was_none(sandbox: Any) -> None:
    assert sandbox.commands.kill(4_000_000) is False


def test_a_running_process_can_be_connected_to(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "read line; echo got $line; echo problem >&2; exit 5", stdin=True, timeout=0)
    again = api.connect(sandbox, run.pid, timeout=60, request_timeout=30)
    assert again.pid == run.pid
    sandbox.commands.send_stdin(run.pid, "input\n")
    with pytest.raises(CommandExitException) as failed:
        again.wait()
    assert failed.value.exit_code == 5
    assert ("".join(again.out), "".join(again.err)) == ("got input\n", "problem\n")


def test_several_clients_can_read_the_output_of_one_process(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "read line; seq 1000", stdin=True, timeout=0).read()
    others = [api.connect(sandbox, run.pid).read() for _ in range(3)]
    sandbox.commands.send_stdin(run.pid, "go\n")
    expected = "".join(f"{n}\n" for n in range(1, 1001))
    assert {one.wait().stdout for one in [run, *others]} == {expected}


def test_an_unknown_process_cannot_be_connected_to(api: Surface, sandbox: Any) -> None:
    with pytest.raises(NotFoundException, match="process with pid 4000000 not found"):
        api.connect(sandbox, 4_000_000).wait()


def test_the_end_of_a_process_is_reported_to_those_who_connect_soon_after(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "exit 6")
    with pytest.raises(CommandExitException):
        run.wait()
    with pytest.raises(CommandExitException) as failed:
        api.connect(sandbox, run.pid).wait()
    assert failed.value.exit_code == 6


def test_a_process_continues_when_its_client_disconnects(api: Surface, sandbox: Any, home: str) -> None:
    run = api.start(sandbox, f"read line; echo $line > {home}/note", stdin=True, timeout=0)
    run.handle.disconnect()
    assert run.pid in {process.pid for process in sandbox.commands.list()}
    sandbox.commands.send_stdin(run.pid, "later\n")
    eventually(lambda: sandbox.files.exists(f"{home}/note") and sandbox.files.read(f"{home}/note") == "later\n")


@pytest.mark.parametrize("data", ["line\n", b"line\n"])
def test_input_can_be_text_or_bytes(api: Surface, sandbox: Any, data: Any) -> None:
    run = api.start(sandbox, "read line; echo got $line", stdin=True)
    sandbox.commands.send_stdin(run.pid, data, request_timeout=30)
    assert run.wait().stdout == "got line\n"


def test_input_can_be_sent_by_the_handle(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "read a; read b; echo $b $a", stdin=True)
    run.handle.send_stdin("one\n", request_timeout=30)
    run.handle.send_stdin(b"two\n")
    assert run.wait().stdout == "two one\n"


def test_the_end_of_input_can_be_sent(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "wc -c", stdin=True)
    sandbox.commands.send_stdin(run.pid, "12345")
    sandbox.commands.close_stdin(run.pid, request_timeout=30)
    assert run.wait().stdout == "5\n"


def test_the_end_of_input_can_be_sent_by_the_handle_and_twice(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "cat; sleep 1; echo end", stdin=True)
    run.handle.send_stdin("text\n")
    run.handle.close_stdin(request_timeout=30)
    run.handle.close_stdin()
    assert run.wait().stdout == "text\nend\n"


def test_input_that_is_not_text_arrives_unchanged(api: Surface, sandbox: Any) -> None:
    data = bytes(range(256)) * 40
    run = api.start(sandbox, f"head -c {len(data)} | sha256sum", stdin=True)
    sandbox.commands.send_stdin(run.pid, data)
    assert run.wait().stdout.split()[0] == hashlib.sha256(data).hexdigest()


def test_a_megabyte_of_input_arrives(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "wc -c", stdin=True)
    for _ in range(16):
        sandbox.commands.send_stdin(run.pid, b"x" * 65536)
    sandbox.commands.close_stdin(run.pid)
    assert run.wait().stdout == "1048576\n"


def test_input_for_a_process_that_takes_none_is_refused(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "sleep 600", stdin=False, timeout=0)
    with pytest.raises(SandboxException):
        sandbox.commands.send_stdin(run.pid, "text")
    run.handle.kill()


def test_input_for_an_unknown_process_is_refused(sandbox: Any) -> None:
    with pytest.raises(NotFoundException):
        sandbox.commands.send_stdin(4_000_000, "text")
    with pytest.raises(NotFoundException):
        sandbox.commands.close_stdin(4_000_000)


@pytest.mark.needs("e2b.Commands.stream_input")
def test_a_stream_of_input_arrives_in_order(api: Surface, sandbox: Any) -> None:
    run = api.start(sandbox, "cat", stdin=True).read()
    chunks: list[str | bytes] = [f"{n}\n" if n % 2 else f"{n}\n".encode() for n in range(200)]
    api.input(sandbox.commands, run.pid, chunks, timeout=60)
    run.says("199\n")
    sandbox.commands.close_stdin(run.pid)
    assert run.wait().stdout == "".join(f"{n}\n" for n in range(200))


@pytest.mark.needs("e2b.Commands.stream_input")
def test_a_stream_of_input_for_an_unknown_process_is_refused(api: Surface, sandbox: Any) -> None:
    with pytest.raises(NotFoundException):
        api.input(sandbox.commands, 4_000_000, ["text"])


@pytest.mark.needs("e2b.AsyncCommandInputHandle.close")
def test_a_stream_of_input_can_be_closed_by_hand(api: Surface, sandbox: Any) -> None:
    if not api.is_async:
        return
    run = api.start(sandbox, "head -n 1", stdin=True)

    async def send() -> None:
        stream = sandbox.target.commands.stream_input(run.pid)
        await stream.send("by hand\n")
        await stream.close()

    api.loop.run(send)
    assert run.wait().stdout == "by hand\n"


def test_commands_run_at_the_same_time(sandbox: Any) -> None:
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(output(sandbox, f"sleep 0.3; echo {n}"))) for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers, key=int) == [str(n) for n in range(12)]


def test_a_terminal_is_not_there_for_commands(sandbox: Any) -> None:
    assert output(sandbox, "test -t 1 && echo terminal || echo none") == "none"


def test_limits_on_open_files_permit_usual_programs(sandbox: Any) -> None:
    assert int(output(sandbox, "ulimit -n")) >= 1024
