"""Packs a local directory as an archive that is the same whenever the files are the same."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tarfile
from collections.abc import Callable, Iterator
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
        for path in sorted(_walk(root, PurePosixPath(), ignoring(root))):
            _add(archive, root, path)
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(PIECE_BYTES):
        digest.update(piece)
    file.seek(0)
    return digest.hexdigest()


def _walk(
    root: Path, below: PurePosixPath, is_ignored: Callable[[PurePosixPath], bool]
) -> Iterator[PurePosixPath]:
    with os.scandir(root / below) as entries:
        for entry in entries:
            path = below / entry.name
            if not is_ignored(path):
                yield path
            # A later line of `.dockerignore` may include files of a directory that is excluded.
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(root, path, is_ignored)


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


def ignoring(root: Path) -> Callable[[PurePosixPath], bool]:
    """Return whether `.dockerignore` excludes a path: of the lines that match, the last one decides."""
    try:
        lines = [line.strip() for line in (root / IGNORE_FILE).read_text().splitlines()]
    except FileNotFoundError:
        lines = []
    rules = [
        (not line.startswith("!"), _pattern(line.removeprefix("!").strip().removeprefix("./").strip("/")))
        for line in lines
        if line and not line.startswith("#")
    ]

    def is_ignored(path: PurePosixPath) -> bool:
        names = [str(path), *(str(parent) for parent in path.parents if parent.name)]
        verdicts = [excludes for excludes, pattern in rules if any(map(pattern.fullmatch, names))]
        return bool(verdicts) and verdicts[-1]

    return is_ignored


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
