"""Watching directories."""

from __future__ import annotations

from typing import Any

import pytest
from e2b import InvalidArgumentException, NotFoundException, SandboxException

from support.guest import output
from support.surface import Surface
from support.waiting import eventually


def test_uploading_a_small_file_is_three_events(api: Surface, sandbox: Any, home: str) -> None:
    with api.watch(sandbox, home) as watch:
        sandbox.files.write(f"{home}/note", "text")
        events = watch.until(lambda events: len(events) >= 3)
        assert [(event.name, event.type.value) for event in events] == [
            ("note", "create"),
            ("note", "chmod"),
            ("note", "write"),
        ]


def test_writing_is_an_event(api: Surface, sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    with api.watch(sandbox, home) as watch:
        output(sandbox, f"echo more >> {home}/note")
        watch.until_one("note", "write")


def test_removing_is_an_event(api: Surface, sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    with api.watch(sandbox, home) as watch:
        sandbox.files.remove(f"{home}/note")
        watch.until_one("note", "remove")


def test_renaming_is_an_event_for_both_names(api: Surface, sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/old", "text")
    with api.watch(sandbox, home) as watch:
        sandbox.files.rename(f"{home}/old", f"{home}/new")
        watch.until_one("old", "rename")
        watch.until_one("new", "create")


def test_changing_permissions_is_an_event(api: Surface, sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    with api.watch(sandbox, home) as watch:
        output(sandbox, f"chmod 600 {home}/note")
        watch.until_one("note", "chmod")


def test_making_a_directory_is_an_event(api: Surface, sandbox: Any, home: str) -> None:
    with api.watch(sandbox, home) as watch:
        sandbox.files.make_dir(f"{home}/dir")
        watch.until_one("dir", "create")


def test_a_recursive_watch_sees_directories_that_are_made_later(api: Surface, sandbox: Any, home: str) -> None:
    sandbox.files.make_dir(f"{home}/before")
    with api.watch(sandbox, home, recursive=True) as watch:
        sandbox.files.write(f"{home}/before/note", "text")
        watch.until_one("before/note", "write")
        sandbox.files.make_dir(f"{home}/later")
        watch.until_one("later", "create")
        sandbox.files.write(f"{home}/later/note", "text")
        watch.until_one("later/note", "write")


def test_a_plain_watch_does_not_see_what_is_deeper(api: Surface, sandbox: Any, home: str) -> None:
    sandbox.files.make_dir(f"{home}/dir")
    with api.watch(sandbox, home, recursive=False) as watch:
        sandbox.files.write(f"{home}/dir/deep", "text")
        sandbox.files.write(f"{home}/last", "text")
        watch.until_one("last", "write")
        assert "dir/deep" not in {event.name for event in watch.events}


def test_events_have_information_if_asked_for(api: Surface, sandbox: Any, home: str) -> None:
    with api.watch(sandbox, home, include_entry=True, user="user", request_timeout=30) as watch:
        sandbox.files.write(f"{home}/note", "12345")
        event = watch.until_one("note", "write")
        assert (event.entry.path, event.entry.size) == (f"{home}/note", 5)
        sandbox.files.remove(f"{home}/note")
        assert watch.until_one("note", "remove").entry is None


def test_events_have_no_information_unless_asked_for(api: Surface, sandbox: Any, home: str) -> None:
    with api.watch(sandbox, home, allow_network_mounts=True) as watch:
        sandbox.files.write(f"{home}/note", "text")
        assert watch.until_one("note", "write").entry is None


def test_many_events_arrive(api: Surface, sandbox: Any, home: str) -> None:
    with api.watch(sandbox, home) as watch:
        output(sandbox, "for i in $(seq 300); do : > $i; done", cwd=home)
        watch.until(lambda events: len({event.name for event in events}) == 300)


def test_two_watches_of_one_directory_see_the_same(api: Surface, sandbox: Any, home: str) -> None:
    with api.watch(sandbox, home) as first, api.watch(sandbox, home) as second:
        sandbox.files.write(f"{home}/note", "text")
        first.until_one("note", "write")
        second.until_one("note", "write")


def test_events_of_a_finished_write_are_there_at_once(api: Surface, sandbox: Any, home: str) -> None:
    if api.is_async:
        return
    with api.watch(sandbox, home) as watch:
        sandbox.files.write(f"{home}/note", "text")
        events = watch.handle.get_new_events(request_timeout=30)
        assert [event.type.value for event in events] == ["create", "chmod", "write"]
        assert watch.handle.get_new_events() == []


def test_a_stopped_watch_gives_no_more_events(api: Surface, sandbox: Any, home: str) -> None:
    ends: list[Any] = []
    if api.is_async:
        watch = sandbox.files.watch_dir(home, lambda event: None, on_exit=ends.append, timeout=30)
        watch.stop()
        eventually(lambda: ends == [None])
        return
    watch = sandbox.files.watch_dir(home)
    watch.stop(request_timeout=30)
    with pytest.raises(SandboxException, match="already stopped"):
        watch.get_new_events()


def test_functions_that_are_awaited_can_take_events(api: Surface, sandbox: Any, home: str) -> None:
    if not api.is_async:
        return
    taken: list[str] = []

    async def take(event: Any) -> None:
        taken.append(event.name)

    watch = sandbox.files.watch_dir(home, take)
    sandbox.files.write(f"{home}/note", "text")
    eventually(lambda: "note" in taken)
    watch.stop()


def test_a_watch_of_what_is_no_directory_is_refused(api: Surface, sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    with pytest.raises(InvalidArgumentException), api.watch(sandbox, f"{home}/note"):
        pass
    with pytest.raises(NotFoundException), api.watch(sandbox, f"{home}/none"):
        pass


def test_a_watch_of_an_unknown_user_is_refused(api: Surface, sandbox: Any, home: str) -> None:
    with pytest.raises(Exception, match="invalid username"), api.watch(sandbox, home, user="nobody-here"):
        pass
