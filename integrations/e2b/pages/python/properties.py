"""Sandbox: metadata, list, connect, environment variables, metrics."""

from e2b import Sandbox, SandboxQuery, SandboxState

from pages import example, main, until


@example("Metadata: set and find")
def metadata() -> None:
    sandbox = Sandbox.create(metadata={"userId": "123"})
    running = Sandbox.list(query=SandboxQuery(metadata={"userId": "123"})).next_items()
    assert [item.metadata for item in running] == [{"userId": "123"}]
    sandbox.kill()


@example("Metadata: all pairs must match")
def several() -> None:
    sandbox = Sandbox.create(metadata={"env": "dev", "app": "my-app", "userId": "1234"})
    query = SandboxQuery(metadata={"userId": "1234", "env": "dev"})
    assert len(Sandbox.list(query=query).next_items()) == 1
    query = SandboxQuery(metadata={"userId": "1234", "env": "prod"})
    assert Sandbox.list(query=query).next_items() == []
    sandbox.kill()


@example("List: pages")
def pages() -> None:
    made = [Sandbox.create(metadata={"page": "list"}) for _ in range(3)]
    paginator = Sandbox.list(limit=2, query=SandboxQuery(metadata={"page": "list"}))
    first = paginator.next_items()
    assert (len(first), paginator.has_next) == (2, True)
    rest = Sandbox.list(limit=2, next_token=paginator.next_token, query=SandboxQuery(metadata={"page": "list"}))
    assert (len(rest.next_items()), rest.has_next) == (1, False)
    for sandbox in made:
        sandbox.kill()


@example("List: by state")
def states() -> None:
    sandbox = Sandbox.create(metadata={"page": "states"})
    sandbox.pause()
    query = SandboxQuery(metadata={"page": "states"}, state=[SandboxState.RUNNING, SandboxState.PAUSED])
    (found,) = Sandbox.list(query=query).next_items()
    assert found.state == SandboxState.PAUSED
    sandbox.kill()


@example("Connect to a running sandbox")
def connect() -> None:
    sandbox = Sandbox.create(metadata={"page": "connect"})
    (found,) = Sandbox.list(query=SandboxQuery(metadata={"page": "connect"})).next_items()
    same = Sandbox.connect(found.sandbox_id)
    assert same.commands.run("whoami").stdout == "user\n"
    sandbox.kill()


@example("Environment variables: of the sandbox")
def variables() -> None:
    sandbox = Sandbox.create(envs={"MY_VAR": "my_value"})
    assert sandbox.commands.run("echo $MY_VAR").stdout == "my_value\n"
    sandbox.kill()


@example("Environment variables: of one command")
def variables_of_command() -> None:
    sandbox = Sandbox.create()
    assert sandbox.commands.run("echo $MY_VAR", envs={"MY_VAR": "123"}).stdout == "123\n"
    sandbox.kill()


@example("Environment variables: of one run of code")
def variables_of_code() -> None:
    from e2b_code_interpreter import Sandbox as Interpreter

    sandbox = Interpreter.create()
    execution = sandbox.run_code('import os; print(os.environ.get("MY_VAR"))', envs={"MY_VAR": "my_value"})
    assert execution.logs.stdout == ["my_value\n"]
    sandbox.kill()


@example("Environment variables: what is always set")
def always() -> None:
    sandbox = Sandbox.create()
    said = sandbox.commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID").stdout
    assert said == f"true {sandbox.sandbox_id}\n"
    sandbox.kill()


@example("Metrics")
def metrics() -> None:
    sandbox = Sandbox.create()
    found = until(sandbox.get_metrics)
    assert found[0].cpu_count >= 1
    assert 0 < found[0].mem_used <= found[0].mem_total
    assert 0 < found[0].disk_used <= found[0].disk_total
    assert Sandbox.get_metrics(sandbox.sandbox_id)
    sandbox.kill()


if __name__ == "__main__":
    main()
