"""Writes generated files, or checks that they are up to date."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "src" / "dormouse"
REPOSITORY = PROJECT.parent.parent


def stale(files: Mapping[Path, str]) -> list[Path]:
    """Returns the files whose contents are not what they should be."""
    return [path for path, text in files.items() if not path.exists() or path.read_text() != text]


def main(generate: Callable[[], Mapping[Path, str]]) -> None:
    """Writes what `generate` returns. With `--check`, exits with 1 if that would change a file."""
    files = generate()
    if "--check" in sys.argv[1:]:
        outdated = stale(files)
        for path in outdated:
            print(f"{path} is out of date: run {sys.argv[0]}", file=sys.stderr)
        sys.exit(1 if outdated else 0)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
