"""Sandbox: auto-resume."""

from e2b import Sandbox

from pages import example, main, until, visit

LIFECYCLE = {"on_timeout": "pause", "auto_resume": True}


@example("Configure")
def configure() -> None:
    sandbox = Sandbox.create(timeout=600, lifecycle=LIFECYCLE)
    assert sandbox.get_info().lifecycle == LIFECYCLE
    sandbox.kill()


@example("A command wakes a paused sandbox")
def command() -> None:
    sandbox = Sandbox.create(timeout=600, lifecycle=LIFECYCLE)
    sandbox.files.write("/home/user/hello.txt", "hello")
    sandbox.pause()
    assert sandbox.files.read("/home/user/hello.txt") == "hello"
    assert sandbox.get_info().state.value == "running"
    sandbox.kill()


@example("A request wakes a preview server")
def preview() -> None:
    sandbox = Sandbox.create(timeout=600, lifecycle=LIFECYCLE)
    sandbox.commands.run("python3 -m http.server 3000", background=True, timeout=0)
    until(lambda: visit(sandbox.get_host(3000)).status_code == 200)
    sandbox.pause()
    assert visit(sandbox.get_host(3000)).status_code == 200
    sandbox.kill()


@example("Pause and wake again and again")
def again() -> None:
    sandbox = Sandbox.create(timeout=600, lifecycle=LIFECYCLE)
    for turn in range(3):
        sandbox.set_timeout(0)
        until(lambda: sandbox.get_info().state.value == "paused")
        assert sandbox.commands.run(f"echo {turn}").stdout == f"{turn}\n"
    sandbox.kill()


if __name__ == "__main__":
    main()
