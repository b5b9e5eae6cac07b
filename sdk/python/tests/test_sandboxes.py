"""Sandboxes: their creation, their settings and their lists, with both clients."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dormouse import Client, Sandbox
from dormouse.errors import ConflictError, InvalidArgumentError, NotFoundError
from dormouse.types import CheckpointsRequest, PortRule


def test_settings_of_a_new_sandbox_are_those_that_were_asked_for(client: Client, unique: str) -> None:
    with client.sandboxes.create(
        "base",
        name=unique,
        env={"A": "1"},
        secrets={"TOKEN": "secret"},
        labels={"l": "1"},
        annotations={"tests": {"k": "v"}},
        cpus=0.5,
        memory="256M",
        disk="2G",
        processes=100,
        egress={"allow": ["example.com"]},
        timeout=timedelta(hours=1),
        idle_timeout=1800,
        max_run=7200.0,
        timeout_after_wake=60,
        on_timeout="terminate",
        wake="any",
        keep_generations=2,
        on_suspend_failure="keep",
        on_unrestorable="fresh",
        checkpoints=CheckpointsRequest(every_secs=timedelta(hours=1), keep="3"),
        port_access="private",
        port_host="localhost:{port}",
        port_rules={8000: PortRule(access="public")},
    ) as sandbox:
        info = sandbox.info
        assert (sandbox.name, sandbox.state, info.env, info.secrets) == (unique, "running", ["A"], ["TOKEN"])
        assert info.resources.cpu_millis == 500
        assert info.resources.memory_bytes == 256 << 20
        assert info.resources.disk_bytes == 2 << 30
        assert info.resources.processes == 100
        assert info.egress == {"allow": ["example.com"]}
        assert (info.timeout_secs, info.idle_timeout_secs, info.max_run_secs) == (3600, 1800, 7200)
        assert info.timeout_after_wake_secs == 60
        assert (info.on_timeout, info.wake, info.keep_generations) == ("terminate", "any", 2)
        assert (info.on_unrestorable, info.on_suspend_failure) == ("fresh", "keep")
        assert info.checkpoints is not None
        assert (info.checkpoints.every_secs, info.checkpoints.keep) == (3600, "3")
        assert (info.port_access, info.port_host) == ("private", "localhost:{port}")
        assert info.port_rules == {"8000": PortRule(access="public")}
        assert info.labels == {"l": "1"}
        assert info.annotations == {"tests": {"k": "v"}}
        assert info.created_at.tzinfo is not None
        assert sandbox.exec("echo $A $TOKEN").stdout == "1 secret\n"
    assert sandbox.state == "terminated"


def test_a_sandbox_without_a_name_cannot_be_suspended_with_its_memory(sandbox: Sandbox) -> None:
    assert (sandbox.name, sandbox.info.suspendable) == (None, False)
    with pytest.raises(ConflictError):
        sandbox.suspend()


@pytest.mark.parametrize("image", ["no-such-image", "sha256:00000000"])
def test_an_unknown_image_is_an_error(client: Client, image: str) -> None:
    with pytest.raises((NotFoundError, InvalidArgumentError)) as caught:
        client.sandboxes.create(image, pull="never")
    assert caught.value.message


@pytest.mark.parametrize(
    "options",
    [
        {"name": "Not A Name"},
        {"timeout": 0},
        {"memory": 5},
        {"labels": {"a": 1}},
        {"port_access": "nobody"},
        {"wake": 7},
        {"snapshot": "also"},
        {"egress": {"allow": ["not a host!"]}},
    ],
    ids=lambda options: next(iter(options)),
)
def test_invalid_settings_are_refused(client: Client, options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.sandboxes.create("base", **options)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.status) == ("invalid_argument", 400)


def test_a_name_is_taken_once(client: Client, named: Sandbox) -> None:
    assert named.name is not None
    with pytest.raises(ConflictError, match=named.name) as caught:
        client.sandboxes.create("base", name=named.name)
    assert caught.value.next_step


def test_an_idempotency_key_makes_one_sandbox(client: Client, unique: str) -> None:
    with client.sandboxes.create("base", idempotency_key=unique) as first:
        again = client.sandboxes.create("base", idempotency_key=unique)
        assert again.id == first.id
        with pytest.raises(InvalidArgumentError) as caught:
            client.sandboxes.create("base", labels={"other": "request"}, idempotency_key=unique)
        assert caught.value.status == 422


def test_a_sandbox_is_found_by_name_and_by_id(client: Client, named: Sandbox) -> None:
    assert named.name is not None
    assert client.sandboxes.connect(named.name).id == named.id
    with client.sandboxes.connect(named.id) as connected:
        assert connected.info.name == named.name
    assert named.refresh().state == "running"


@pytest.mark.parametrize("unknown", ["no-such-sandbox", "aaaaaaaaaaaaaaaaaaaa", "A B/C", "../../v1/info"])
def test_an_unknown_sandbox_is_an_error(client: Client, unknown: str) -> None:
    with pytest.raises((NotFoundError, InvalidArgumentError)):
        client.sandboxes.connect(unknown)


def test_the_end_of_a_with_does_what_was_chosen(client: Client, unique: str) -> None:
    with client.sandboxes.create("base", name=unique, on_exit="suspend") as sandbox:
        pass
    assert sandbox.state == "suspended"
    with client.sandboxes.connect(sandbox.id):
        pass
    assert sandbox.refresh().state == "suspended"
    with client.sandboxes.connect(sandbox.id, on_exit="terminate"):
        pass
    assert sandbox.refresh().state == "terminated"


def test_an_error_in_a_with_terminates_the_sandbox_and_is_raised(client: Client) -> None:
    with pytest.raises(ZeroDivisionError), client.sandboxes.create("base") as sandbox:
        raise ZeroDivisionError
    assert sandbox.refresh().state == "terminated"


def test_terminating_twice_succeeds(client: Client) -> None:
    sandbox = client.sandboxes.create("base")
    assert sandbox.terminate().changed
    assert sandbox.terminate().changed is False
    assert sandbox.delete().state == "terminated"


def test_a_terminated_sandbox_is_gone(client: Client) -> None:
    with client.sandboxes.create("base") as sandbox:
        pass
    with pytest.raises(Exception, match="terminated") as caught:
        sandbox.exec("true")
    assert getattr(caught.value, "code", None) == "gone"


def test_lists_select_by_label_name_and_state(client: Client, unique: str) -> None:
    label = {"suite": unique}
    with (
        client.sandboxes.create("base", labels=label) as one,
        client.sandboxes.create("base", labels={**label, "second": "yes"}, name=unique) as two,
    ):
        assert {found.id for found in client.sandboxes.list(labels=label, limit=1)} == {one.id, two.id}
        assert [found.id for found in client.sandboxes.list(labels={**label, "second": "yes"})] == [two.id]
        assert [found.id for found in client.sandboxes.list(name=unique)] == [two.id]
        two.suspend()
        assert [f.id for f in client.sandboxes.list(labels=label, state="suspended")] == [two.id]
        both = client.sandboxes.list(
            labels=label, state=["running", "suspended"], sort="created", order="desc"
        )
        assert [found.id for found in both] == [two.id, one.id]
    assert [found.state for found in client.sandboxes.list(labels=label)] == ["terminated", "terminated"]


def test_an_invalid_filter_is_refused(client: Client) -> None:
    with pytest.raises(InvalidArgumentError):
        list(client.sandboxes.list(state="sleeping"))  # type: ignore[arg-type]


def test_properties_are_updated_together_or_not_at_all(client: Client, named: Sandbox) -> None:
    named.update(labels={"a": "1", "b": "2"}, annotations={"tests": {"k": "v"}}, wake="never")
    info = named.update(
        labels={"a": None}, port_rules={80: PortRule(access="private")}, on_timeout="terminate"
    )
    assert (info.labels, info.wake, info.on_timeout) == ({"b": "2"}, "never", "terminate")
    assert info.annotations == {"tests": {"k": "v"}}
    assert named.update(port_rules={80: PortRule()}).port_rules == {}
    with pytest.raises(InvalidArgumentError):
        named.update(name="Not A Name", labels={"c": "3"})
    assert "c" not in named.refresh().labels


def test_a_change_can_depend_on_the_revision(named: Sandbox) -> None:
    before = named.refresh().revision
    assert before is not None
    named.update(labels={"a": "1"})
    with pytest.raises(ConflictError) as caught:
        named.with_options(if_revision=before).update(labels={"a": "2"})
    assert caught.value.status == 412
    assert named.info.revision is not None
    named.with_options(if_revision=named.info.revision).update(labels={"a": "3"})
    assert named.refresh().labels == {"a": "3"}


def test_limits_of_cpu_and_memory_are_changed_while_it_runs(named: Sandbox) -> None:
    info = named.resize(cpus=1.5, memory="300M")
    assert (info.resources.cpu_millis, info.resources.memory_bytes) == (1500, 300 << 20)
    assert named.resize(memory=256 << 20).resources.cpu_millis == 1500


def test_the_egress_policy_is_replaced(named: Sandbox) -> None:
    assert named.set_egress("closed").egress == "closed"
    ordered = {
        "ordered": {"rules": [{"deny": "203.0.113.0/24"}, {"allow": "*.example.com"}], "default": "deny"}
    }
    assert named.set_egress(ordered).egress == ordered  # type: ignore[arg-type]
    with pytest.raises((InvalidArgumentError, ConflictError)):
        named.set_egress("none")


def test_time_limits_are_extended_and_replaced(client: Client) -> None:
    with client.sandboxes.create("base", timeout=600) as sandbox:
        first = sandbox.info.expires_at
        assert first is not None
        extended = sandbox.extend(timedelta(hours=2)).expires_at
        assert extended is not None
        assert extended - first > timedelta(minutes=100)
        assert sandbox.extend(60).expires_at == extended
        assert sandbox.set_timeouts(idle_timeout=900).timeout_secs is None
        assert sandbox.info.idle_timeout_secs == 900


def test_a_hold_is_made_renewed_and_released(named: Sandbox) -> None:
    hold = named.hold("a long build", timedelta(minutes=10))
    assert hold.reason == "a long build"
    renewed = named.hold("still building", 1200, renew=hold.id)
    assert (renewed.id, renewed.until > hold.until) == (hold.id, True)
    assert [held.id for held in named.refresh().holds] == [hold.id]
    assert named.release(hold.id).holds == []


def test_retention_and_checkpoints_are_set(named: Sandbox) -> None:
    info = named.set_retention(keep_generations=3, on_unrestorable="fresh")
    assert (info.keep_generations, info.on_unrestorable) == (3, "fresh")
    policy = named.set_checkpoints(every=timedelta(minutes=10), keep="2", kind="memory").checkpoints
    assert policy is not None
    assert (policy.every_secs, policy.kind) == (600, "memory")
    assert named.set_checkpoints(off=True).checkpoints is None


def test_why_usage_and_metrics_describe_the_sandbox(sandbox: Sandbox) -> None:
    why = sandbox.why()
    assert why.sandbox == sandbox.id
    assert "running" in why.summary
    assert sandbox.usage().memory_bytes > 0
    assert sandbox.metrics(since=sandbox.info.created_at).samples is not None
