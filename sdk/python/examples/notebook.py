"""A notebook whose variables survive: a Python process that is closed and opened again after a suspend.

Nothing is pickled. The process itself sleeps and continues, with its imports, variables and open files.
"""

from __future__ import annotations

import json
import os

from dormouse import Client, Output, Position, Process

# Runs one cell for each line of input, a JSON string, and answers each with a line of JSON.
KERNEL = """
import code, contextlib, io, json, sys

console = code.InteractiveConsole()
for line in sys.stdin:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        console.runcode(compile(json.loads(line), "<cell>", "exec"))
    print(json.dumps(shown.getvalue()), flush=True)
"""


class Notebook:
    """A Python process in a sandbox that runs cells."""

    def __init__(self, process: Process, position: Position) -> None:
        self.process = process
        self.position = position

    def run(self, cell: str) -> str:
        """Run a cell, and return what it prints."""
        self.process.write(json.dumps(cell) + "\n")
        answer = b""
        with self.process.events(after=self.position) as events:
            for event in events:
                if isinstance(event, Output):
                    answer, self.position = answer + event.data, event.position
                if answer.endswith(b"\n"):
                    break
        return str(json.loads(answer))


def main() -> None:
    name = f"notebook-{os.getpid()}"
    with Client() as client, client.sandboxes.create("base", name=name, on_exit="suspend") as sandbox:
        process = sandbox.start(["python3", "-u", "-c", KERNEL], stdin=True, label="kernel")
        notebook = Notebook(process, Position())
        notebook.run("import math\nradius = 3\nlog = open('/root/log', 'w')")
        print("area:", notebook.run("print(round(math.pi * radius ** 2, 2))").strip())
        print("error:", notebook.run("1 / 0").splitlines()[-1])
    print("closed:", sandbox.state)

    # Another program, on another day.
    with Client() as client, client.sandboxes.connect(name, on_exit="terminate") as sandbox:
        sandbox.resume()
        print("opened again:", sandbox.state, "in generation", sandbox.info.generation)
        (kernel,) = sandbox.processes.list(label="kernel")
        notebook = Notebook(sandbox.processes.get(kernel.process), Position(kernel.stdout_bytes, 0))
        print("variables:", notebook.run("radius += 1\nprint(radius, log.name, log.closed)").strip())


if __name__ == "__main__":
    main()
