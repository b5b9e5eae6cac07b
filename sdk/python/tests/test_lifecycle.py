"""Suspends, snapshots and copies, with both clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import eventually

from dormouse import Client, Sandbox
from dormouse.errors import ConflictError, InvalidArgumentError, NotFoundError
from dormouse.types import ForkChild, Snapshot

COUNTER = "i=0; while :; do i=$((i+1)); echo $i > /root/count; sleep 0.02; done"


@pytest.fixture
def counting(named: Sandbox) -> Sandbox:
    """A sandbox with a program that counts in its memory."""
    named.start(COUNTER)
    eventually(lambda: named.files.exists("/root/count"))
    return named


@pytest.fixture
def snapshot(client: Client, named: Sandbox) -> Iterator[Snapshot]:
    """A snapshot of the files of the sandbox `named`."""
    named.files.write("/root/saved", "yes")
    snapshot = named.checkpoint(labels={"test": "yes"})
    yield snapshot
    named.terminate()
    client.snapshots.delete(snapshot.id)


def counts_on(sandbox: Sandbox) -> bool:
    """Wait until the program in a sandbox has counted on."""

    def count() -> int:
        return int(eventually(lambda: sandbox.files.read_text("/root/count").strip()))

    before = count()
    return eventually(lambda: count() > before)


def test_a_suspended_sandbox_continues_where_it_was(counting: Sandbox) -> None:
    info = counting.suspend()
    assert (info.state, info.changed) == ("suspended", True)
    assert info.sleep_image is not None
    assert info.sleep_image.keeps == "memory"
    assert counting.suspend().changed is False
    info = counting.resume()
    assert (info.state, info.restored, info.generation) == ("running", "memory", 2)
    assert counts_on(counting)


def test_an_evicted_sandbox_continues_from_disk(counting: Sandbox) -> None:
    counting.suspend()
    assert counting.evict().residence == "evicted"
    counting.resume(timeout=600)
    assert counting.info.restored == "memory"
    assert counts_on(counting)


def test_a_suspend_can_keep_only_files(client: Client) -> None:
    with client.sandboxes.create("base") as sandbox:
        sandbox.files.write("/root/a", "kept")
        sandbox.suspend(keep="files")
        assert sandbox.resume().restored == "files"
        assert sandbox.files.read_text("/root/a") == "kept"


def test_a_command_can_be_left_to_the_daemon(client: Client, named: Sandbox) -> None:
    info = named.suspend(wait=False)
    if info.operation is not None:
        done = client.operations.get(info.operation.id, wait=60)
        assert (done.status, done.sandbox) == ("completed", named.id)
    assert named.refresh().state == "suspended"
    assert client.operations.list(sandbox=named.id) is not None


def test_a_call_wakes_the_sandbox_only_if_it_may(named: Sandbox) -> None:
    named.suspend()
    with pytest.raises(ConflictError, match="suspended"):
        named.exec("true")
    with pytest.raises(ConflictError, match="suspended"):
        named.files.read("/etc/hostname")
    assert named.with_options(wake="any").exec("echo awake").stdout == "awake\n"
    assert named.refresh().state == "running"
    named.update(wake="any")
    named.suspend()
    with pytest.raises(ConflictError):
        named.with_options(wake="never").exec("true")
    assert named.files.read("/etc/hostname")


def test_a_snapshot_of_files_boots(client: Client, named: Sandbox, snapshot: Snapshot) -> None:
    assert (snapshot.kind, snapshot.status, snapshot.source) == ("filesystem", "completed", named.id)
    with client.sandboxes.create(snapshot=snapshot.id, memory="300M") as copy:
        assert copy.info.restored == "filesystem"
        assert copy.files.read_text("/root/saved") == "yes"


def test_a_snapshot_of_memory_continues(client: Client, counting: Sandbox) -> None:
    snapshot = counting.checkpoint(kind="memory", expires=3600)
    assert snapshot.expires_at is not None
    with client.sandboxes.create(snapshot=snapshot.id) as copy:
        assert counts_on(copy)
    files = client.snapshots.files(snapshot.id)
    assert files.kind == "filesystem"
    counting.terminate()
    for made in (files, snapshot):
        client.snapshots.delete(made.id, when_free=True)


def test_snapshots_are_listed_by_source_and_name(client: Client, named: Sandbox, unique: str) -> None:
    first = named.checkpoint(name=f"{unique}:v1")
    second = named.checkpoint()
    assert [s.id for s in client.snapshots.list(source=named.id, limit=1)] == [first.id, second.id]
    assert [s.id for s in client.snapshots.list(name=f"{unique}:v1")] == [first.id]
    assert client.snapshots.get(first.id).name == f"{unique}:v1"
    with client.sandboxes.create(f"{unique}:v1") as copy:
        assert copy.info.snapshot == first.id
    named.terminate()
    client.snapshots.delete(second.id)
    client.snapshots.delete(first.id)
    with pytest.raises(NotFoundError):
        client.snapshots.get(first.id)


def test_a_checkpoint_with_a_key_is_taken_once(client: Client, named: Sandbox, unique: str) -> None:
    snapshots = {named.checkpoint(idempotency_key=unique).id for _ in range(2)}
    assert len(snapshots) == 1
    named.terminate()
    client.snapshots.delete(snapshots.pop())


def test_a_clone_continues_beside_its_source(client: Client, counting: Sandbox, unique: str) -> None:
    with counting.clone(name=f"{unique}-c", env={"NEW": "1"}, labels={"copy": "yes"}) as clone:
        assert (clone.name, clone.info.labels, clone.info.restored) == (
            f"{unique}-c",
            {"copy": "yes"},
            "memory",
        )
        assert counts_on(clone)
        assert clone.exec("echo $NEW").stdout == "1\n"
        kept = clone.info.snapshot
    assert kept is not None
    assert client.snapshots.get(kept).kind == "memory"
    counting.terminate()
    client.snapshots.delete(kept)


def test_children_of_a_fork_diverge(counting: Sandbox) -> None:
    children = counting.fork(3)
    assert len({child.id for child in children}) == 3
    for number, child in enumerate(children):
        child.files.write("/root/mine", str(number))
    assert [child.files.read_text("/root/mine") for child in children] == ["0", "1", "2"]
    for child in children:
        assert counts_on(child)
        child.terminate()


def test_children_can_have_their_own_settings(named: Sandbox, unique: str) -> None:
    settings = [ForkChild(name=f"{unique}-{n}", env={"N": str(n)}, timeout_secs=600) for n in (1, 2)]
    children = named.fork(children=settings, on_partial_failure="roll_back")
    assert [child.name for child in children] == [f"{unique}-1", f"{unique}-2"]
    assert [child.exec("echo $N").stdout for child in children] == ["1\n", "2\n"]
    for child in children:
        child.terminate()


def test_a_fork_with_a_taken_name_makes_nothing(client: Client, named: Sandbox, unique: str) -> None:
    with pytest.raises(ConflictError, match="is taken"):
        named.fork(children=[ForkChild(name=f"{unique}-1"), ForkChild(name=named.name)])
    assert list(client.sandboxes.list(name=f"{unique}-1")) == []


@pytest.mark.parametrize("options", [{"count": 0}, {"count": 100_000}, {}], ids=str)
def test_an_impossible_fork_is_refused(named: Sandbox, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        named.fork(**options)


def test_a_rewind_brings_files_back_and_keeps_the_future(
    client: Client, named: Sandbox, snapshot: Snapshot
) -> None:
    named.files.write("/root/saved", "changed")
    rewound = named.rewind(snapshot.id, keep=3600)
    assert (rewound.to, named.info.rewound_to) == (snapshot.id, snapshot.id)
    assert named.files.read_text("/root/saved") == "yes"
    assert rewound.future is not None
    client.snapshots.delete(rewound.future, when_free=True)
    assert named.rewind(snapshot.id, keep="none").future is None


def test_a_rewind_to_something_unknown_changes_nothing(named: Sandbox) -> None:
    named.files.write("/root/a", "1")
    with pytest.raises(NotFoundError):
        named.rewind("aaaaaaaaaaaaaaaaaaaa")
    assert named.files.read_text("/root/a") == "1"


def test_a_promoted_child_replaces_its_parent(named: Sandbox) -> None:
    (child,) = named.fork(1)
    child.files.write("/root/better", "yes")
    promoted = child.promote(keep="none")
    assert (promoted.child, promoted.sandbox.id) == (child.id, named.id)
    assert child.refresh().state == "terminated"
    assert named.files.read_text("/root/better") == "yes"


def test_a_terminated_sandbox_is_restarted_from_its_snapshot(
    client: Client, named: Sandbox, snapshot: Snapshot
) -> None:
    named.terminate()
    with named.restart() as again:
        assert (again.name, again.info.snapshot) == (named.name, snapshot.id)
        assert again.id != named.id
        assert again.files.read_text("/root/saved") == "yes"


def test_a_diff_shows_changes_since_a_snapshot(client: Client, named: Sandbox, snapshot: Snapshot) -> None:
    named.files.write("/root/new", "x")
    named.files.remove("/root/saved")
    diff = named.diff(snapshot.id)
    assert (diff.from_, diff.to) == (snapshot.id, named.id)
    changes = {change.path: change.change for change in diff.changes}
    assert (changes["/root/new"], changes["/root/saved"]) == ("added", "removed")
    reverse = client.diff(named.id, snapshot.id, order="given")
    assert {c.path: c.change for c in reverse.changes}["/root/new"] == "removed"


def test_the_tree_shows_what_comes_from_what(client: Client, named: Sandbox, snapshot: Snapshot) -> None:
    with client.sandboxes.create(snapshot=snapshot.id) as copy:
        parents = {node.id: node.parent for node in named.tree()}
        assert parents == {named.id: None, snapshot.id: named.id, copy.id: snapshot.id}
        assert {node.id for node in client.tree(all=True)} >= set(parents)
