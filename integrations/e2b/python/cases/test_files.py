"""Files and directories."""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from e2b import (
    AuthenticationException,
    EntryInfo,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    WriteInfo,
)

from support.guest import BOOT_ID, output
from support.surface import Surface

TEXTS = ["text", "", "ünï — 漢字 😀", "line\r\nline\n", "\0null", "'\"$`\\"]
NAMES = [
    "plain",
    "with space",
    "ü漢😀",
    "a'b\"c",
    "dollar$HOME",
    "percent%2F%00",
    "semi;colon",
    "-rf",
    "plus+and&",
    ".hidden",
    "a?b#c",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_read_as_it_was_written(sandbox: Any, home: str, text: str) -> None:
    sandbox.files.write(f"{home}/note", text)
    assert sandbox.files.read(f"{home}/note") == text


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_file_works(sandbox: Any, home: str, name: str) -> None:
    path = f"{home}/{name}"
    info = sandbox.files.write(path, "text")
    assert (info.name, info.path) == (name, path)
    assert sandbox.files.read(path) == "text"
    assert [entry.name for entry in sandbox.files.list(home)] == [name]
    sandbox.files.remove(path)
    assert not sandbox.files.exists(path)


def test_writing_returns_what_was_written(sandbox: Any, home: str) -> None:
    info = sandbox.files.write(f"{home}/note", "text")
    assert (info.name, info.path, info.type) == ("note", f"{home}/note", FileType.FILE)
    assert info.metadata is None


def test_information_is_made_from_a_dictionary() -> None:
    written = {"name": "note", "path": "/note", "type": "file"}
    assert WriteInfo.from_dict(written).path == "/note"
    # The client inherits this, and cannot make it from what it passes on.
    with pytest.raises(TypeError):
        EntryInfo.from_dict(written)


def test_bytes_are_read_as_they_were_written(sandbox: Any, home: str) -> None:
    data = bytes(range(256)) * 1000
    sandbox.files.write(f"{home}/data", data)
    assert bytes(sandbox.files.read(f"{home}/data", format="bytes")) == data


def test_text_can_be_asked_for_by_name(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    assert sandbox.files.read(f"{home}/note", format="text", request_timeout=30) == "text"


def test_a_file_can_be_read_in_pieces(sandbox: Any, home: str) -> None:
    data = os.urandom(3_000_000)
    sandbox.files.write(f"{home}/data", data)
    pieces = list(sandbox.files.read(f"{home}/data", format="stream", stream_idle_timeout=30))
    assert len(pieces) > 1
    assert b"".join(pieces) == data


@pytest.mark.parametrize("format", ["text", "bytes", "stream"])
def test_an_empty_file_is_empty_in_every_format(sandbox: Any, home: str, format: str) -> None:
    sandbox.files.write(f"{home}/empty", "")
    found = sandbox.files.read(f"{home}/empty", format=format)
    assert (
        found if format == "text" else b"".join(found).decode() if format == "stream" else bytes(found).decode()
    ) == ""


def test_a_large_file_is_written_and_read(sandbox: Any, home: str) -> None:
    data = os.urandom(1 << 20) * 40
    sandbox.files.write(f"{home}/large", data)
    assert bytes(sandbox.files.read(f"{home}/large", format="bytes")) == data


@pytest.mark.parametrize("source", ["text file", "binary file", "opened file"])
def test_a_file_object_is_uploaded(sandbox: Any, home: str, tmp_path: Path, source: str) -> None:
    local = tmp_path / "local"
    local.write_text("from a file ü")
    if source == "opened file":
        with local.open("rb") as opened:
            sandbox.files.write(f"{home}/note", opened)
    else:
        data = io.StringIO(local.read_text()) if source == "text file" else io.BytesIO(local.read_bytes())
        sandbox.files.write(f"{home}/note", data)
    assert sandbox.files.read(f"{home}/note") == "from a file ü"


@pytest.mark.needs("SyncWriteEntry.data")
def test_pieces_are_uploaded_as_they_come(api: Surface, sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/data", api.chunks(b"x" * 10_000 for _ in range(100)))
    assert sandbox.files.get_info(f"{home}/data").size == 1_000_000


@pytest.mark.parametrize("octets", [True, False])
def test_both_forms_of_upload_work(sandbox: Any, home: str, octets: bool) -> None:
    sandbox.files.write(f"{home}/note", "text", use_octet_stream=octets)
    files = [{"path": f"{home}/deep/{n}", "data": f"text {n}"} for n in range(3)]
    sandbox.files.write_files(files, use_octet_stream=octets)
    assert sandbox.files.read(f"{home}/note") == "text"
    assert [sandbox.files.read(f"{home}/deep/{n}") for n in range(3)] == ["text 0", "text 1", "text 2"]


@pytest.mark.parametrize("size", [0, 10, 5_000_000])
def test_transfers_can_be_compressed(sandbox: Any, home: str, size: int) -> None:
    data = b"compressible " * (size // 13)
    sandbox.files.write(f"{home}/data", data, gzip=True)
    assert bytes(sandbox.files.read(f"{home}/data", format="bytes", gzip=True)) == data
    sandbox.files.write_files([{"path": f"{home}/again", "data": data}], gzip=True)
    assert sandbox.files.get_info(f"{home}/again").size == len(data)


def test_writing_again_replaces_the_content_in_place(sandbox: Any, home: str) -> None:
    path = f"{home}/note"
    sandbox.files.write(path, "long content")
    inode = output(sandbox, f"stat -c %i {path}")
    sandbox.files.write(path, "short")
    assert sandbox.files.read(path) == "short"
    assert output(sandbox, f"stat -c %i {path}") == inode


def test_writing_creates_the_directories_above(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/a/b/c/note", "deep")
    assert sandbox.files.read(f"{home}/a/b/c/note") == "deep"
    info = sandbox.files.get_info(f"{home}/a/b")
    assert (info.type, info.owner, info.mode) == (FileType.DIR, "user", 0o755)


def test_new_files_belong_to_the_user(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    info = sandbox.files.get_info(f"{home}/note")
    assert (info.owner, info.group, info.mode, info.permissions) == ("user", "user", 0o644, "-rw-r--r--")


def test_files_can_be_written_and_read_as_root(sandbox: Any, unique: str) -> None:
    path = f"/root/{unique}"
    sandbox.files.write(path, "of root", user="root", request_timeout=30)
    assert sandbox.files.read(path, user="root") == "of root"
    assert sandbox.files.get_info(path, user="root").owner == "root"
    sandbox.files.write_files([{"path": f"{path}-2", "data": "more"}], user="root", request_timeout=30)
    assert sandbox.files.exists(f"{path}-2", user="root")


def test_several_files_are_written_in_their_order(sandbox: Any, home: str) -> None:
    files = [{"path": f"{home}/dir {n}/note", "data": b"bytes" if n % 2 else "text"} for n in range(10)]
    written = sandbox.files.write_files(files)
    assert [info.path for info in written] == [file["path"] for file in files]
    assert sandbox.files.read(f"{home}/dir 3/note") == "bytes"


def test_no_files_at_all_can_be_written(sandbox: Any) -> None:
    assert sandbox.files.write_files([]) == []


def test_paths_start_at_the_home_of_the_user(sandbox: Any, unique: str) -> None:
    assert sandbox.files.write(unique, "relative").path == f"/home/user/{unique}"
    assert sandbox.files.read(f"~/{unique}") == "relative"
    assert sandbox.files.read(f"./{unique}") == "relative"
    assert sandbox.files.get_info(f"~/{unique}").path == f"/home/user/{unique}"
    sandbox.files.write(f"~/{unique}-2", "tilde", user="root")
    assert sandbox.files.read(f"/root/{unique}-2", user="root") == "tilde"


@pytest.mark.parametrize("path", [BOOT_ID, "/proc/version", "/proc/self/status", "/proc/cpuinfo"])
def test_files_of_the_kernel_are_read_to_their_end(sandbox: Any, path: str) -> None:
    assert len(sandbox.files.read(path)) > 10


def test_metadata_of_a_file_are_kept(sandbox: Any, home: str) -> None:
    metadata = {"author": "one", "purpose": "a b c = &"}
    written = sandbox.files.write(f"{home}/note", "text", metadata=metadata)
    assert written.metadata == metadata
    assert sandbox.files.get_info(f"{home}/note").metadata == metadata
    (listed,) = sandbox.files.list(home)
    assert listed.metadata == metadata
    moved = sandbox.files.rename(f"{home}/note", f"{home}/moved")
    assert moved.metadata == metadata


def test_writing_replaces_the_metadata_of_a_file(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text", metadata={"one": "1", "two": "2"})
    sandbox.files.write(f"{home}/note", "text", metadata={"two": "3"})
    assert sandbox.files.get_info(f"{home}/note").metadata == {"two": "3"}
    sandbox.files.write(f"{home}/note", "text")
    assert sandbox.files.get_info(f"{home}/note").metadata is None


def test_metadata_are_those_of_all_files_that_are_written(sandbox: Any, home: str) -> None:
    files = [{"path": f"{home}/{n}", "data": "text"} for n in range(2)]
    for octets in (True, False):
        sandbox.files.write_files(files, metadata={"set": str(octets)}, use_octet_stream=octets)
        found = [sandbox.files.get_info(file["path"]).metadata for file in files]
        assert found == [{"set": str(octets)}] * 2


@pytest.mark.parametrize("metadata", [{"": "x"}, {"a b": "x"}, {"a": "ü"}, {"a": "x\ny"}])
def test_metadata_that_no_header_can_have_are_refused(sandbox: Any, home: str, metadata: Any) -> None:
    with pytest.raises(InvalidArgumentException):
        sandbox.files.write(f"{home}/note", "text", metadata=metadata)


@pytest.mark.parametrize("metadata", [{"k" * 300: "x"}, {"a": "x" * 5000}])
def test_metadata_that_are_too_large_are_refused(sandbox: Any, home: str, metadata: Any) -> None:
    with pytest.raises(InvalidArgumentException):
        sandbox.files.write(f"{home}/note", "text", metadata=metadata)


def test_reading_what_does_not_exist_is_refused(sandbox: Any) -> None:
    with pytest.raises(FileNotFoundException, match="path '/no/such' does not exist"):
        sandbox.files.read("/no/such")


def test_reading_a_directory_is_refused(sandbox: Any, home: str) -> None:
    with pytest.raises(InvalidArgumentException, match="is a directory"):
        sandbox.files.read(home)


def test_writing_to_a_directory_is_refused(sandbox: Any, home: str) -> None:
    with pytest.raises(InvalidArgumentException):
        sandbox.files.write(home, "text")


def test_the_same_path_twice_is_refused(sandbox: Any, home: str) -> None:
    files = [{"path": f"{home}/same", "data": "one"}, {"path": f"{home}/same", "data": "two"}]
    with pytest.raises(InvalidArgumentException):
        sandbox.files.write_files(files)


def test_writing_below_a_file_is_refused(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    with pytest.raises(SandboxException):
        sandbox.files.write(f"{home}/note/below", "text")


def test_files_of_an_unknown_user_are_refused(sandbox: Any, home: str) -> None:
    with pytest.raises(AuthenticationException):
        sandbox.files.read(f"{home}/note", user="nobody-here")
    with pytest.raises(AuthenticationException):
        sandbox.files.write(f"{home}/note", "text", user="nobody-here")
    with pytest.raises(AuthenticationException):
        sandbox.files.list(home, user="nobody-here")


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "/" + "y/" * 5000])
def test_a_path_that_cannot_exist_is_refused(sandbox: Any, path: str) -> None:
    with pytest.raises((SandboxException, ValueError)):
        sandbox.files.write(path, "text")
    with pytest.raises((SandboxException, ValueError)):
        sandbox.files.read(path)


def test_information_on_a_file_is_complete(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "12345")
    output(sandbox, f"chmod 640 {home}/note")
    info = sandbox.files.get_info(f"{home}/note", user="user", request_timeout=30)
    assert (info.name, info.path, info.type, info.size) == ("note", f"{home}/note", FileType.FILE, 5)
    assert (info.mode, info.permissions, info.symlink_target) == (0o640, "-rw-r-----", None)
    assert abs((datetime.now(UTC) - info.modified_time).total_seconds()) < 120


def test_information_on_a_directory_is_complete(sandbox: Any, home: str) -> None:
    info = sandbox.files.get_info(home)
    assert (info.type, info.permissions) == (FileType.DIR, "drwxr-xr-x")


def test_information_on_a_link_names_its_target(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    output(sandbox, f"ln -s {home}/note {home}/link; ln -s {home} {home}/directory")
    link = sandbox.files.get_info(f"{home}/link")
    assert link.symlink_target == f"{home}/note"
    # Older clients show the type of the target, newer ones that of the link itself.
    assert link.type in (FileType.FILE, FileType.SYMLINK)
    assert sandbox.files.get_info(f"{home}/directory").type in (FileType.DIR, FileType.SYMLINK)
    assert sandbox.files.read(f"{home}/link") == "text"


def test_information_on_what_does_not_exist_is_refused(sandbox: Any) -> None:
    with pytest.raises(NotFoundException):
        sandbox.files.get_info("/no/such")


def test_existence_is_told_for_files_and_directories(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    assert sandbox.files.exists(f"{home}/note", user="user", request_timeout=30) is True
    assert sandbox.files.exists(home) is True
    assert sandbox.files.exists(f"{home}/other") is False


def test_a_list_has_the_names_in_order(sandbox: Any, home: str) -> None:
    for name in ["c", "a", "b"]:
        sandbox.files.write(f"{home}/{name}", name)
    sandbox.files.make_dir(f"{home}/ab")
    entries = sandbox.files.list(home, user="user", request_timeout=30)
    assert [entry.name for entry in entries] == ["a", "ab", "b", "c"]
    assert [entry.type for entry in entries] == [FileType.FILE, FileType.DIR, FileType.FILE, FileType.FILE]
    assert [entry.path for entry in entries] == [f"{home}/{name}" for name in ["a", "ab", "b", "c"]]


@pytest.mark.parametrize(("depth", "count"), [(1, 1), (2, 3), (3, 4), (9, 4)])
def test_a_list_goes_as_deep_as_told(sandbox: Any, home: str, depth: int, count: int) -> None:
    sandbox.files.write(f"{home}/one/two/three", "deep")
    sandbox.files.write(f"{home}/one/note", "text")
    assert len(sandbox.files.list(home, depth=depth)) == count


def test_a_list_does_not_follow_links(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/real/note", "text")
    output(sandbox, f"ln -s {home}/real {home}/link")
    names = [entry.path for entry in sandbox.files.list(home, depth=5)]
    assert names == [f"{home}/link", f"{home}/real", f"{home}/real/note"]
    through = sandbox.files.list(f"{home}/link")
    assert [entry.path for entry in through] == [f"{home}/link/note"]


def test_an_empty_directory_has_no_entries(sandbox: Any, home: str) -> None:
    assert sandbox.files.list(home) == []


def test_a_list_of_what_is_no_directory_is_refused(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.list(f"{home}/note")
    with pytest.raises(NotFoundException):
        sandbox.files.list(f"{home}/none")
    with pytest.raises(InvalidArgumentException, match="depth"):
        sandbox.files.list(home, depth=0)


def test_a_directory_of_thousands_is_listed(sandbox: Any, home: str) -> None:
    output(sandbox, "for i in $(seq 3000); do : > file-$i; done", cwd=home)
    assert len(sandbox.files.list(home)) == 3000


def test_making_a_directory_makes_those_above(sandbox: Any, home: str) -> None:
    assert sandbox.files.make_dir(f"{home}/a/b/c", user="user", request_timeout=30) is True
    assert sandbox.files.get_info(f"{home}/a/b/c").owner == "user"
    assert sandbox.files.make_dir(f"{home}/a/b/c") is False


def test_a_directory_cannot_replace_a_file(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.make_dir(f"{home}/note")
    assert sandbox.files.read(f"{home}/note") == "text"


def test_renaming_moves_files_and_directories(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/dir/note", "text")
    info = sandbox.files.rename(f"{home}/dir/note", f"{home}/dir/other", user="user", request_timeout=30)
    assert (info.name, info.path) == ("other", f"{home}/dir/other")
    assert sandbox.files.rename(f"{home}/dir", f"{home}/new/place/dir").type == FileType.DIR
    assert sandbox.files.read(f"{home}/new/place/dir/other") == "text"
    assert not sandbox.files.exists(f"{home}/dir")


def test_renaming_what_does_not_exist_is_refused(sandbox: Any, home: str) -> None:
    with pytest.raises(NotFoundException):
        sandbox.files.rename(f"{home}/none", f"{home}/other")


def test_removing_removes_directories_with_all_in_them(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/dir/a/b", "text")
    sandbox.files.remove(f"{home}/dir", user="user", request_timeout=30)
    assert not sandbox.files.exists(f"{home}/dir")
    sandbox.files.remove(f"{home}/dir")


def test_removing_a_link_keeps_its_target(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/dir/note", "text")
    output(sandbox, f"ln -s {home}/dir {home}/link")
    sandbox.files.remove(f"{home}/link")
    assert sandbox.files.read(f"{home}/dir/note") == "text"


def test_files_of_commands_and_of_the_client_are_the_same(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "written")
    assert output(sandbox, f"cat {home}/note") == "written"
    output(sandbox, f"echo appended >> {home}/note")
    assert sandbox.files.read(f"{home}/note") == "writtenappended\n"
