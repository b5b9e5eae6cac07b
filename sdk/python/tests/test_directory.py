"""Archives of local directories: equal for equal files, and without what `.dockerignore` excludes."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path, PurePosixPath

import pytest

from dormouse._directory import IgnoreRules, pack


def packed(directory: Path) -> tuple[str, dict[str, tarfile.TarInfo]]:
    """Return the hash of a directory, and the entries of its archive."""
    file = io.BytesIO()
    hash = pack(directory, file)
    with tarfile.open(fileobj=file) as archive:
        return hash, {info.name: info for info in archive}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "main.py").write_text("print()\n")
    (project / "run").write_text("#!/bin/sh\n")
    (project / "run").chmod(0o755)
    (project / "link").symlink_to("src/main.py")
    return project


def test_an_archive_has_files_modes_and_links_and_no_owners(project: Path) -> None:
    _, entries = packed(project)
    assert sorted(entries) == ["link", "run", "src", "src/main.py"]
    assert (entries["run"].mode, entries["run"].size) == (0o755, 10)
    assert (entries["link"].issym(), entries["link"].linkname) == (True, "src/main.py")
    assert entries["src"].isdir()
    assert {(info.uid, info.gid, info.uname, info.mtime) for info in entries.values()} == {(0, 0, "", 0)}


def test_equal_files_have_an_equal_hash(project: Path, tmp_path: Path) -> None:
    before, _ = packed(project)
    os.utime(project / "run", (0, 0))
    # Two names of one file are two files.
    os.link(project / "run", tmp_path / "other-name")
    assert packed(project)[0] == before
    copy = tmp_path / "copy"
    project.rename(copy)
    assert packed(copy)[0] == before


@pytest.mark.parametrize("change", ["content", "mode", "name", "link", "empty directory"])
def test_a_change_changes_the_hash(project: Path, change: str) -> None:
    before, _ = packed(project)
    if change == "content":
        (project / "run").write_text("#!/bin/bash")
    elif change == "mode":
        (project / "run").chmod(0o644)
    elif change == "name":
        (project / "run").rename(project / "walk")
    elif change == "link":
        (project / "link").unlink()
        (project / "link").symlink_to("run")
    else:
        (project / "empty").mkdir()
    assert packed(project)[0] != before


def test_two_names_of_one_file_are_two_files(project: Path) -> None:
    os.link(project / "run", project / "run-again")
    _, entries = packed(project)
    assert entries["run-again"].isfile()
    assert entries["run-again"].size == 10


def test_excluded_files_are_left_out(project: Path) -> None:
    (project / "node_modules" / "a").mkdir(parents=True)
    (project / "node_modules" / "a" / "keep").write_text("")
    (project / ".dockerignore").write_text(
        "# generated\n\nnode_modules\n!node_modules/a/keep\n.dockerignore\n"
    )
    _, entries = packed(project)
    assert sorted(entries) == ["link", "node_modules/a/keep", "run", "src", "src/main.py"]


def test_something_that_cannot_be_sent_is_named(project: Path) -> None:
    os.mkfifo(project / "pipe")
    with pytest.raises(ValueError, match=r"pipe is not a file.*\.dockerignore"):
        pack(project, io.BytesIO())


@pytest.mark.parametrize("path", ["none", "run"])
def test_a_directory_that_is_none_is_an_error(project: Path, path: str) -> None:
    with pytest.raises((FileNotFoundError, NotADirectoryError)):
        pack(project / path, io.BytesIO())


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.log", "a.log", True),
        ("*.log", "b/a.log", False),
        ("**/*.log", "a.log", True),
        ("**/*.log", "b/c/a.log", True),
        ("./build/", "build/a", True),
        ("/build", "build", True),
        ("build", "rebuild", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a/**", "a/b/c", True),
        ("a/**", "b", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("a+b(c)", "a+b(c)", True),
        (r"a\*", "a*", True),
        (r"a\*", "ab", False),
        ("!a", "a", False),
        ("#a", "#a", False),
    ],
)
def test_patterns_match_as_in_the_command_line_client(
    tmp_path: Path, pattern: str, path: str, matches: bool
) -> None:
    (tmp_path / ".dockerignore").write_text(f"{pattern}\n")
    assert IgnoreRules(tmp_path).exclude(PurePosixPath(path)) == matches
