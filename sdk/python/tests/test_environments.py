"""Environments with both clients: each way to a sandbox, setups, drift, leases and removal."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from conftest import Connect, eventually

from dormouse import Client, EnsureParameters, SetupError, parallel
from dormouse.errors import ApiError, ConflictError, GoneError, InvalidArgumentError, NotFoundError
from dormouse.types import (
    Environment,
    EnvironmentLifecycle,
    EnvironmentLogLine,
    EnvironmentSource,
    EnvironmentThread,
    GitSource,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


@pytest.fixture
def key(client: Client, unique: str) -> Iterator[str]:
    """A key. Environments whose key or thread begins with it are removed at the end."""
    yield unique
    for environment in client.environments.list():
        name = environment.key or (environment.thread.thread if environment.thread else "")
        if name.startswith(unique):
            client.environments.remove(environment.id)


@pytest.fixture
def asked(key: str) -> EnsureParameters:
    """An environment with a definition that no other test has."""
    return {"image": "base", "setup": [f"echo {key} > /root/made"]}


def but(asked: EnsureParameters, **changes: Unpack[EnsureParameters]) -> EnsureParameters:
    """Return the parameters with changes."""
    return {**asked, **changes}


def with_lifecycle(asked: EnsureParameters, **lifecycle: Any) -> EnsureParameters:
    return but(asked, lifecycle=EnvironmentLifecycle(**lifecycle))


def running_step(client: Client, key: str) -> Environment | None:
    """Return an environment while a step of its setup runs."""
    try:
        environment = client.environments.get(key)
    except NotFoundError:
        return None
    steps = environment.attempt.steps if environment.attempt else []
    return environment if any(step.state == "running" for step in steps) else None


def test_an_environment_is_created_once_and_then_live(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    created = client.environments.ensure(key, **asked)
    assert (created.by, created.joined, created.lease, created.snapshot_failure) == (
        "created",
        False,
        None,
        None,
    )
    assert [phase.name for phase in created.phases] == ["create", "setup", "snapshot", "restore"]
    assert [(step.state, step.exit_code) for step in created.steps] == [("done", 0)]
    assert (created.environment.key, created.environment.state) == (key, "ready")
    assert [(one.way, one.verdict) for one in created.considered][-1] == ("create", "taken")
    live = client.environments.ensure(key, **asked)
    assert (live.by, live.sandbox.id, live.steps) == ("live", created.sandbox.id, [])
    assert live.sandbox.exec("cat /root/made").stdout == f"{key}\n"


def test_a_suspended_sandbox_is_resumed_with_its_memory(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    first = client.environments.ensure(key, **asked)
    process = first.sandbox.start("sleep 600")
    first.sandbox.suspend()
    resumed = client.environments.ensure(key, **asked)
    assert (resumed.by, resumed.sandbox.id, list(resumed.lost)) == ("resumed", first.sandbox.id, [])
    assert resumed.sandbox.processes.get(process.handle).info().exit is None


def test_a_terminated_sandbox_is_restored_from_its_snapshot(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    first = client.environments.ensure(key, **asked)
    first.sandbox.files.write("/root/later", "lost")
    first.sandbox.terminate()
    restored = client.environments.ensure(key, **asked)
    assert restored.by == "restored"
    assert restored.restored is not None
    assert (restored.restored.new, restored.restored.shared) == (False, False)
    assert restored.restored.snapshot == first.environment.snapshot
    assert first.sandbox.id in restored.lost[0]
    assert restored.sandbox.files.read_text("/root/made") == f"{key}\n"
    assert not restored.sandbox.files.exists("/root/later")
    reasons = {one.way: one.reason or "" for one in restored.considered}
    assert "terminated" in reasons["live"]


def test_keys_with_the_same_definition_share_a_setup(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    first = client.environments.ensure(key, **asked)
    second = client.environments.ensure(f"{key}-second", **asked)
    assert second.by == "restored"
    assert second.restored is not None
    assert second.restored.shared
    assert second.sandbox.id != first.sandbox.id
    assert second.environment.workspace == first.environment.workspace


def test_callers_at_the_same_time_get_one_sandbox(client: Client, key: str, asked: EnsureParameters) -> None:
    asked["setup"] = [*asked["setup"], "sleep 1"]
    with ThreadPoolExecutor(6) as pool:
        all_of_them = list(pool.map(lambda _: client.environments.ensure(key, **asked), range(6)))
    assert len({ensured.sandbox.id for ensured in all_of_them}) == 1
    assert sum(ensured.by == "created" and not ensured.joined for ensured in all_of_them) == 1


def test_a_caller_joins_the_work_in_progress(client: Client, key: str, asked: EnsureParameters) -> None:
    asked["setup"] = [*asked["setup"], "sleep 2"]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: client.environments.ensure(key, **asked))
        eventually(lambda: running_step(client, key))
        second = client.environments.ensure(key, **asked)
        assert (second.joined, second.by) == (True, "created")
        assert second.sandbox.id == first.result().sandbox.id


def test_parallel_steps_run_at_the_same_time(client: Client, key: str, asked: EnsureParameters) -> None:
    # Each command waits for the other one, so they end only if both run.
    wait = parallel("echo one > /root/a; cat /root/b", "cat /root/a; echo two > /root/b")
    made = client.environments.ensure(
        key, **but(asked, setup=[*asked["setup"], "mkfifo /root/a /root/b", wait])
    )
    assert [step.title for step in made.steps][-2:] == wait.parallel
    assert {step.state for step in made.steps} == {"done"}


def test_a_step_that_fails_is_named(client: Client, key: str, asked: EnsureParameters) -> None:
    asked["setup"] = ["echo fine", "echo broken >&2; exit 7", "echo never"]
    with pytest.raises(SetupError) as caught:
        client.environments.ensure(key, **asked)
    error = caught.value
    assert error.step is not None
    assert (error.step.title, error.step.state) == ("echo broken >&2; exit 7", "failed")
    assert (error.failure.step, error.exit_code, error.kept) == (1, 7, None)
    assert (error.code, error.environment.key, error.environment.state) == ("failed", key, "idle")
    assert "broken" in error.message
    assert isinstance(error.__cause__, ApiError)
    assert [line.text for line in client.environments.logs(key).lines if line.stream == "stderr"] == [
        "broken"
    ]


def test_the_sandbox_of_a_failed_step_can_be_kept(client: Client, key: str, asked: EnsureParameters) -> None:
    asked["setup"] = ["echo evidence > /root/evidence; false"]
    with pytest.raises(SetupError) as caught:
        client.environments.ensure(key, **with_lifecycle(asked, keep_failed=True))
    assert caught.value.kept is not None
    with client.sandboxes.connect(caught.value.kept, on_exit="terminate") as kept:
        assert kept.files.read_text("/root/evidence") == "evidence\n"


def test_a_step_has_a_time_limit(client: Client, key: str, asked: EnsureParameters) -> None:
    with pytest.raises(SetupError) as caught:
        client.environments.ensure(key, **but(asked, setup=["sleep 600"], step_timeout=1))
    assert (caught.value.code, caught.value.exit_code) == ("timed_out", None)


def test_a_clone_that_fails_is_a_step(client: Client, key: str, asked: EnsureParameters) -> None:
    source = GitSource(url="http://127.0.0.1:9/app.git", ref="main", token="hidden")
    with pytest.raises(SetupError) as caught:
        client.environments.ensure(key, **but(asked, source=source))
    assert caught.value.step is not None
    assert caught.value.step.title == "clone http://127.0.0.1:9/app.git main"


def test_explain_says_what_would_happen_and_changes_nothing(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    before = client.environments.explain(key, **asked)
    assert (before.environment, before.joins, before.refused) == (None, False, None)
    assert [one.way for one in before.considered if one.verdict == "taken"] == ["create"]
    with pytest.raises(NotFoundError):
        client.environments.get(key)
    made = client.environments.ensure(key, **asked)
    after = client.environments.explain(key, **asked)
    assert (after.environment, after.workspace) == (made.environment.id, before.workspace)
    assert [one.way for one in after.considered if one.verdict == "taken"] == ["live"]
    changed = client.environments.explain(
        key, **with_lifecycle(but(asked, setup=["true"]), on_drift="refuse")
    )
    assert changed.drift == ["setup"]
    assert changed.refused is not None


def test_drift_is_refused(client: Client, key: str, asked: EnsureParameters) -> None:
    client.environments.ensure(key, **asked)
    with pytest.raises(ConflictError, match="setup"):
        client.environments.ensure(
            key, **with_lifecycle(but(asked, setup=[f"true {key}"]), on_drift="refuse")
        )


def test_drift_is_kept(client: Client, key: str, asked: EnsureParameters) -> None:
    first = client.environments.ensure(key, **asked)
    kept = client.environments.ensure(
        key, **with_lifecycle(but(asked, setup=[f"true {key}"]), on_drift="keep")
    )
    assert (kept.sandbox.id, list(kept.drift)) == (first.sandbox.id, ["setup"])


def test_drift_rebuilds_and_retires_the_earlier_sandbox(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    first = client.environments.ensure(key, **asked)
    rebuilt = client.environments.ensure(key, **but(asked, setup=[f"true {key}"]))
    assert (rebuilt.by, list(rebuilt.drift)) == ("created", [])
    assert rebuilt.environment.retired == [first.sandbox.id]
    assert rebuilt.sandbox.id != first.sandbox.id


def test_a_thread_is_found_again_by_all_of_its_fields(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    thread = EnvironmentThread(thread=key, definition="agent", user="ann")
    first = client.environments.ensure(thread=thread, **asked)
    assert first.environment.thread == thread
    assert client.environments.ensure(thread=thread, **asked).sandbox.id == first.sandbox.id
    other = EnvironmentThread(thread=key, definition="agent", user="bob")
    assert client.environments.ensure(thread=other, **asked).sandbox.id != first.sandbox.id


def test_an_environment_without_reuse_is_for_one_request(client: Client, asked: EnsureParameters) -> None:
    once = with_lifecycle(asked, reuse="none")
    both = [client.environments.ensure(**once) for _ in range(2)]
    assert len({ensured.sandbox.id for ensured in both}) == 2
    for ensured in both:
        client.environments.remove(ensured.environment.id)


def test_parameters_reach_the_sandbox(client: Client, key: str, asked: EnsureParameters) -> None:
    asked = but(
        asked,
        directory="/srv/code",
        env={"COLOUR": "red"},
        labels={"team": "one"},
        cpus=0.5,
        memory="256M",
        egress="closed",
        start_command="echo started > started; exec sleep 600",
        ready_command="test -e started",
    )
    made = client.environments.ensure(key, **asked)
    info = made.sandbox.info
    assert (info.resources.cpu_millis, info.resources.memory_bytes) == (500, 256 << 20)
    assert (info.egress, info.labels["team"]) == ("closed", "one")
    assert made.sandbox.exec("echo $COLOUR $(cat /srv/code/started)").stdout == "red started\n"


def test_progress_is_told_to_a_callback(client: Client, key: str, asked: EnsureParameters) -> None:
    events: list[Any] = []
    client.environments.ensure(key, **but(asked, setup=["echo one; echo two"]), on_event=events.append)
    assert type(events[0]).__name__ == "WaysConsidered"
    assert events[0].ways[-1].way == "create"
    states = [event.state for event in events if isinstance(event, Environment)]
    assert set(states) == {"working"}
    lines = [event for event in events if isinstance(event, EnvironmentLogLine)]
    assert [line.text for line in lines if line.stream == "stdout"] == ["one", "two"]
    assert [line.offset for line in lines] == list(range(len(lines)))


def test_progress_is_a_stream_whose_last_event_is_the_result(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    with client.environments.ensure_events(key, **asked) as stream:
        events: list[Any] = list(stream)
    assert events[-1].by == "created"
    live: list[Any] = list(client.environments.ensure_events(key, **asked))
    assert len(live) == 2
    assert live[-1].sandbox.id == events[-1].sandbox.id


def test_a_stream_raises_the_error_of_the_setup(client: Client, key: str, asked: EnsureParameters) -> None:
    with (
        client.environments.ensure_events(key, **but(asked, setup=["exit 3"])) as events,
        pytest.raises(SetupError) as caught,
    ):
        list(events)
    assert caught.value.exit_code == 3


def test_work_is_cancelled_if_its_only_caller_leaves(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    slow = but(asked, setup=["sleep 600"], on_leave="cancel")
    with client.environments.ensure_events(key, **slow) as events:
        while running_step(client, key) is None:
            next(iter(events))
    attempt = eventually(
        lambda: (found := client.environments.get(key).attempt) and found.state != "running" and found
    )
    assert cast("Any", attempt).state == "cancelled"


def test_work_can_be_cancelled(client: Client, key: str, asked: EnsureParameters) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: client.environments.ensure(key, **but(asked, setup=["sleep 600"])))
        eventually(lambda: running_step(client, key))
        cancelled = client.environments.cancel(key)
        assert cancelled.attempt is not None
        assert (cancelled.state, cancelled.attempt.state) == ("idle", "cancelled")
        with pytest.raises(ConflictError, match="cancelled"):
            waiting.result()


def test_logs_are_read_in_parts(client: Client, key: str, asked: EnsureParameters) -> None:
    client.environments.ensure(key, **but(asked, setup=["seq 1 20"]))
    first = client.environments.logs(key, lines=5)
    rest = client.environments.logs(key, offset=first.next_offset, wait=60)
    assert (len(first.lines), first.next_offset, rest.in_progress) == (5, 5, False)
    stdout = [line.text for line in [*first.lines, *rest.lines] if line.stream == "stdout"]
    assert stdout == [str(number) for number in range(1, 21)]


def test_environments_are_listed(client: Client, key: str, asked: EnsureParameters) -> None:
    made = client.environments.ensure(key, **asked)
    listed = {environment.id: environment for environment in client.environments.list(limit=1)}
    assert listed[made.environment.id].key == key
    assert client.environments.get(made.environment.id).sandbox == made.sandbox.id


def test_a_removed_environment_is_gone_with_its_sandbox(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    made = client.environments.ensure(key, **asked)
    client.environments.remove(key)
    made.sandbox.refresh()
    assert made.sandbox.state == "terminated"
    for call in (client.environments.get, client.environments.remove, client.environments.cancel):
        with pytest.raises(NotFoundError):
            cast("Callable[[str], object]", call)(key)
    # The snapshot is deleted in the background.
    eventually(lambda: made.environment.snapshot not in [one.id for one in client.snapshots.list()])


def test_secrets_reach_the_setup_and_are_hidden_in_logs(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    client.secrets.set(key, "very-hidden-value")
    try:
        made = client.environments.ensure(
            key, **but(asked, secrets={"TOKEN": key}, setup=[f"true {key}; echo $TOKEN"])
        )
        assert made.sandbox.exec("echo $TOKEN").stdout == "very-hidden-value\n"
        texts = [line.text for line in client.environments.logs(key).lines]
        assert "***" in texts
        assert not any("hidden" in text for text in texts)
        client.environments.remove(key)
    finally:
        client.secrets.delete(key)


def test_a_local_directory_is_uploaded(
    client: Client, key: str, asked: EnsureParameters, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("print('hello')\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\nexec python3 src/main.py\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "link").symlink_to("src/main.py")
    (tmp_path / "large.log").write_text("excluded")
    (tmp_path / ".dockerignore").write_text("*.log\n")
    asked = but(asked, source=tmp_path, setup=[*asked["setup"], "./run.sh > out"])
    made = client.environments.ensure(key, **asked)
    shown = made.sandbox.exec("cd /workspace && cat out link && ls", check=True).stdout.split("\n")
    assert shown == ["hello", "print('hello')", "link", "out", "run.sh", "src", ""]
    os.utime(tmp_path / "run.sh", (0, 0))
    assert client.environments.ensure(key, **asked).by == "live"
    (tmp_path / "src" / "main.py").write_text("print('changed')\n")
    assert client.environments.explain(key, **asked).drift == ["source"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"key": None}, InvalidArgumentError),
        ({"thread": EnvironmentThread(thread="a", definition="b")}, InvalidArgumentError),
        ({"image": "no-such-image"}, NotFoundError),
        ({"snapshot": "nosuchsnapshot"}, InvalidArgumentError),
        ({"setup": [""]}, InvalidArgumentError),
        ({"secrets": {"A": "no-such-secret"}}, InvalidArgumentError),
        ({"source": GitSource(url="file:///etc")}, InvalidArgumentError),
        ({"source": EnvironmentSource()}, InvalidArgumentError),
        ({"source": "/no/such/directory"}, FileNotFoundError),
        ({"directory": "relative"}, InvalidArgumentError),
        ({"lifecycle": EnvironmentLifecycle(keep_alive_secs=-1)}, InvalidArgumentError),
        ({"lease": 90_000}, InvalidArgumentError),
        ({"memory": "much"}, ValueError),
        ({"imgae": "base"}, TypeError),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value.__name__,
)
def test_a_bad_request_is_refused(
    client: Client, key: str, asked: EnsureParameters, change: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.environments.ensure(**{"key": key, **asked, **change})


def test_a_lease_is_taken_renewed_and_released(client: Client, key: str, asked: EnsureParameters) -> None:
    made = client.environments.ensure(key, **asked, lease=60)
    assert made.lease is not None
    assert [lease.id for lease in client.environments.get(key).leases] == [made.lease.id]
    assert client.environments.renew_lease(key, made.lease.id, 3600).expires_at > made.lease.expires_at
    assert client.environments.release(key, lease=made.lease.id).leases == []
    assert client.environments.release(key, lease=made.lease.id).leases == []
    with pytest.raises(GoneError):
        client.environments.renew_lease(key, made.lease.id, 60)


def test_a_complete_run_can_take_a_snapshot_and_end_the_sandbox(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    asked = with_lifecycle(asked, snapshot="after_run", destroy_on_complete=True)
    with client.environments.run(key, **asked) as run:
        run.sandbox.files.write("/root/result", "kept")
        assert len(client.environments.get(key).leases) == 1
    environment = client.environments.get(key)
    assert (environment.leases, environment.sandbox) == ([], None)
    assert environment.snapshot is not None
    with client.environments.run(key, **asked) as again:
        assert again.ensured.by == "restored"
        assert again.sandbox.files.read_text("/root/result") == "kept"


def test_a_failed_run_takes_no_snapshot_and_keeps_its_error(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    with (
        pytest.raises(KeyError, match="mistake"),
        client.environments.run(key, **with_lifecycle(asked, snapshot="after_run")),
    ):
        raise KeyError("mistake")
    environment = client.environments.get(key)
    assert (environment.leases, environment.snapshot) == ([], None)


def test_a_failed_run_keeps_its_error_also_if_its_environment_is_removed(
    client: Client, key: str, asked: EnsureParameters
) -> None:
    with pytest.raises(KeyError, match="mistake"), client.environments.run(key, **asked):
        client.environments.remove(key)
        raise KeyError("mistake")


def test_a_run_renews_its_lease(client: Client, key: str, asked: EnsureParameters) -> None:
    with client.environments.run(key, **asked, lease=3) as run:
        assert run.ensured.lease is not None
        first = run.ensured.lease.expires_at
        eventually(lambda: client.environments.get(key).leases[0].expires_at > first)
    assert client.environments.get(key).state == "ready"


def test_a_run_whose_lease_is_lost_says_so(client: Client, key: str, asked: EnsureParameters) -> None:
    with pytest.raises(GoneError), client.environments.run(key, **asked, lease=1.5) as run:
        assert run.ensured.lease is not None
        client.environments.release(key, lease=run.ensured.lease.id)
        eventually(lambda: run.renewal_error)


def test_runs_of_several_programs_share_an_environment(
    client: Client, connect: Connect, key: str, asked: EnsureParameters
) -> None:
    asked = with_lifecycle(asked, destroy_on_complete=True)
    began, end = threading.Event(), threading.Event()

    def other() -> None:
        with connect().environments.run(key, **asked):
            began.set()
            end.wait(60)

    with ThreadPoolExecutor(1) as pool:
        with client.environments.run(key, **asked) as run:
            waiting = pool.submit(other)
            assert began.wait(60)
        run.sandbox.refresh()
        assert run.sandbox.state == "running"
        end.set()
        waiting.result()
    assert client.sandboxes.connect(run.sandbox.id).state == "terminated"
