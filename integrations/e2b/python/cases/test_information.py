"""Information on sandboxes: one, and lists with filters, order and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from e2b import (
    InvalidArgumentException,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
)

from support.guest import all_items
from support.surface import Surface

Create = Callable[..., Any]


@pytest.fixture(scope="module")
def mixed(api: Surface) -> Iterator[tuple[str, list[Any]]]:
    """Three running and two paused sandboxes, oldest first, with a metadata value that only they have."""
    mark = f"mixed {api.name} & = %20 ü {datetime.now(UTC).timestamp()}"
    made = [api.Sandbox.create(timeout=600, metadata={"mark of": mark, "n": str(n)}) for n in range(5)]
    for sandbox in made[1:3]:
        sandbox.pause()
    yield mark, made
    for sandbox in made:
        sandbox.kill()


def ids(found: list[Any]) -> list[str]:
    return [item.sandbox_id for item in found]


def of(mark: str, **more: Any) -> SandboxQuery:
    return SandboxQuery(metadata={"mark of": mark}, **more)


def test_information_can_be_had_by_id(api: Surface, sandbox: Any) -> None:
    assert api.Sandbox.get_info(sandbox.sandbox_id).sandbox_id == sandbox.sandbox_id


def test_information_on_a_paused_sandbox_has_its_settings(create: Create) -> None:
    sandbox = create(metadata={"a": "b"}, timeout=500, lifecycle={"on_timeout": "pause", "auto_resume": False})
    before = sandbox.get_info()
    sandbox.pause()
    info = sandbox.get_info()
    assert info.state.value == "paused"
    assert (info.metadata, info.template_id, info.name) == (before.metadata, before.template_id, before.name)
    assert (info.cpu_count, info.memory_mb) == (before.cpu_count, before.memory_mb)
    assert info.lifecycle == before.lifecycle


def test_the_version_of_the_daemon_inside_promises_all_features(sandbox: Any) -> None:
    assert tuple(map(int, sandbox.get_info().envd_version.split("."))) >= (0, 6, 4)


def test_information_on_an_unknown_sandbox_is_refused(api: Surface, unique: str) -> None:
    with pytest.raises(SandboxNotFoundException):
        api.Sandbox.get_info(unique)


def test_information_on_a_killed_sandbox_is_refused(create: Create) -> None:
    sandbox = create()
    sandbox.kill()
    with pytest.raises(SandboxNotFoundException):
        sandbox.get_info()


def test_the_list_has_running_and_paused_sandboxes(api: Surface, mixed: tuple[str, list[Any]]) -> None:
    listed = all_items(api.Sandbox.list(query=of(mixed[0])))
    states = {item.sandbox_id: item.state.value for item in listed}
    expected = ["running", "paused", "paused", "running", "running"]
    assert states == {sandbox.sandbox_id: state for sandbox, state in zip(mixed[1], expected, strict=True)}


def test_the_list_has_the_newest_first(api: Surface, mixed: tuple[str, list[Any]]) -> None:
    started = [item.started_at for item in all_items(api.Sandbox.list(query=of(mixed[0])))]
    assert started == sorted(started, reverse=True)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_the_order_of_the_list_can_be_chosen(api: Surface, mixed: tuple[str, list[Any]], order: str) -> None:
    listed = ids(all_items(api.Sandbox.list(query=of(mixed[0]), order=order)))
    expected = ids(mixed[1])
    assert listed == (expected if order == "asc" else expected[::-1])


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_together_are_the_list(api: Surface, mixed: tuple[str, list[Any]], order: str, limit: int) -> None:
    paginator = api.Sandbox.list(query=of(mixed[0]), order=order, limit=limit)
    pages = []
    while paginator.has_next:
        pages.append(ids(paginator.next_items()))
        assert len(pages[-1]) <= limit
    listed = [item for page in pages for item in page]
    assert listed == (ids(mixed[1]) if order == "asc" else ids(mixed[1])[::-1])
    assert paginator.next_token is None


def test_a_list_continues_from_a_token(api: Surface, mixed: tuple[str, list[Any]]) -> None:
    first = api.Sandbox.list(query=of(mixed[0]), limit=2)
    begun = ids(first.next_items())
    rest = api.Sandbox.list(query=of(mixed[0]), limit=100, next_token=first.next_token)
    assert sorted(begun + ids(all_items(rest))) == sorted(ids(mixed[1]))


def test_after_the_last_page_there_is_none(api: Surface, mixed: tuple[str, list[Any]]) -> None:
    paginator = api.Sandbox.list(query=of(mixed[0]))
    all_items(paginator)
    with pytest.raises(Exception, match="No more items to fetch"):
        paginator.next_items()


@pytest.mark.parametrize(
    ("states", "count"),
    [
        ([SandboxState.RUNNING], 3),
        ([SandboxState.PAUSED], 2),
        ([SandboxState.RUNNING, SandboxState.PAUSED], 5),
    ],
)
def test_the_list_can_be_filtered_by_state(
    api: Surface, mixed: tuple[str, list[Any]], states: list[SandboxState], count: int
) -> None:
    assert len(all_items(api.Sandbox.list(query=of(mixed[0], state=states)))) == count


def test_all_pairs_of_a_filter_must_match(api: Surface, mixed: tuple[str, list[Any]]) -> None:
    both = SandboxQuery(metadata={"mark of": mixed[0], "n": "3"})
    assert ids(all_items(api.Sandbox.list(query=both))) == [mixed[1][3].sandbox_id]
    none = SandboxQuery(metadata={"mark of": mixed[0], "n": "9"})
    assert all_items(api.Sandbox.list(query=none)) == []


def test_the_list_can_be_filtered_by_template(api: Surface, mixed: tuple[str, list[Any]]) -> None:
    info = mixed[1][0].get_info()
    assert len(all_items(api.Sandbox.list(query=of(mixed[0], template="base")))) == 5
    assert len(all_items(api.Sandbox.list(query=of(mixed[0], template=info.template_id)))) == 5
    assert all_items(api.Sandbox.list(query=of(mixed[0], template="no-such-template"))) == []


def test_the_list_can_be_filtered_by_the_time_of_the_start(api: Surface, mixed: tuple[str, list[Any]]) -> None:
    middle = mixed[1][3].get_info().started_at
    later = ids(all_items(api.Sandbox.list(query=of(mixed[0], started_after=middle))))
    assert sorted(later) == sorted(ids(mixed[1][3:]))
    future = datetime.now(UTC) + timedelta(days=1)
    assert all_items(api.Sandbox.list(query=of(mixed[0], started_after=future))) == []


def test_listed_sandboxes_have_their_metadata_and_size(api: Surface, mixed: tuple[str, list[Any]]) -> None:
    for item in all_items(api.Sandbox.list(query=of(mixed[0]))):
        assert item.metadata["mark of"] == mixed[0]
        assert item.cpu_count >= 1
        assert item.memory_mb >= 128
        assert item.name == "base"


def test_an_order_that_does_not_exist_is_refused(api: Surface) -> None:
    with pytest.raises(InvalidArgumentException):
        api.Sandbox.list(order="random").next_items()


@pytest.mark.parametrize("limit", [-1, 101, 2**40])
def test_a_size_of_a_page_that_makes_no_sense_is_refused(api: Surface, limit: int) -> None:
    with pytest.raises(SandboxException, match="^400: "):
        api.Sandbox.list(limit=limit).next_items()


@pytest.mark.parametrize("token", ["nonsense", "bm9uc2Vuc2U", "../..", "ü"])
def test_a_token_that_was_not_given_out_is_refused(api: Surface, token: str) -> None:
    with pytest.raises(SandboxException, match="^400: "):
        api.Sandbox.list(next_token=token).next_items()


def test_metrics_arrive_while_a_sandbox_runs(api: Surface, sandbox: Any) -> None:
    from support.waiting import eventually

    metrics = eventually(sandbox.get_metrics)
    last = metrics[-1]
    assert last.cpu_count >= 1
    assert 0 <= last.mem_used <= last.mem_total
    assert 0 < last.disk_used <= last.disk_total
    assert last.mem_cache >= 0
    assert last.cpu_used_pct >= 0
    assert api.Sandbox.get_metrics(sandbox.sandbox_id)


def test_metrics_can_be_asked_for_a_period(api: Surface, sandbox: Any) -> None:
    from support.waiting import eventually

    eventually(sandbox.get_metrics)
    now = datetime.now(UTC)
    recent = sandbox.get_metrics(start=now - timedelta(minutes=10), end=now + timedelta(minutes=1))
    assert recent
    assert sandbox.get_metrics(start=now - timedelta(days=3), end=now - timedelta(days=2)) == []
    by_id = api.Sandbox.get_metrics(sandbox.sandbox_id, start=now - timedelta(days=3), end=now - timedelta(days=2))
    assert by_id == []


def test_metrics_of_an_unknown_sandbox_are_refused(api: Surface, unique: str) -> None:
    with pytest.raises(SandboxNotFoundException):
        api.Sandbox.get_metrics(unique)
