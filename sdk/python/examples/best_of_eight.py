"""Eight attempts at once: fork a prepared sandbox, let each child try, and keep the best one.

Every child continues with the memory and files of the source. `promote` lets the source continue as
the child that won, under its own id and name.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from dormouse import Client, Sandbox

# Climbs a hill from another start in each child: a stand-in for eight attempts of a model.
ATTEMPT = """
import json, sys

heights = [1, 3, 2, 5, 8, 6, 7, 9, 4, 2, 6, 11, 10, 3, 5, 7]
position = 2 * int(sys.argv[1])
while position + 1 < len(heights) and heights[position + 1] > heights[position]:
    position += 1
json.dump({"position": position, "height": heights[position]}, open("/work/result.json", "w"))
print(heights[position])
"""


def attempt(child: Sandbox, start: int) -> int:
    """Let a child try, and return its score."""
    return int(child.exec(["python3", "/work/attempt.py", str(start)], check=True).stdout)


def main() -> None:
    with Client() as client, client.sandboxes.create("base", name=f"best-{os.getpid()}") as source:
        source.files.write("/work/attempt.py", ATTEMPT)
        children = source.fork(8)
        print(f"forked {len(children)} children")
        with ThreadPoolExecutor() as threads:
            scores = list(threads.map(attempt, children, range(len(children))))
        print(f"scores: {scores}")
        best = max(range(len(children)), key=lambda index: scores[index])
        before = source.id
        children[best].promote(keep="none")
        for child in children:
            child.terminate()
        print(f"promoted child {best}, same id: {source.refresh().id == before}")
        print(f"the source has its result: {source.files.read_text('/work/result.json')}")


if __name__ == "__main__":
    main()
