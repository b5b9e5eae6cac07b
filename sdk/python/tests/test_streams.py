"""Terminals, ports, services and events, with both clients."""

from __future__ import annotations

import os

import httpx
import pytest
from conftest import Connect, eventually

from dormouse import Client, Exit, Output, Port, Sandbox
from dormouse.errors import (
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    PortClosedError,
)
from dormouse.types import HealthCheck

SERVER = "python3 -m http.server --directory /srv {port}"


def listens(port: Port) -> bool:
    try:
        return port.request("GET").is_success
    except PortClosedError:
        return False


def test_a_terminal_shows_what_its_program_writes(sandbox: Sandbox) -> None:
    with sandbox.pty(
        "stty size; echo $TERM; read line; echo got $line", rows=30, cols=90, term="vt100"
    ) as pty:
        pty.write("häh\n")
        shown = b"".join(pty)
        assert pty.exit is not None
    lines = shown.decode().split("\r\n")
    assert {"30 90", "vt100", "got häh"} <= set(lines)
    assert (pty.exit.exit_code, pty.offset) == (0, len(shown))


def test_a_terminal_is_resized_and_its_input_ended(sandbox: Sandbox) -> None:
    with sandbox.pty("echo ready; read line; stty size; cat; exit 7", cwd="/tmp") as pty:
        assert b"ready" in next(iter(pty))
        pty.resize(40, 100)
        pty.write("go\n")
        pty.send_eof()
        assert b"40 100" in b"".join(pty)
        assert pty.exit is not None
        assert pty.exit.exit_code == 7


def test_a_terminal_is_attached_to_again(sandbox: Sandbox) -> None:
    with sandbox.pty("echo one; read line; echo two") as pty:
        shown = next(iter(pty))
        process, offset = pty.process, pty.offset
    assert shown == b"one\r\n"
    with sandbox.pty(attach=process, offset=offset) as pty:
        pty.write("\n")
        assert b"".join(pty).endswith(b"two\r\n")


def test_a_terminal_that_cannot_be_opened_is_an_error(client: Client, sandbox: Sandbox) -> None:
    with pytest.raises(NotFoundError):
        sandbox.pty(attach=1_000_000)
    process = sandbox.start("sleep 600")
    with pytest.raises(ConflictError):
        sandbox.pty(attach=process.handle)
    process.kill()


def test_a_port_is_reached_and_wakes_the_sandbox(named: Sandbox) -> None:
    port = named.ports.get(8000)
    assert (port.number, port.access, port.info.sandbox) == (8000, "public", named.id)
    assert port.url.startswith(f"http://8000-{named.id}.localhost:")
    with pytest.raises(PortClosedError):
        port.request("GET")
    named.files.write("/srv/hello.txt", "hello")
    named.start(SERVER.format(port=8000))
    eventually(lambda: listens(port))
    assert port.request("GET", "/hello.txt").text == "hello"
    assert port.request("GET", "/none").status_code == 404
    named.suspend()
    assert port.request("GET", "/hello.txt", headers={"X-Own": "1"}).text == "hello"
    assert named.refresh().state == "running"


def test_a_port_is_reached_with_its_headers_alone(sandbox: Sandbox, daemon: str, unique: str) -> None:
    port = sandbox.ports.get(8010)
    assert port.info.token not in repr(port.info)
    sandbox.files.write(f"/srv/{unique}", "own")
    process = sandbox.start(SERVER.format(port=8010))
    eventually(lambda: listens(port))
    assert httpx.get(f"{daemon}/{unique}", headers=port.headers).text == "own"
    process.kill()


def test_a_private_port_has_a_link(client: Client) -> None:
    with client.sandboxes.create("base", port_access="private") as sandbox:
        assert sandbox.ports.get(8000).access == "private"
        assert sandbox.ports.link(8000).path.startswith("/")


def test_an_impossible_port_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidArgumentError):
        sandbox.ports.get(0)


def test_a_service_is_started_again_until_it_is_stopped(sandbox: Sandbox, unique: str) -> None:
    line = "echo running; sleep 600"
    service = sandbox.services.start(unique, line, restart="always", restart_delay=0.01)
    assert (service.name, service.state, service.restart) == (unique, "running", "always")
    eventually(lambda: sandbox.services.get(unique).stdout_bytes > 0)
    sandbox.processes.get(service.process).kill()
    eventually(lambda: sandbox.services.get(unique).stdout_bytes == len("running\nrunning\n"))
    assert sandbox.services.get(unique).restarts == 1
    assert unique in [each.name for each in sandbox.services.list()]
    assert sandbox.services.stop(unique, grace=5).state == "stopped"
    kinds = [event.kind for event in sandbox.services.events(unique, limit=1)]
    assert (kinds[0], kinds[-1]) == ("started", "stopped")
    output = list(sandbox.services.output(unique))
    assert b"".join(e.data for e in output if isinstance(e, Output)) == b"running\nrunning\n"
    assert isinstance(output[-1], Exit)
    sandbox.services.remove(unique)
    with pytest.raises(NotFoundError):
        sandbox.services.get(unique)


def test_the_health_of_a_service_is_checked(sandbox: Sandbox, unique: str) -> None:
    check = HealthCheck(port=8020, path="/", interval_secs=0.1)
    sandbox.services.start(unique, SERVER.format(port=8020), health=check)
    assert eventually(lambda: sandbox.services.get(unique).health == "healthy")
    sandbox.services.remove(unique)


@pytest.mark.parametrize("name", ["", "not a name", "x" * 65])
def test_a_service_needs_a_name(sandbox: Sandbox, name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        sandbox.services.start(name, "true")


def test_events_tell_what_happened(client: Client, named: Sandbox) -> None:
    named.suspend()
    events = list(client.events(sandbox=named.id, limit=2))
    kinds = [event.kind for event in events]
    assert kinds[0] == "created"
    assert kinds[-1] == "suspended"
    assert [event.number for event in events] == sorted(event.number for event in events)
    assert list(named.events(after=events[0].number)) == events[1:]
    assert [event.kind for event in client.events(sandbox=named.id, newest=1)] == ["suspended"]
    assert [event.kind for event in client.events(sandbox=named.id, after=events[-2].number)] == ["suspended"]


@pytest.mark.parametrize("of", ["client", "sandbox"])
def test_events_are_followed(client: Client, named: Sandbox, of: str) -> None:
    (last,) = named.events(newest=1)
    with (
        named.follow_events(after=last.number)
        if of == "sandbox"
        else client.follow_events(sandbox=named.id, after=last.number)
    ) as events:
        named.suspend()
        kinds = []
        for event in events:
            kinds.append(event.kind)
            if event.kind == "suspended":
                break
    assert kinds == ["suspending", "suspended"]


def test_https_trusts_the_authority_of_the_daemon(
    client: Client, connect: Connect, daemon: str, tmp_path: os.PathLike[str]
) -> None:
    file = os.path.join(tmp_path, "ca.pem")
    with open(file, "w") as ca:
        ca.write(client.daemon.authority().certificate)
    secure = connect(daemon.replace("http://127.0.0.1", "https://localhost"), ca=file)
    assert secure.health().status == "ok"
    with secure.sandboxes.create("base") as sandbox, sandbox.pty("echo over TLS") as pty:
        assert b"over TLS" in b"".join(pty)
