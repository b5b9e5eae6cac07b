"""Commands in a sandbox, with both clients."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest

from dormouse import AsyncProcess, Client, CommandError, Output, Process, Sandbox
from dormouse.errors import ConnectionLostError, InvalidArgumentError, NotFoundError

MEGABYTES_10 = 10 * 1024 * 1024


def test_a_line_is_run_by_the_shell(sandbox: Sandbox) -> None:
    result = sandbox.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("out\n", "err\n", 3, False)


def test_arguments_are_passed_as_they_are(sandbox: Sandbox) -> None:
    result = sandbox.exec(["printf", "%s|", "a b", "$HOME", "*"])
    assert result.stdout == "a b|$HOME|*|"
    assert result.ok


def test_arguments_need_not_be_utf8(sandbox: Sandbox) -> None:
    assert sandbox.exec([b"printf", b"\xff\xfe"]).stdout_bytes == b"\xff\xfe"


def test_check_raises_an_error_with_the_result(sandbox: Sandbox) -> None:
    assert sandbox.exec("true", check=True).ok
    with pytest.raises(CommandError, match="exited with code 7:\nno such luck") as caught:
        sandbox.exec("echo no such luck >&2; exit 7", check=True)
    assert caught.value.result.exit_code == 7


def test_a_signal_is_not_an_exit_code(sandbox: Sandbox) -> None:
    result = sandbox.exec("kill -KILL $$")
    assert (result.exit_code, result.signal, result.ok) == (None, signal.SIGKILL, False)
    assert result.outcome == "was ended by signal 9"


def test_a_time_limit_kills_the_command(sandbox: Sandbox) -> None:
    result = sandbox.exec("echo before; sleep 600", timeout=timedelta(milliseconds=300))
    assert (result.timed_out, result.ok, result.stdout) == (True, False, "before\n")
    with pytest.raises(CommandError, match="was killed at its time limit"):
        sandbox.exec(["sleep", "600"], timeout=0.1, check=True)


def test_output_of_10_megabytes_is_complete(sandbox: Sandbox) -> None:
    result = sandbox.exec(f"head -c {MEGABYTES_10} /dev/zero | tr '\\0' x")
    assert result.stdout_bytes == b"x" * MEGABYTES_10
    assert result.lost_bytes == 0


def test_binary_input_comes_out_as_it_went_in(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 64
    assert sandbox.exec(["cat"], stdin=data).stdout_bytes == data


def test_input_of_10_megabytes_is_written_while_output_is_read(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * (MEGABYTES_10 // 256)
    assert sandbox.exec(["cat"], stdin=data).stdout_bytes == data


def test_a_command_that_does_not_read_a_long_input_ends_all_the_same(sandbox: Sandbox) -> None:
    assert sandbox.exec("exec <&-; echo done", stdin="x" * MEGABYTES_10).stdout == "done\n"


def test_a_command_whose_input_cannot_be_written_is_killed(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise ConnectionLostError("the connection was lost")

    async def lost_later(*_: object) -> None:
        lost()

    monkeypatch.setattr(Process, "write", lost)
    monkeypatch.setattr(AsyncProcess, "write", lost_later)
    with pytest.raises(ConnectionLostError):
        sandbox.exec(["bash", "-c", "exec -a waiting-for-input cat"], stdin="x" * MEGABYTES_10)
    monkeypatch.undo()
    assert not sandbox.exec("pgrep -f waiting-for-inpu[t]").ok


def test_output_can_be_seen_as_it_arrives(sandbox: Sandbox) -> None:
    pieces: list[Output] = []
    result = sandbox.exec("echo one; echo two >&2", on_output=pieces.append)
    assert {piece.stream: piece.text for piece in pieces} == {"stdout": "one\n", "stderr": "two\n"}
    assert result.stdout == "one\n"


def test_environment_directory_and_user_can_be_given(sandbox: Sandbox) -> None:
    line = 'echo "$GREETING $(pwd) $(id -un)"'
    result = sandbox.exec(line, env={"GREETING": "hällo"}, cwd="/tmp", user="nobody")
    assert result.stdout == "hällo /tmp nobody\n"


def test_text_that_is_not_utf8_has_replacement_characters(sandbox: Sandbox) -> None:
    result = sandbox.exec(["printf", r"a\377b"])
    assert (result.stdout, result.stdout_bytes) == ("a\ufffdb", b"a\xffb")


@pytest.mark.parametrize(
    "options",
    [{"cwd": "relative"}, {"timeout": -1.0}, {"user": "a b:c"}, {"env": {"A=B": "c"}}],
    ids=lambda options: next(iter(options)),
)
def test_invalid_options_are_refused(sandbox: Sandbox, options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError):
        sandbox.exec("true", **options)  # type: ignore[arg-type]


def test_a_user_that_does_not_exist_is_an_error(sandbox: Sandbox) -> None:
    with pytest.raises(NotFoundError, match="no-such-user"):
        sandbox.exec("true", user="no-such-user")


def test_a_program_that_does_not_exist_is_an_error(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidArgumentError, match="no-such-program"):
        sandbox.exec(["no-such-program"])


def test_a_command_can_have_a_checkpoint_first(client: Client, named: Sandbox) -> None:
    named.files.write("/root/a", "before")
    result = named.exec("echo after > /root/a", checkpoint="filesystem", check=True)
    assert result.checkpoint is not None
    snapshot = client.snapshots.get(result.checkpoint)
    named.rewind(snapshot.id, keep="none")
    assert named.files.read_text("/root/a") == "before"
    named.terminate()
    client.snapshots.delete(snapshot.id)
