"""Snapshots and forks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from e2b import SandboxException, SandboxNotFoundException

from support.guest import Work, all_items, boot_id, output
from support.surface import Surface

Create = Callable[..., Any]


@pytest.fixture
def snapshots(api: Surface) -> Iterator[list[str]]:
    """Ids of snapshots that are deleted at the end of the case."""
    made: list[str] = []
    yield made
    for snapshot in made:
        api.Sandbox.delete_snapshot(snapshot)


def test_a_snapshot_starts_as_often_as_one_likes(api: Surface, create: Create, snapshots: list[str]) -> None:
    sandbox = create()
    sandbox.files.write("note", "from the past")
    snapshot = sandbox.create_snapshot()
    snapshots.append(snapshot.snapshot_id)
    sandbox.files.write("note", "changed since")
    first, second = create(snapshot.snapshot_id), create(snapshot.snapshot_id)
    assert first.files.read("note") == second.files.read("note") == "from the past"
    first.files.write("note", "of the first")
    assert second.files.read("note") == "from the past"
    assert sandbox.files.read("note") == "changed since"


def test_processes_variables_and_deleted_files_are_in_a_snapshot(
    api: Surface, create: Create, snapshots: list[str]
) -> None:
    sandbox = create()
    work = Work(api, sandbox)
    snapshots.append(sandbox.create_snapshot().snapshot_id)
    work.continues(create(snapshots[0]))
    work.continues(sandbox)


def test_a_sandbox_continues_after_a_snapshot(api: Surface, create: Create, snapshots: list[str]) -> None:
    sandbox = create(timeout=1000)
    before = sandbox.get_info()
    work = Work(api, sandbox)
    snapshots.append(api.Sandbox.create_snapshot(sandbox.sandbox_id).snapshot_id)
    assert sandbox.get_info().end_at == before.end_at
    work.continues(sandbox)


@pytest.mark.needs("e2b.Sandbox.create_snapshot(mode)")
def test_a_snapshot_of_files_alone_boots(api: Surface, create: Create, snapshots: list[str]) -> None:
    sandbox = create()
    sandbox.files.write("note", "kept")
    first = sandbox.create_snapshot(mode="filesystem")
    second = api.Sandbox.create_snapshot(sandbox.sandbox_id, mode="full")
    snapshots += [first.snapshot_id, second.snapshot_id]
    booted, restored = create(first.snapshot_id), create(second.snapshot_id)
    assert booted.files.read("note") == restored.files.read("note") == "kept"
    assert boot_id(booted) != boot_id(sandbox)
    assert boot_id(restored) == boot_id(sandbox)


def test_a_snapshot_can_have_a_name(api: Surface, create: Create, snapshots: list[str], unique: str) -> None:
    sandbox = create()
    sandbox.files.write("note", "named")
    snapshot = sandbox.create_snapshot(name=unique)
    snapshots.append(snapshot.snapshot_id)
    assert any(unique in name for name in snapshot.names)
    assert create(unique).files.read("note") == "named"
    assert create(snapshot.names[0]).files.read("note") == "named"


def test_a_name_given_again_means_the_newer_snapshot(
    api: Surface, create: Create, snapshots: list[str], unique: str
) -> None:
    sandbox = create()
    for text in ["older", "newer"]:
        sandbox.files.write("note", text)
        api.Sandbox.create_snapshot(sandbox.sandbox_id, name=unique)
    # The older one has no name any more.
    snapshots += [snapshot.snapshot_id for snapshot in all_items(sandbox.list_snapshots())]
    assert len(snapshots) == 2
    assert create(unique).files.read("note") == "newer"


def test_a_name_can_have_a_tag(create: Create, snapshots: list[str], unique: str) -> None:
    sandbox = create()
    sandbox.files.write("note", "tagged")
    snapshots.append(sandbox.create_snapshot(name=f"{unique}:v1").snapshot_id)
    assert create(f"{unique}:v1").files.read("note") == "tagged"


@pytest.mark.parametrize("name", ["with space", "a/b/c", "ü", "x" * 1000])
def test_a_name_that_no_snapshot_can_have_is_refused(create: Create, name: str) -> None:
    with pytest.raises(SandboxException, match="^400: "):
        create().create_snapshot(name=name)


def test_snapshots_of_a_sandbox_are_listed(api: Surface, create: Create, snapshots: list[str], unique: str) -> None:
    sandbox, other = create(), create()
    mine = [sandbox.create_snapshot(name=f"{unique}-{n}").snapshot_id for n in range(3)]
    snapshots += [*mine, other.create_snapshot().snapshot_id]

    def ids(paginator: Any) -> list[str]:
        return [item.snapshot_id for item in all_items(paginator)]

    assert sorted(ids(sandbox.list_snapshots())) == sorted(mine)
    assert sorted(ids(sandbox.list_snapshots(limit=1))) == sorted(mine)
    assert sorted(ids(api.Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id))) == sorted(mine)
    assert set(snapshots) <= set(ids(api.Sandbox.list_snapshots(limit=100)))
    assert ids(sandbox.list_snapshots(name=f"{unique}-1")) == [mine[1]]
    assert ids(api.Sandbox.list_snapshots(name=f"{unique}-2")) == [mine[2]]
    first = sandbox.list_snapshots(limit=1)
    begun = [item.snapshot_id for item in first.next_items()]
    assert sorted(begun + ids(sandbox.list_snapshots(next_token=first.next_token))) == sorted(mine)
    paged = api.Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id, next_token=first.next_token)
    assert sorted(begun + ids(paged)) == sorted(mine)


def test_a_snapshot_outlives_its_sandbox(create: Create, snapshots: list[str]) -> None:
    sandbox = create()
    sandbox.files.write("note", "outlives")
    snapshots.append(sandbox.create_snapshot().snapshot_id)
    sandbox.kill()
    assert create(snapshots[0]).files.read("note") == "outlives"


def test_a_deleted_snapshot_is_gone(api: Surface, create: Create) -> None:
    snapshot = create().create_snapshot().snapshot_id
    assert api.Sandbox.delete_snapshot(snapshot) is True
    assert api.Sandbox.delete_snapshot(snapshot) is False
    with pytest.raises(SandboxException, match="^404: "):
        api.Sandbox.create(snapshot)


def test_an_unknown_snapshot_cannot_be_deleted(api: Surface, unique: str) -> None:
    assert api.Sandbox.delete_snapshot(unique) is False
    assert api.Sandbox.delete_snapshot(f"{unique}/with:tag") is False


def test_a_paused_sandbox_cannot_be_copied(create: Create) -> None:
    sandbox = create()
    sandbox.pause()
    with pytest.raises(SandboxException):
        sandbox.create_snapshot()
    with pytest.raises(SandboxException, match="^409: "):
        sandbox.fork()


def test_an_unknown_sandbox_cannot_be_copied(api: Surface, unique: str) -> None:
    with pytest.raises(SandboxNotFoundException):
        api.Sandbox.create_snapshot(unique)
    with pytest.raises(SandboxNotFoundException):
        api.Sandbox.fork(unique)


def test_processes_variables_and_deleted_files_survive_a_fork(api: Surface, create: Create) -> None:
    sandbox = create()
    work = Work(api, sandbox)
    (fork,) = sandbox.fork(timeout=200)
    create.keep(fork)  # type: ignore[attr-defined]
    assert fork.sandbox_id != sandbox.sandbox_id
    work.continues(fork)
    work.continues(sandbox)


def test_forks_go_their_own_ways(api: Surface, create: Create) -> None:
    sandbox = create()
    sandbox.files.write("note", "common")
    forks = api.Sandbox.fork(sandbox.sandbox_id, timeout=300, count=3)
    for fork in forks:
        create.keep(fork)  # type: ignore[attr-defined]
    assert len({fork.sandbox_id for fork in forks}) == 3
    for fork in forks:
        assert fork.files.read("note") == "common"
        fork.files.write("note", fork.sandbox_id)
    assert [fork.files.read("note") for fork in forks] == [fork.sandbox_id for fork in forks]
    assert sandbox.files.read("note") == "common"


def test_a_fork_has_a_timeout_of_its_own(create: Create) -> None:
    sandbox = create(timeout=1000)
    (fork,) = sandbox.fork(timeout=123, count=1)
    create.keep(fork)  # type: ignore[attr-defined]
    info = fork.get_info()
    assert (info.end_at - info.started_at).total_seconds() == pytest.approx(123, abs=5)


def test_a_fork_has_tokens_of_its_own(create: Create) -> None:
    sandbox = create(network={"allow_public_traffic": False})
    (fork,) = sandbox.fork(timeout=100)
    create.keep(fork)  # type: ignore[attr-defined]
    assert fork.traffic_access_token != sandbox.traffic_access_token
    assert fork.download_url("note") != sandbox.download_url("note")
    assert output(fork, "echo works") == "works"


@pytest.mark.parametrize("count", [0, -1, 21])
def test_a_number_of_forks_that_makes_no_sense_is_refused(sandbox: Any, count: int) -> None:
    # Older clients leave a number that is too large to the server.
    with pytest.raises(SandboxException, match=r"^400: count must be 1 to 20|between 1 and 20|at least 1"):
        sandbox.fork(count=count)


def test_a_logger_is_told_of_forking(api: Surface, create: Create, caplog: Any) -> None:
    import logging

    sandbox = create()
    with caplog.at_level(logging.INFO, logger="cases.fork"):
        logger = logging.getLogger("cases.fork")
        for fork in api.Sandbox.fork(sandbox.sandbox_id, timeout=100, logger=logger):
            create.keep(fork)  # type: ignore[attr-defined]
    assert any("fork" in record.getMessage() for record in caplog.records)
