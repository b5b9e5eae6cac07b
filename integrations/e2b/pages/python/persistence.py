"""Sandbox: persistence."""

from e2b import NotFoundException, Sandbox

from pages import example, main, until


@example("Pause and resume")
def pause_and_resume() -> None:
    sandbox = Sandbox.create()
    sandbox.files.write("kept", "text")
    sandbox.pause()
    assert sandbox.get_info().state.value == "paused"
    same = sandbox.connect()
    assert same.files.read("kept") == "text"
    same.kill()


@example("Resume by id from elsewhere")
def resume_by_id() -> None:
    sandbox = Sandbox.create()
    sandbox.pause()
    same = Sandbox.connect(sandbox.sandbox_id, timeout=60)
    assert same.is_running()
    same.kill()


@example("List paused sandboxes")
def list_paused() -> None:
    from e2b import SandboxQuery, SandboxState

    sandbox = Sandbox.create(metadata={"page": "persistence"})
    sandbox.pause()
    found = Sandbox.list(query=SandboxQuery(metadata={"page": "persistence"}, state=[SandboxState.PAUSED]))
    assert sandbox.sandbox_id in [item.sandbox_id for item in found.next_items()]
    sandbox.kill()


@example("Remove a paused sandbox")
def remove() -> None:
    sandbox = Sandbox.create()
    sandbox.pause()
    Sandbox.kill(sandbox.sandbox_id)
    try:
        Sandbox.connect(sandbox.sandbox_id)
        raise AssertionError("it still exists")
    except NotFoundException:
        pass


@example("Pause on timeout")
def pause_on_timeout() -> None:
    sandbox = Sandbox.create(timeout=1, lifecycle={"on_timeout": "pause"})
    until(lambda: sandbox.get_info().state.value == "paused")
    sandbox.kill()


@example("A service is down while paused and back after resuming")
def network() -> None:
    sandbox = Sandbox.create()
    server = sandbox.commands.run("python3 -m http.server 3000", background=True, timeout=0)
    from pages import visit

    until(lambda: visit(sandbox.get_host(3000)).status_code == 200)
    sandbox.pause()
    assert visit(sandbox.get_host(3000)).status_code == 502
    sandbox.connect()
    assert visit(sandbox.get_host(3000)).status_code == 200
    assert server.pid in [process.pid for process in sandbox.commands.list()]
    sandbox.kill()


if __name__ == "__main__":
    main()
