"""A harness asks for the sandbox of a project at each turn of its agent, whatever state that is in.

The code is uploaded and set up once. Each turn is a run under a lease: after a complete one, the
daemon takes a snapshot and ends the sandbox, so that nothing is left running between two turns.
"""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

from dormouse import Client, EnsureParameters, SetupError, WaysConsidered, parallel
from dormouse.types import Environment, EnvironmentLifecycle, EnvironmentLogLine

CODE = "def price(amount):\n    return amount * 120\n"
TEST = """import unittest
import shop

class Test(unittest.TestCase):
    def test_price(self):
        self.assertEqual(shop.price(10), 100)
"""


def show(event: WaysConsidered | Environment | EnvironmentLogLine) -> None:
    if isinstance(event, EnvironmentLogLine):
        print(f"  {event.stream}: {event.text}")


def turn(client: Client, key: str, project: EnsureParameters, command: str) -> None:
    with client.environments.run(key, on_event=show, **project) as run:
        print(f"{run.ensured.by}: {command}")
        result = run.sandbox.exec(command, cwd="/workspace")
        print("  ok" if result.ok else f"  {result.stderr.splitlines()[-1]}")


def main() -> None:
    key = f"project-{uuid.uuid4().hex[:8]}"
    with Client() as client, tempfile.TemporaryDirectory() as directory:
        Path(directory, "shop.py").write_text(CODE)
        Path(directory, "test_shop.py").write_text(TEST)
        project = EnsureParameters(
            image="base",
            source=directory,
            setup=["python3 -m py_compile shop.py", parallel("git init -q", "mkdir /root/notes")],
            lifecycle=EnvironmentLifecycle(snapshot="after_run", destroy_on_complete=True),
            labels={"example": key},
        )
        try:
            turn(client, key, project, "python3 -m unittest")
            turn(client, key, project, "sed -i s/120/10/ shop.py")
            turn(client, key, project, "python3 -m unittest")
            project["setup"] = ["python3 -c 'import no_such_module'"]
            try:
                client.environments.ensure(key, **project)
            except SetupError as error:
                print(f"step {error.failure.step} failed with exit code {error.exit_code}: ", end="")
                print(error.step.title if error.step else "")
        finally:
            client.environments.remove(key)


if __name__ == "__main__":
    main()
