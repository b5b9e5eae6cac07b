"""A client before, between and after restarts of its server.

restarts.py first STATE    creates a sandbox with programs and files, pauses it, and writes what a later one needs
restarts.py between        creates, pauses, wakes and kills another one
restarts.py last STATE     wakes the first one and checks it
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

from e2b import Sandbox

from support.blocking import Loop
from support.guest import Work, output
from support.surface import Surface

SUMS = "find /home/user/kept -type f -exec sha256sum {} + | sort"


def first(surface: Surface, state: Path) -> None:
    sandbox = Sandbox.create(timeout=3600, metadata={"case": "restarts"})
    work = Work(surface, sandbox)
    sandbox.commands.run("mkdir kept && cd kept && for i in $(seq 50); do head -c $((i * 997)) /dev/urandom > $i; done")
    kept = {
        "id": sandbox.sandbox_id,
        "token": sandbox.download_url("kept/1"),
        "sums": output(sandbox, SUMS),
        "work": work.facts(),
    }
    assert sandbox.pause() is True
    state.write_bytes(pickle.dumps(kept))


def between() -> None:
    with Sandbox.create(timeout=600) as sandbox:
        sandbox.files.write("note", "kept")
        assert sandbox.pause() is True
        sandbox.connect()
        assert sandbox.files.read("note") == "kept"


def last(surface: Surface, state: Path) -> None:
    kept: dict[str, Any] = pickle.loads(state.read_bytes())
    sandbox = Sandbox.connect(kept["id"], timeout=3600)
    Work.again(surface, sandbox, kept["work"]).continues(sandbox)
    assert output(sandbox, SUMS) == kept["sums"]
    assert sandbox.download_url("kept/1").split("?")[1] == kept["token"].split("?")[1]
    assert sandbox.get_info().metadata == {"case": "restarts"}
    sandbox.kill()
    if "E2B_SUMMARY" in os.environ:
        Path(os.environ["E2B_SUMMARY"]).write_text("E2B: a sandbox outlived three restarts of the daemon\n")


def main() -> None:
    loop = Loop()
    surface = Surface("sync", loop)
    match sys.argv[1:]:
        case ["first", state]:
            first(surface, Path(state))
        case ["between"]:
            between()
        case ["last", state]:
            last(surface, Path(state))
        case _:
            sys.exit(__doc__)
    loop.close()


if __name__ == "__main__":
    main()
