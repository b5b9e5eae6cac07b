"""Compares what the cases used with what the clients offer.

    check_surface.py RECORDS REFUSED

RECORDS is a directory of the records of a run; REFUSED is the page that lists refused methods and options,
each with the beginning of its error, in a table between the markers of its section. Every public method and
option must have been used with success, or be in that list and have failed with that error.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from support.options import members

SECTION = re.compile(r"<!-- refused: python -->\n(.*?)<!-- end -->", re.S)
ROW = re.compile(r"^\| (`.+`) \| (.+?) \|$", re.M)


def used(records: Path) -> dict[str, Any]:
    """Return the records of all processes as one."""
    uses: dict[str, Any] = {}
    for path in sorted(records.glob("*.json")):
        for name, use in json.loads(path.read_text()).items():
            total = uses.setdefault(name, {"ok": 0, "errors": []})
            total["ok"] += use["ok"]
            total["errors"] += use["errors"]
    return uses


def refused(page: Path) -> dict[str, str]:
    """Return the refused methods and options of the page, each with the text that its error contains."""
    section = SECTION.search(page.read_text())
    rows = ROW.findall(section.group(1)) if section else []
    return {name: text for names, text in rows for name in re.findall("`([^`]+)`", names)}


def refusal_of(name: str, refusals: dict[str, str]) -> str | None:
    """Return the text of the refusal of a method or option: of its own, or of the method or type that has it."""
    plain = re.sub(r"^e2b\.|\[class\]|Async", "", name)
    covers = (
        text for listed, text in refusals.items() if plain == listed or plain.startswith((f"{listed}(", f"{listed}."))
    )
    return next(covers, None)


def main() -> int:
    records, page = map(Path, sys.argv[1:])
    uses, refusals = used(records), refused(page)
    offered = {name for member in members() for name in [member.name, *member.options()]}
    problems = []
    for name in sorted(offered):
        use = uses.get(name, {"ok": 0, "errors": []})
        refusal = refusal_of(name, refusals)
        if refusal is None and use["ok"] == 0:
            seen = f"; it failed with {use['errors'][0]!r}" if use["errors"] else ""
            problems.append(f"{name} is not exercised by a case and not listed as refused{seen}")
        if refusal is not None and not any(refusal in error for error in use["errors"]):
            problems.append(f"{name} is listed as refused with {refusal!r}, which no case has seen")
        if refusal is not None and use["ok"] > 0:
            problems.append(f"{name} is listed as refused, but works")
    for problem in problems:
        print(problem)
    listed = sum(refusal_of(name, refusals) is not None for name in offered)
    line = f"  {len(offered)} methods and options: {len(offered) - listed} exercised, {listed} refused as listed\n"
    if not problems and "E2B_SUMMARY" in os.environ:
        with Path(os.environ["E2B_SUMMARY"]).open("a") as summary:
            summary.write(line)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
