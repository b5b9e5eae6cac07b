"""Compares what the cases ran with what the command line offers.

    check_surface.py RECORDS REFUSED

RECORDS is a directory of the records of a run; REFUSED is the page that lists refused commands and flags in
a table between the markers of its section, each with a part of what it says. Every command and flag of `--help`
must have been run with success, or be in that list and have said that.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.cli import Cli

SECTION = re.compile(r"<!-- refused: cli -->\n(.*?)<!-- end -->", re.S)
ROW = re.compile(r"^\| (`.+`) \| (.+?) \|$", re.M)
COMMAND = re.compile(r"^  ([a-z]+)(?:\|([a-z]+))?(?: |$)", re.M)
FLAG = re.compile(r"^  (?:(-[a-zA-Z]), )?(--[a-z.-]+)(?:[ \n]|$)", re.M)


def commands(cli: Cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, str], dict[str, str]]]:
    """Yield each command: its path, the aliases of what is below it, and its flags by short and long name."""
    text = cli.run(*path, "--help").out
    below, _, _ = text.partition("Commands:")[2].partition("\n\n")
    aliases = {}
    for name, alias in COMMAND.findall(below):
        if name != "help":
            aliases |= {name: name} | ({alias: name} if alias else {})
    flags: dict[str, str] = {}
    for short, long in FLAG.findall(text.partition("Options:")[2].partition("Commands:")[0]):
        if long != "--help":
            flags |= {long: long} | ({short: long} if short else {})
    yield path, aliases, flags
    for name in sorted(set(aliases.values())):
        yield from commands(cli, (*path, name))


def main() -> int:
    records, page = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as home:
        tree = {path: (aliases, flags) for path, aliases, flags in commands(Cli(Path(home)))}
    uses: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(records.glob("cli-*.json")):
        for run in json.loads(file.read_text()):
            for name in named(tree, run["args"]):
                uses.setdefault(name, []).append(run)
    rows = ROW.findall(SECTION.search(page.read_text()).group(1))  # type: ignore[union-attr]
    refusals = {name: text for names, text in rows for name in re.findall("`([^`]+)`", names)}
    offered = set()
    for path, (aliases, flags) in tree.items():
        if not aliases:
            offered.add(" ".join(path))
        offered |= {f"{' '.join(path)} {flag}".strip() for flag in set(flags.values())}
    problems = []
    for name in sorted(offered):
        runs = uses.get(name, [])
        refusal = refusals.get(name)
        if refusal is None and not any(run["code"] in (0, -9) for run in runs):
            seen = f"; it said {runs[0]['said'][-200:]!r}" if runs else ""
            problems.append(f"`{name}` is not exercised by a case and not listed as refused{seen}")
        if refusal is not None and not any(refusal in run["said"] for run in runs):
            problems.append(f"`{name}` is listed as refused with {refusal!r}, which no case has seen")
    for problem in problems:
        print(problem)
    listed = len(offered & set(refusals))
    if not problems and "E2B_SUMMARY" in os.environ:
        with Path(os.environ["E2B_SUMMARY"]).open("a") as summary:
            summary.write(f"  {len(offered)} commands and flags: {len(offered) - listed} run, {listed} refused\n")
    return 1 if problems else 0


def named(tree: dict[tuple[str, ...], Any], args: list[str]) -> set[str]:
    """Return the names of the command and the flags of a run."""
    path: tuple[str, ...] = ()
    rest = list(args)
    while rest and rest[0] in tree[path][0]:
        path = (*path, tree[path][0][rest.pop(0)])
    flags = {tree[path][1][arg] for arg in rest if arg in tree[path][1]}
    return {" ".join(path)} | {f"{' '.join(path)} {flag}".strip() for flag in flags}


if __name__ == "__main__":
    sys.exit(main())
