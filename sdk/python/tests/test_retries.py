"""Lost connections, retries and errors, with both clients and a server that does what a test wants."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Connect
from fake_server import (
    FakeServer,
    answer,
    drop,
    event,
    exit_event,
    hang,
    output,
    problem,
    stream,
    terminal,
)

from dormouse import Client, Exit, Lost, Output, Process, Sandbox, _config
from dormouse.errors import (
    ApiError,
    ConflictError,
    ConnectError,
    ConnectionLostError,
    FailedError,
    PartialForkError,
    ProtocolError,
    ResponseTimeoutError,
    UnavailableError,
)

SANDBOX = {
    "id": "sbx", "project": "local", "state": "running", "residence": "running", "paused_for_disk": False,
    "generation": 1, "restored": "none", "image": "sha256:0", "egress": "public", "env": [],
    "resources": {"cpu_millis": 1000, "disk_bytes": 1, "memory_bytes": 1, "processes": 1},
    "on_timeout": "terminate", "suspendable": True, "port_access": "public", "port_rules": {}, "holds": [],
    "keep_generations": 1, "on_unrestorable": "fail", "older_images": [], "labels": {},
    "created_at": "2026-01-01T00:00:00Z", "last_active_at": "2026-01-01T00:00:00Z",
}  # fmt: skip

EXEC_STARTED = event("started", {"process": 7, "pid": 70})


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_config, "FIRST_DELAY_SECS", 0.0)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture
def client(server: FakeServer, connect: Connect) -> Client:
    return connect(server.url, "key", retries=2, reconnect=0.5)


@pytest.fixture
def sandbox(server: FakeServer, client: Client) -> Sandbox:
    server.then(answer(200, SANDBOX))
    sandbox = client.sandboxes.connect("sbx")
    server.requests.clear()
    return sandbox


@pytest.fixture
def process(sandbox: Sandbox) -> Process:
    return sandbox.processes.get(7)


def outputs(events: list[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, Output))


def test_a_get_is_repeated_after_a_lost_connection(server: FakeServer, client: Client) -> None:
    server.then(drop, drop, answer(200, {"status": "ok"}))
    assert client.health().status == "ok"
    assert [request.path for request in server.requests] == ["/v1/health"] * 3


def test_attempts_are_limited(server: FakeServer, client: Client) -> None:
    with pytest.raises(ConnectionLostError):
        client.health()
    assert len(server.requests) == 3


def test_a_create_is_repeated_with_the_same_key(server: FakeServer, client: Client) -> None:
    server.then(drop, answer(201, SANDBOX, {"Idempotent-Replayed": "true"}))
    assert client.sandboxes.create("base").id == "sbx"
    keys = [request.headers["idempotency-key"] for request in server.requests]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert server.requests[0].json() == server.requests[1].json() == {"image": "base"}


def test_two_creates_have_two_keys(server: FakeServer, client: Client) -> None:
    server.then(answer(201, SANDBOX), answer(201, SANDBOX))
    client.sandboxes.create("base")
    client.sandboxes.create("base")
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 2


def test_the_caller_can_choose_the_key(server: FakeServer, client: Client) -> None:
    server.then(answer(201, SANDBOX))
    client.sandboxes.create("base", idempotency_key="mine")
    assert server.requests[0].headers["idempotency-key"] == "mine"


def test_a_command_without_a_key_is_sent_once(server: FakeServer, sandbox: Sandbox) -> None:
    with pytest.raises(ConnectionLostError):
        sandbox.suspend()
    assert [request.path for request in server.requests] == ["/v1/sandboxes/sbx/suspend"]


def test_an_upload_of_a_stream_is_sent_once(server: FakeServer, client: Client) -> None:
    with pytest.raises(ConnectionLostError):
        client.snapshots.import_archive(iter([b"a", b"b"]))
    assert [request.body for request in server.requests] == [b"ab"]


def test_an_upload_of_bytes_is_repeated(server: FakeServer, client: Client) -> None:
    with pytest.raises(ConnectionLostError):
        client.snapshots.import_archive(b"ab")
    assert [request.body for request in server.requests] == [b"ab"] * 3


def test_an_unavailable_daemon_is_asked_again(server: FakeServer, client: Client) -> None:
    server.then(problem(503, "unavailable", {"Retry-After": "0"}), answer(200, {"status": "ok"}))
    assert client.health().status == "ok"


def test_an_unavailable_daemon_is_not_asked_to_suspend_twice(server: FakeServer, sandbox: Sandbox) -> None:
    server.then(problem(503, "unavailable", {"Retry-After": "3", "X-Request-Id": "r1"}))
    with pytest.raises(UnavailableError) as caught:
        sandbox.suspend()
    assert (caught.value.retry_after, caught.value.request_id, caught.value.status) == (3.0, "r1", 503)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "code"), [(500, "failed"), (409, "conflict"), (507, "no_room")])
def test_other_errors_are_not_repeated(server: FakeServer, client: Client, status: int, code: str) -> None:
    server.then(problem(status, code))
    with pytest.raises(ApiError) as caught:
        client.health()
    error = caught.value
    assert (error.code, error.message, error.next_step) == (code, f"a {code} error", "try something else")
    assert len(server.requests) == 1


def test_a_code_of_a_later_version_is_an_api_error(server: FakeServer, client: Client) -> None:
    server.then(problem(418, "teapot"))
    with pytest.raises(ApiError) as caught:
        client.health()
    assert (type(caught.value), caught.value.code) == (ApiError, "teapot")


@pytest.mark.parametrize("status", [200, 404, 502])
def test_an_answer_of_something_else_is_a_protocol_error(
    server: FakeServer, client: Client, status: int
) -> None:
    server.then(answer(status, b"<html>hello</html>"))
    with pytest.raises(ProtocolError):
        client.health()


def test_an_answer_without_a_field_is_a_protocol_error(server: FakeServer, client: Client) -> None:
    server.then(answer(200, {"id": "sbx"}))
    with pytest.raises(ProtocolError, match="state"):
        client.sandboxes.connect("sbx")


def test_a_daemon_that_does_not_run_cannot_have_received_anything(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ConnectError, match=f"127.0.0.1:{port}") as caught:
        connect(f"http://127.0.0.1:{port}", retries=1).sandboxes.create("base")
    assert not caught.value.was_sent


def test_a_silent_daemon_is_a_timeout(server: FakeServer, connect: Connect) -> None:
    server.then(hang(server.released))
    with pytest.raises(ResponseTimeoutError):
        connect(server.url, timeout=0.1, retries=0).health()


def test_the_socket_needs_no_key(connect: Connect, tmp_path: Path) -> None:
    with FakeServer(tmp_path / "api.sock") as server:
        server.then(answer(200, {"status": "ok"}))
        assert connect(server.url, project="team").health().status == "ok"
        assert "authorization" not in server.requests[0].headers
        assert server.requests[0].headers["x-dormouse-project"] == "team"


def test_the_key_is_a_bearer_token(server: FakeServer, client: Client) -> None:
    server.then(answer(200, {"status": "ok"}))
    client.health()
    assert server.requests[0].headers["authorization"] == "Bearer key"


def test_a_command_continues_after_a_lost_connection(server: FakeServer, sandbox: Sandbox) -> None:
    server.then(
        stream(EXEC_STARTED, output(0, "one "), output(0, "err", "stderr"), output(4, "two "), broken=True),
        drop,
        stream(output(8, "three"), exit_event("13,3", 4)),
    )
    result = sandbox.exec("something")
    assert (result.process, result.stdout, result.stderr, result.exit_code) == (7, "one two three", "err", 4)
    first, *others = server.requests
    assert (first.method, first.path) == ("POST", "/v1/sandboxes/sbx/exec")
    assert {(other.method, other.path) for other in others} == {
        ("GET", "/v1/sandboxes/sbx/processes/7/output")
    }
    assert [other.headers["last-event-id"] for other in others] == ["8,0", "8,0"]


def test_a_command_without_output_so_far_continues_from_the_beginning(
    server: FakeServer, sandbox: Sandbox
) -> None:
    server.then(stream(EXEC_STARTED, broken=True), stream(output(0, "all"), exit_event("3,0")))
    assert sandbox.exec("something").stdout == "all"
    assert "last-event-id" not in server.requests[1].headers


def test_a_command_that_may_not_have_started_is_not_repeated(server: FakeServer, sandbox: Sandbox) -> None:
    server.then(stream(broken=True))
    with pytest.raises(ConnectionLostError):
        sandbox.exec("something")
    server.then(drop)
    with pytest.raises(ConnectionLostError):
        sandbox.exec("something")
    assert len(server.requests) == 2


def test_output_that_was_lost_is_counted(server: FakeServer, sandbox: Sandbox) -> None:
    lost = event("lost", {"stream": "stdout", "offset": 0, "bytes": 5}, "5,0")
    server.then(stream(EXEC_STARTED, broken=True), stream(lost, output(5, "rest"), exit_event("9,0")))
    result = sandbox.exec("something")
    assert (result.stdout, result.lost_bytes) == ("rest", 5)


def test_events_continue_after_the_last_one(server: FakeServer, process: Process) -> None:
    server.then(
        stream(output(0, "ab"), output(2, "ü"), broken=True),
        stream(output(4, "d")),  # A stream without an exit is not complete.
        stream(exit_event("5,0")),
    )
    events = list(process.events())
    assert outputs(list(events)) == "abüd"
    assert isinstance(events[-1], Exit)
    assert [request.headers.get("last-event-id") for request in server.requests] == [None, "4,0", "5,0"]


def test_a_stream_whose_server_stops_is_an_error(server: FakeServer, process: Process) -> None:
    server.then(stream(output(0, "ab"), broken=True))
    seen: list[object] = []
    with pytest.raises(ConnectionLostError):
        for each in process.events():
            seen.append(each)
    assert outputs(seen) == "ab"
    assert len(server.requests) > 2


def test_a_stream_can_be_interrupted_any_number_of_times(server: FakeServer, process: Process) -> None:
    parts = [stream(output(at, "x"), broken=True) for at in range(10)]
    server.then(*parts, stream(exit_event("10,0")))
    assert outputs(list(process.events())) == "x" * 10


def test_a_stopping_daemon_is_waited_for(server: FakeServer, process: Process) -> None:
    stopping = event("error", {"code": "unavailable", "detail": "the daemon is stopping", "status": 503})
    server.then(stream(output(0, "a"), stopping), stream(output(1, "b"), exit_event("2,0")))
    assert outputs(list(process.events())) == "ab"


def test_an_error_in_a_stream_is_raised(server: FakeServer, process: Process) -> None:
    suspended = event("error", {"code": "conflict", "detail": "the sandbox is suspended", "status": 409})
    server.then(stream(output(0, "a"), suspended))
    with pytest.raises(ConflictError, match="is suspended"):
        list(process.events())
    assert len(server.requests) == 1


def test_lost_output_is_an_event(server: FakeServer, process: Process) -> None:
    lost = event("lost", {"stream": "stderr", "offset": 2, "bytes": 3}, "0,5")
    server.then(stream(lost, exit_event("0,5")))
    first = next(iter(process.events()))
    assert isinstance(first, Lost)
    assert (first.stream, first.offset, first.bytes, first.position) == ("stderr", 2, 3, (0, 5))


def test_a_watch_does_not_continue_because_changes_may_be_missing(
    server: FakeServer, sandbox: Sandbox
) -> None:
    server.then(stream(event("created", {"kind": "created", "path": "/a"})))
    with pytest.raises(ConnectionLostError), sandbox.files.watch("/") as changes:
        for change in changes:
            assert change.path == "/a"
    assert len(server.requests) == 1


def test_followed_events_continue_after_their_number(server: FakeServer, client: Client) -> None:
    def happened(number: int) -> bytes:
        data = {
            "at": "2026-01-01T00:00:00Z", "generation": 1, "initiator": "user", "kind": "created",
            "number": number, "project": "local", "sandbox": "sbx",
        }  # fmt: skip
        return event("event", data, str(number))

    server.then(stream(happened(5), happened(6), broken=True), stream(happened(7)))
    with client.follow_events(after=4) as events:
        numbers = [next(iter(events)).number for _ in range(3)]
    assert numbers == [5, 6, 7]
    assert [request.path for request in server.requests] == ["/v1/events?after=4", "/v1/events?after=6"]


def test_a_build_log_continues_with_the_next_line(server: FakeServer, client: Client) -> None:
    def line(offset: int) -> bytes:
        data = {"at": "2026-01-01T00:00:00Z", "offset": offset, "stream": "build", "text": f"line {offset}"}
        return event("line", data, str(offset))

    server.then(stream(line(0), line(1), broken=True), stream(line(2), event("end", {})))
    assert [each.text for each in client.builds.follow("b")] == ["line 0", "line 1", "line 2"]
    assert server.requests[1].path == "/v1/builds/b/logs?offset=2"


def test_progress_is_reported_until_the_result(server: FakeServer, client: Client) -> None:
    image = {"bytes": 1, "created_at": "2026-01-01T00:00:00Z", "digest": "sha256:1", "files": 1, "tags": []}
    step = event("progress", {"bytes": 1, "entries": 2, "stage": "fetching"})
    server.then(stream(step, step, event("done", image)))
    stages: list[str] = []
    pulled = client.images.pull("registry/x", on_progress=lambda progress: stages.append(progress.stage))
    assert (pulled.digest, stages) == ("sha256:1", ["fetching", "fetching"])


def test_a_pull_that_fails_late_is_an_error(server: FakeServer, client: Client) -> None:
    server.then(stream(event("error", {"code": "failed", "detail": "no such image", "status": 500})))
    with pytest.raises(FailedError, match="no such image"):
        client.images.pull("registry/x")


def test_a_fork_that_fails_in_part_has_the_children_that_exist(server: FakeServer, sandbox: Sandbox) -> None:
    full = {"code": "no_room", "detail": "the host is full", "next_step": "", "status": 507}
    server.then(answer(201, {"children": [{"sandbox": SANDBOX}, {"error": full}]}))
    with pytest.raises(PartialForkError, match="1 of 2 children failed: the host is full") as caught:
        sandbox.fork(2)
    assert [child.id for child in caught.value.children] == ["sbx"]
    assert [error.code for error in caught.value.errors] == ["no_room"]


STARTED = {"type": "started", "process": 7, "pid": 70}


def test_a_terminal_is_complete_if_the_server_closes_it_at_once(connect: Connect, tmp_path: Path) -> None:
    lost = {"type": "lost", "offset": 5, "bytes": 10}
    with FakeServer(tmp_path / "api.sock") as server:
        server.then(answer(200, SANDBOX))
        sandbox = connect(server.url).sandboxes.connect("sbx")
        for _ in range(10):
            server.then(terminal(STARTED, b"hello", lost, b"end", {"type": "exit", "exit_code": 4}))
            with sandbox.pty() as pty:
                assert b"".join(pty) == b"helloend"
                assert pty.exit is not None
                assert (pty.exit.exit_code, pty.process, pty.offset) == (4, 7, 18)


def test_a_terminal_that_breaks_off_is_attached_to_again(server: FakeServer, sandbox: Sandbox) -> None:
    server.then(terminal(STARTED, b"hel"), terminal(STARTED, b"lo", {"type": "exit", "exit_code": 0}))
    shown = b""
    with sandbox.pty() as pty, pytest.raises(ConnectionLostError):
        for data in pty:
            shown += data
    with sandbox.pty(attach=pty.process, offset=pty.offset) as again:
        shown += b"".join(again)
    assert shown == b"hello"
    assert server.requests[1].path == "/v1/sandboxes/sbx/pty?attach=7&offset=3"


def test_an_error_in_a_terminal_is_raised(server: FakeServer, sandbox: Sandbox) -> None:
    suspended = {"type": "error", "code": "conflict", "detail": "the sandbox is suspended", "status": 409}
    server.then(terminal(STARTED, suspended))
    with sandbox.pty() as pty, pytest.raises(ConflictError, match="is suspended"):
        list(pty)


def test_a_terminal_that_is_refused_is_the_error_of_the_daemon(server: FakeServer, sandbox: Sandbox) -> None:
    server.then(problem(409, "conflict"))
    with pytest.raises(ConflictError, match="a conflict error"):
        sandbox.pty()
