"""Sandbox: overview and lifecycle."""

from e2b import Sandbox

from pages import example, main, until


@example("Start with a timeout")
def start() -> None:
    sandbox = Sandbox.create(timeout=60)
    info = sandbox.get_info()
    assert 58 <= (info.end_at - info.started_at).total_seconds() <= 62
    sandbox.kill()


@example("Change the timeout while it runs")
def change() -> None:
    sandbox = Sandbox.create(timeout=60)
    sandbox.set_timeout(30)
    info = sandbox.get_info()
    assert (info.end_at - info.started_at).total_seconds() < 60
    sandbox.kill()


@example("Retrieve information")
def retrieve() -> None:
    sandbox = Sandbox.create(timeout=60, metadata={"name": "page"})
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id
    assert info.metadata == {"name": "page"}
    assert info.name == "base"
    sandbox.kill()


@example("Shut down")
def shut_down() -> None:
    sandbox = Sandbox.create(timeout=60)
    assert sandbox.kill()
    until(lambda: not sandbox.is_running())


if __name__ == "__main__":
    main()
