"""Packs a local directory as an archive that is the same whenever the files are the same."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from ._values import PIECE_BYTES

IGNORE_FILE = ".dockerignore"


def pack(directory: str | os.PathLike[str], file: IO[bytes]) -> str:
    """Write the files of a directory to a file as a tar archive, and return the SHA-256 of that.

    Files that `.dockerignore` excludes are left out, as are times and owners, so that equal files
    have equal archives. The file is at its beginning afterwards.
    """
    root = Path(directory)
    with tarfile.open(fileobj=file, mode="w") as archive:
        for path in sorted(_walk(root, PurePosixPath(), IgnoreRules(root))):
            _add(archive, root, path)
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(PIECE_BYTES):
        digest.update(piece)
    file.seek(0)
    return digest.hexdigest()


def _walk(root: Path, below: PurePosixPath, rules: IgnoreRules) -> Iterator[PurePosixPath]:
    with os.scandir(root / below) as entries:
        for entry in entries:
            path = below / entry.name
            is_excluded = rules.exclude(path)
            if not is_excluded:
                yield path
            if entry.is_dir(follow_symlinks=False) and (not is_excluded or rules.have_exceptions):
                yield from _walk(root, path, rules)


def _add(archive: tarfile.TarFile, root: Path, path: PurePosixPath) -> None:
    info = tarfile.TarInfo(str(path))
    facts = (root / path).lstat()
    if stat.S_ISREG(facts.st_mode):
        info.mode, info.size = stat.S_IMODE(facts.st_mode), facts.st_size
        with (root / path).open("rb") as content:
            archive.addfile(info, content)
        return
    info.mode = 0o755
    if stat.S_ISDIR(facts.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(facts.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(root / path)
    else:
        raise ValueError(f"{root / path} is not a file, directory or link: add it to {IGNORE_FILE}")
    archive.addfile(info)


class IgnoreRules:
    """The lines of `.dockerignore`: of those that match a path or a directory above it, the last decides."""

    have_exceptions: bool
    """Whether something in an excluded directory may be included."""

    def __init__(self, root: Path) -> None:
        try:
            lines = [line.strip() for line in (root / IGNORE_FILE).read_text().splitlines()]
        except FileNotFoundError:
            lines = []
        self._rules = [
            (not line.startswith("!"), _pattern(line.removeprefix("!").strip().removeprefix("./").strip("/")))
            for line in lines
            if line and not line.startswith("#")
        ]
        self.have_exceptions = not all(excludes for excludes, _ in self._rules)

    def exclude(self, path: PurePosixPath) -> bool:
        """Return whether a path is excluded."""
        names = [str(path), *(str(parent) for parent in path.parents if parent.name)]
        verdicts = [excludes for excludes, pattern in self._rules if any(map(pattern.fullmatch, names))]
        return bool(verdicts) and verdicts[-1]


_PARTS = re.compile(
    r"(?P<deep>\*\*/)|(?P<all>\*\*)|(?P<name>\*)|(?P<one>\?)|(?P<set>\[[^\]]+\])|\\(?P<escaped>.)"
)
_EXPRESSIONS = {"deep": "(?:.*/)?", "all": ".*", "name": "[^/]*", "one": "[^/]"}


def _pattern(glob: str) -> re.Pattern[str]:
    """Compile a pattern in which `*` stands for a part of one name, and `**` for any directories."""
    expression, end = "", 0
    for found in _PARTS.finditer(glob):
        expression += re.escape(glob[end : found.start()])
        end = found.end()
        kind = found.lastgroup or ""
        text = found[kind]
        if kind == "set":
            expression += "[^" + text[2:] if text.startswith("[!") else text
        else:
            expression += _EXPRESSIONS.get(kind) or re.escape(text)
    return re.compile(expression + re.escape(glob[end:]), re.DOTALL)
