"""A coding agent whose sandbox sleeps while the model thinks.

The model is a script here; a real one gets `toolbox.anthropic()` or `toolbox.openai()` as its tools.
Between two turns the sandbox is suspended: it uses no CPU and no memory, and the test watcher that
the agent starts in its first turn is still there in the last one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from dormouse import Client
from dormouse.tools import Toolbox

BROKEN = "def add(a, b):\n    return a - b\n"
TEST = "from calc import add\n\nassert add(2, 3) == 5, f'add(2, 3) is {add(2, 3)}'\nprint('tests passed')\n"
WATCHER = "cd /work; echo $$ > watcher.pid; while :; do date > watched; sleep 0.1; done"

Call = tuple[str, dict[str, Any]]


def scripted_model() -> Iterator[list[Call]]:
    """Yield the tool calls of each turn, as a model would."""
    yield [
        ("write", {"path": "/work/calc.py", "content": BROKEN}),
        ("write", {"path": "/work/test_calc.py", "content": TEST}),
        ("exec", {"command": f"setsid sh -c '{WATCHER}' > /dev/null 2>&1 &"}),
    ]
    yield [("exec", {"command": "python3 -B test_calc.py 2>&1 | tail -1", "cwd": "/work"})]
    yield [
        ("read", {"path": "/work/calc.py"}),
        ("edit", {"path": "/work/calc.py", "old": "a - b", "new": "a + b"}),
    ]
    yield [
        ("exec", {"command": "python3 -B test_calc.py", "cwd": "/work"}),
        ("exec", {"command": "kill -0 $(cat watcher.pid) && echo the watcher still runs", "cwd": "/work"}),
    ]


def main() -> None:
    with Client() as client, client.sandboxes.create("base", name=f"agent-{os.getpid()}") as sandbox:
        toolbox = Toolbox(sandbox)
        for turn, calls in enumerate(scripted_model(), 1):
            sandbox.resume()
            print(f"turn {turn}: {sandbox.state}, generation {sandbox.info.generation}")
            for name, arguments in calls:
                result = toolbox.run(name, arguments)
                print(f"  {name}: {result}")
            sandbox.suspend()
        print(f"asleep: {sandbox.state}")


if __name__ == "__main__":
    main()
