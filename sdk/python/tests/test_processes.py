"""Processes, their output and their input, with both clients."""

from __future__ import annotations

import signal

import pytest
from conftest import eventually

from dormouse import Exit, Output, Position, Process, Sandbox
from dormouse.errors import CommandError, ConflictError, InvalidArgumentError, NotFoundError
from dormouse.types import TerminalSize


def output_of(process: Process, after: Position | None = None) -> bytes:
    return b"".join(event.data for event in process.events(after=after) if isinstance(event, Output))


def test_events_are_output_and_the_exit_at_the_end(sandbox: Sandbox) -> None:
    process = sandbox.start("printf one; printf two >&2; exit 4")
    *output, last = list(process.events())
    assert all(isinstance(event, Output) for event in output)
    assert isinstance(last, Exit)
    assert (last.status.exit_code, last.position) == (4, Position(3, 3))


def test_output_continues_at_any_position(sandbox: Sandbox) -> None:
    process = sandbox.start("printf 0123456789")
    process.wait()
    assert output_of(process, Position(stdout=4)) == b"456789"
    assert output_of(process, Position(stdout=1000)) == b""


def test_output_that_exists_can_be_read_without_waiting(sandbox: Sandbox) -> None:
    process = sandbox.start("echo ready; sleep 600")
    eventually(lambda: process.info().stdout_bytes == 6)
    events = list(process.events(follow=False))
    assert [event.data for event in events if isinstance(event, Output)] == [b"ready\n"]
    assert not any(isinstance(event, Exit) for event in events)
    process.kill()


def test_binary_input_is_written_in_pieces(sandbox: Sandbox) -> None:
    process = sandbox.start(["cat"], stdin=True)
    assert process.write(b"\x00\xff") == 2
    assert process.write(iter([b"a", b"b"])) == 2
    process.close_stdin()
    assert process.result().stdout_bytes == b"\x00\xffab"


def test_a_closed_input_refuses_more(sandbox: Sandbox) -> None:
    process = sandbox.start("sleep 600", stdin=True)
    process.close_stdin()
    with pytest.raises(ConflictError):
        process.write(b"late")
    process.kill()


def test_text_has_complete_characters(sandbox: Sandbox) -> None:
    # The two bytes of the character arrive in two pieces.
    process = sandbox.start("printf '\\303'; read line; printf '\\251'", stdin=True)
    eventually(lambda: process.info().stdout_bytes == 1)
    process.feed(b"\n")
    assert list(process.text()) == ["é"]


def test_text_of_one_stream_leaves_out_the_other(sandbox: Sandbox) -> None:
    process = sandbox.start("echo out; echo err >&2")
    assert "".join(process.text("stderr")) == "err\n"


def test_a_result_can_be_checked(sandbox: Sandbox) -> None:
    assert sandbox.start("echo fine").result(check=True).stdout == "fine\n"
    with pytest.raises(CommandError, match="exited with code 1"):
        sandbox.start("false").result(check=True)


def test_a_signal_reaches_the_process(sandbox: Sandbox) -> None:
    process = sandbox.start("trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    eventually(lambda: process.info().stdout_bytes > 0)
    process.signal(signal.SIGTERM)
    assert process.wait().exit_code == 5
    assert output_of(process) == b"ready\ncaught\n"


def test_a_signal_to_the_group_reaches_children(sandbox: Sandbox) -> None:
    process = sandbox.start("sleep 600 & echo started; wait")
    eventually(lambda: process.info().stdout_bytes > 0)
    process.signal(signal.SIGKILL, target="group")
    assert process.wait().signal == signal.SIGKILL


def test_kill_ends_all_descendants(sandbox: Sandbox) -> None:
    process = sandbox.start("setsid sleep 600 & sleep 600 & echo started; wait")
    eventually(lambda: process.info().stdout_bytes > 0)
    assert process.kill() == 3


def test_processes_are_found_by_label_and_by_pid(sandbox: Sandbox, unique: str) -> None:
    process = sandbox.start("sleep 600", label=unique)
    (found,) = sandbox.processes.list(label=unique)
    assert (found.process, found.label, found.exit) == (process.handle, unique, None)
    assert [other.process for other in sandbox.processes.list(pid=found.pid)] == [process.handle]
    assert sandbox.processes.get(process.handle).info() == found
    process.kill()
    assert eventually(process.info).exit is not None


def test_a_process_in_a_terminal_can_be_resized(sandbox: Sandbox) -> None:
    process = sandbox.start("read line; stty size", terminal=TerminalSize(rows=10, cols=20))
    process.resize(30, 40)
    process.write("go\n")
    assert process.result().stdout.endswith("30 40\r\n")


def test_a_time_limit_is_reported(sandbox: Sandbox) -> None:
    assert sandbox.start("sleep 600", timeout=0.2).wait().timed_out


def test_the_kept_output_is_limited(sandbox: Sandbox) -> None:
    process = sandbox.start("head -c 100000 /dev/zero; echo end", output_kept="4K")
    process.wait()
    result = process.result()
    assert len(result.stdout_bytes) + result.lost_bytes == 100_004
    assert result.lost_bytes > 0
    assert result.stdout_bytes.endswith(b"end\n")


def test_a_process_that_does_not_exist_is_an_error(sandbox: Sandbox) -> None:
    unknown = sandbox.processes.get(1_000_000)
    for call in (unknown.info, unknown.wait, unknown.kill, unknown.close_stdin):
        with pytest.raises(NotFoundError):
            call()
    with pytest.raises(NotFoundError):
        list(unknown.events())


def test_a_signal_that_does_not_exist_is_refused(sandbox: Sandbox) -> None:
    process = sandbox.start("sleep 600")
    with pytest.raises(InvalidArgumentError):
        process.signal(99)
    process.kill()


def test_a_stream_can_be_left_before_its_end(sandbox: Sandbox) -> None:
    process = sandbox.start("echo one; sleep 600")
    with process.events() as events:
        first = next(iter(events))
    assert isinstance(first, Output)
    assert first.text == "one\n"
    process.kill()


def test_output_continues_after_a_suspend(named: Sandbox) -> None:
    process = named.start("i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo $i; sleep 0.02; done")
    data, position = b"", Position()
    with process.events() as events:
        for event in events:
            assert isinstance(event, Output)
            data, position = data + event.data, event.position
            if len(data) > 20:
                break
    named.suspend()
    with pytest.raises(ConflictError):
        list(process.events(after=position))
    named.resume()
    with process.events(after=position) as events:
        for event in events:
            assert isinstance(event, Output)
            data += event.data
            if len(data) > 200:
                break
    process.kill()
    numbers = data.decode().splitlines()[:50]
    assert numbers == [str(number) for number in range(1, 51)]


def test_a_stream_ends_with_an_error_when_the_sandbox_is_suspended(named: Sandbox) -> None:
    process = named.start("echo one; sleep 600")
    with process.events() as events:
        assert isinstance(next(iter(events)), Output)
        named.suspend()
        with pytest.raises(ConflictError, match="is suspended"):
            next(iter(events))
