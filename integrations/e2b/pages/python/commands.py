"""Commands: running, streaming, in the background; and the interactive terminal."""

import threading

from e2b import CommandExitException, PtySize, Sandbox

from pages import example, main, until


@example("Run a command")
def run() -> None:
    sandbox = Sandbox.create()
    result = sandbox.commands.run("ls -l /")
    assert result.exit_code == 0
    assert "etc" in result.stdout
    sandbox.kill()


@example("A command that fails")
def fail() -> None:
    sandbox = Sandbox.create()
    try:
        sandbox.commands.run("exit 1")
        raise AssertionError("it did not fail")
    except CommandExitException as error:
        assert error.exit_code == 1
    sandbox.kill()


@example("Stream output")
def stream() -> None:
    sandbox = Sandbox.create()
    out: list[str] = []
    err: list[str] = []
    command = "echo hello; sleep 1; echo world; echo problem >&2"
    sandbox.commands.run(command, on_stdout=out.append, on_stderr=err.append)
    assert ("".join(out), "".join(err)) == ("hello\nworld\n", "problem\n")
    sandbox.kill()


@example("Run in the background, and kill")
def background() -> None:
    sandbox = Sandbox.create()
    command = sandbox.commands.run("echo hello; sleep 10; echo world", background=True)
    for stdout, _, _ in command:
        assert stdout == "hello\n"
        break
    assert command.kill()
    sandbox.kill()


@example("Send input")
def send_input() -> None:
    sandbox = Sandbox.create()
    command = sandbox.commands.run("read name; echo hello $name", background=True, stdin=True)
    sandbox.commands.send_stdin(command.pid, "page\n")
    assert command.wait().stdout == "hello page\n"
    sandbox.kill()


@example("Interactive terminal: create, send, resize")
def terminal() -> None:
    sandbox = Sandbox.create()
    shell = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=0)
    said: list[bytes] = []
    reader = threading.Thread(target=lambda: shell.wait(on_pty=said.append), daemon=True)
    reader.start()
    sandbox.pty.send_stdin(shell.pid, b"echo $((40 + 2))\n")
    until(lambda: b"42" in b"".join(said) and b"".join(said).endswith(b"$ "))
    sandbox.pty.resize(shell.pid, PtySize(rows=30, cols=100))
    sandbox.pty.send_stdin(shell.pid, b"stty size\n")
    until(lambda: b"30 100" in b"".join(said))
    sandbox.pty.send_stdin(shell.pid, b"exit\n")
    reader.join()
    sandbox.kill()


@example("Interactive terminal: disconnect and reconnect")
def reconnect() -> None:
    sandbox = Sandbox.create()
    shell = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=0)
    shell.disconnect()
    same = sandbox.pty.connect(shell.pid, timeout=0)
    sandbox.pty.send_stdin(shell.pid, b"echo $((40 + 2)); exit\n")
    said: list[bytes] = []
    same.wait(on_pty=said.append)
    assert b"42" in b"".join(said)
    sandbox.kill()


@example("Interactive terminal: kill")
def kill_terminal() -> None:
    sandbox = Sandbox.create()
    shell = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=0)
    assert sandbox.pty.kill(shell.pid)
    until(lambda: not sandbox.pty.kill(shell.pid))
    sandbox.kill()


if __name__ == "__main__":
    main()
