"""Files, searches, attributes, archives and watches, with both clients."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from conftest import eventually

from dormouse import CommandError, Sandbox
from dormouse.errors import ConflictError, InvalidArgumentError, NotFoundError

MEGABYTES_10 = 10 * 1024 * 1024


def test_a_file_is_read_as_it_was_written(sandbox: Sandbox, directory: str) -> None:
    data = bytes(range(256)) * 100
    written = sandbox.files.write(f"{directory}/a", data)
    assert (written.path, written.size_bytes, written.kind) == (f"{directory}/a", len(data), "file")
    assert sandbox.files.read(f"{directory}/a") == data


def test_text_is_utf8(sandbox: Sandbox, directory: str) -> None:
    sandbox.files.write(f"{directory}/ä ö", "grüße\n")
    assert sandbox.files.read_text(f"{directory}/ä ö") == "grüße\n"
    sandbox.files.write(f"{directory}/b", b"\xff")
    with pytest.raises(UnicodeDecodeError):
        sandbox.files.read_text(f"{directory}/b")
    assert sandbox.files.read_text(f"{directory}/b", errors="replace") == "\ufffd"


def test_contents_can_be_a_file_or_pieces(sandbox: Sandbox, directory: str, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"x" * MEGABYTES_10)
    with local.open("rb") as file:
        assert sandbox.files.write(f"{directory}/file", file).size_bytes == MEGABYTES_10
    sandbox.files.write(f"{directory}/pieces", (piece for piece in (b"a", b"", b"b")))
    assert sandbox.files.read(f"{directory}/pieces") == b"ab"


def test_a_large_file_is_streamed(sandbox: Sandbox, directory: str) -> None:
    sandbox.files.write(f"{directory}/a", b"y" * MEGABYTES_10)
    with sandbox.files.stream(f"{directory}/a") as pieces:
        lengths = [len(piece) for piece in pieces]
    assert sum(lengths) == MEGABYTES_10
    assert len(lengths) > 1


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(2, None, b"23456789"), (None, 3, b"012"), (2, 5, b"234"), (-3, None, b"789"), (8, 100, b"89")],
)
def test_ranges_are_those_of_python(
    sandbox: Sandbox, directory: str, start: int | None, end: int | None, expected: bytes
) -> None:
    sandbox.files.write(f"{directory}/a", b"0123456789")
    assert sandbox.files.read(f"{directory}/a", start=start, end=end) == expected


def test_a_range_that_the_file_does_not_have_is_an_error(sandbox: Sandbox, directory: str) -> None:
    sandbox.files.write(f"{directory}/a", b"0123")
    with pytest.raises(InvalidArgumentError) as caught:
        sandbox.files.read(f"{directory}/a", start=10)
    assert caught.value.status == 416
    with pytest.raises(ValueError, match="from the end"):
        sandbox.files.read(f"{directory}/a", start=-2, end=1)


def test_a_file_can_be_written_in_place_appended_and_at_an_offset(sandbox: Sandbox, directory: str) -> None:
    path = f"{directory}/a"
    sandbox.files.write(path, "0123456789")
    sandbox.files.write(path, "AB", offset=4)
    sandbox.files.write(path, "!", append=True)
    assert sandbox.files.read_text(path) == "0123AB6789!"
    sandbox.files.write(path, "short", in_place=True)
    assert sandbox.files.read_text(path) == "short"


def test_mode_and_owner_can_be_given(sandbox: Sandbox, directory: str) -> None:
    stat = sandbox.files.write(f"{directory}/a", "", mode=0o640, user="nobody")
    assert (stat.mode, stat.owner) == ("0640", "nobody")


def test_missing_parents_are_made_unless_they_must_exist(sandbox: Sandbox, directory: str) -> None:
    sandbox.files.write(f"{directory}/b/c", "")
    with pytest.raises(NotFoundError):
        sandbox.files.write(f"{directory}/d/e", "", parents=False)


def test_a_link_is_described_and_not_followed(sandbox: Sandbox, directory: str) -> None:
    sandbox.exec(["ln", "-s", "/etc/passwd", f"{directory}/link"], check=True)
    stat = sandbox.files.stat(f"{directory}/link")
    assert (stat.kind, stat.link) == ("link", "/etc/passwd")


def test_exists_tells_a_missing_file_from_a_missing_sandbox(sandbox: Sandbox, directory: str) -> None:
    assert sandbox.files.exists(directory)
    assert not sandbox.files.exists(f"{directory}/none")


def test_a_directory_is_listed_page_by_page(sandbox: Sandbox, directory: str) -> None:
    for name in "abcde":
        sandbox.files.write(f"{directory}/{name}", name)
    paths = [stat.path for stat in sandbox.files.list(directory, limit=2)]
    assert paths == [f"{directory}/{name}" for name in "abcde"]


def test_a_listing_can_be_deep(sandbox: Sandbox, directory: str) -> None:
    sandbox.files.write(f"{directory}/a/b/c", "")
    assert {stat.path for stat in sandbox.files.list(directory, depth=2)} == {
        f"{directory}/a",
        f"{directory}/a/b",
    }


def test_directories_are_made_once_or_any_number_of_times(sandbox: Sandbox, directory: str) -> None:
    path = f"{directory}/a/b"
    assert sandbox.files.mkdir(path).kind == "directory"
    assert sandbox.files.mkdir(path).kind == "directory"
    with pytest.raises(ConflictError):
        sandbox.files.mkdir(path, exclusive=True)
    with pytest.raises(NotFoundError):
        sandbox.files.mkdir(f"{directory}/c/d", parents=False)


def test_files_move_and_replace(sandbox: Sandbox, directory: str) -> None:
    sandbox.files.write(f"{directory}/a", "new")
    sandbox.files.write(f"{directory}/b", "old")
    assert sandbox.files.move(f"{directory}/a", f"{directory}/b").path == f"{directory}/b"
    assert sandbox.files.read_text(f"{directory}/b") == "new"
    with pytest.raises(NotFoundError):
        sandbox.files.move(f"{directory}/b", f"{directory}/c/d")
    sandbox.files.move(f"{directory}/b", f"{directory}/c/d", parents=True, user="nobody")
    assert sandbox.files.stat(f"{directory}/c").owner == "nobody"


def test_names_that_are_not_utf8_are_kept(sandbox: Sandbox, directory: str) -> None:
    made = sandbox.files.mkdir(directory.encode() + b"/\xff")
    assert made.path == f"{directory}/\udcff"
    assert [stat.path for stat in sandbox.files.list(directory)] == [made.path]
    assert sandbox.files.move(made.path, f"{directory}/a").path == f"{directory}/a"
    with pytest.raises(UnicodeEncodeError):
        sandbox.files.read(made.path)


def test_files_are_removed(sandbox: Sandbox, directory: str) -> None:
    sandbox.files.write(f"{directory}/a/b", "")
    with pytest.raises(ConflictError):
        sandbox.files.remove(f"{directory}/a")
    sandbox.files.remove(f"{directory}/a", recursive=True)
    with pytest.raises(NotFoundError):
        sandbox.files.remove(f"{directory}/a")


def test_find_searches_by_name_and_kind(sandbox: Sandbox, directory: str) -> None:
    for path in ("x/a.py", "x/B.PY", "y/c.txt"):
        sandbox.files.write(f"{directory}/{path}", "")
    found = sandbox.files.find(directory, name="*.py", kind="file", ignore_case=True)
    assert {stat.path for stat in found.files} == {f"{directory}/x/a.py", f"{directory}/x/B.PY"}
    assert found.search.truncated_by is None
    assert sandbox.files.find(directory, limit=1).search.truncated_by == "results"


def test_grep_searches_lines(sandbox: Sandbox, directory: str) -> None:
    sandbox.files.write(f"{directory}/a.txt", "one\ntwo (2)\nthree\n")
    (line,) = sandbox.files.grep(r"t\w+ \(\d\)", directory).lines
    assert (line.path, line.line, line.text) == (f"{directory}/a.txt", 2, "two (2)")
    assert len(sandbox.files.grep("(2)", directory, literal=True, name="*.txt").lines) == 1
    with pytest.raises(InvalidArgumentError):
        sandbox.files.grep("(", directory)


def test_attributes_are_set_and_removed(sandbox: Sandbox, directory: str) -> None:
    path = f"{directory}/a"
    sandbox.files.write(path, "")
    assert sandbox.files.set_attributes(path, {"user.a": "1", "user.b": b"\xff"}) == {
        "user.a": "1",
        "user.b": "\udcff",
    }
    assert sandbox.files.set_attributes(path, {}, remove=["user.b", "user.c"]) == {"user.a": "1"}
    assert sandbox.files.attributes(path) == {"user.a": "1"}


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def test_an_archive_is_unpacked_and_packed_again(sandbox: Sandbox, directory: str) -> None:
    files = {"a": b"1", "b/c": b"2" * MEGABYTES_10}
    sandbox.upload_archive(f"{directory}/new/dir", archive(files))
    assert sandbox.files.read(f"{directory}/new/dir/a") == b"1"
    with sandbox.download_archive(f"{directory}/new") as pieces:
        packed = io.BytesIO(b"".join(pieces))
    with tarfile.open(fileobj=packed) as tar:
        assert {name.removeprefix("./dir/") for name in tar.getnames()} >= {"a", "b/c"}


def test_a_broken_archive_is_an_error(sandbox: Sandbox, directory: str) -> None:
    with pytest.raises(CommandError, match="tar"):
        sandbox.upload_archive(directory, b"this is no archive" * 1000)
    with pytest.raises(CommandError, match="none"), sandbox.download_archive(f"{directory}/none") as pieces:
        list(pieces)


def test_a_watch_sees_changes_from_its_beginning(sandbox: Sandbox, directory: str) -> None:
    with sandbox.files.watch(directory, recursive=True) as changes:
        sandbox.files.mkdir(f"{directory}/a")
        assert (change := next(iter(changes))).kind == "created"
        assert change.path == f"{directory}/a"


def test_a_watch_of_a_missing_directory_is_an_error(sandbox: Sandbox, directory: str) -> None:
    with pytest.raises(NotFoundError):
        next(iter(sandbox.files.watch(f"{directory}/none")))


def test_a_watcher_keeps_changes_until_they_are_taken(sandbox: Sandbox, directory: str) -> None:
    watcher = sandbox.watchers.create(directory)
    assert watcher.watcher in [other.watcher for other in sandbox.watchers.list()]
    sandbox.files.mkdir(f"{directory}/a")
    sandbox.files.mkdir(f"{directory}/b")
    first = sandbox.watchers.take(watcher.watcher, limit=1)
    assert ([event.path for event in first.events], first.more) == ([f"{directory}/a"], True)
    second = sandbox.watchers.take(watcher.watcher, after=first.next)
    assert [(event.number, event.path) for event in second.events] == [(2, f"{directory}/b")]
    sandbox.watchers.remove(watcher.watcher)
    with pytest.raises(NotFoundError):
        sandbox.watchers.take(watcher.watcher)


def test_a_watcher_continues_across_a_suspend(named: Sandbox) -> None:
    watcher = named.watchers.create("/root")
    named.start("sleep 1; touch /root/late")
    named.suspend()
    named.resume()
    events = eventually(lambda: named.watchers.take(watcher.watcher).events)
    assert events[0].path == "/root/late"
