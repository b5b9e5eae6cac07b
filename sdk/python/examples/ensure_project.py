"""A harness asks for the sandbox of a project at each turn of its agent, whatever state that is in.

The project has a package in Python and a page in JavaScript: it is uploaded, and installed with pip
and npm, once. Each turn is a run under a lease: after a complete one, the daemon takes a snapshot
and ends the sandbox, so that nothing is left running between two turns.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from dormouse import Client, EnsureParameters, SetupError, WaysConsidered, parallel
from dormouse.types import Environment, EnvironmentLifecycle, EnvironmentLogLine

PROJECT = Path(__file__).parent / "project"
PIP = "pip install --quiet --no-index --no-build-isolation --break-system-packages --root-user-action=ignore"


def show(event: WaysConsidered | Environment | EnvironmentLogLine) -> None:
    if isinstance(event, EnvironmentLogLine):
        print(f"  {event.stream}: {event.text}")


def turn(client: Client, key: str, project: EnsureParameters, command: str) -> None:
    with client.environments.run(key, on_event=show, **project) as run:
        print(f"{run.ensured.by}: {command}")
        result = run.sandbox.exec(command, cwd="/workspace")
        print(f"  {result.stdout.strip() or 'ok'}" if result.ok else f"  {result.stderr.splitlines()[-1]}")


def main() -> None:
    key = f"project-{uuid.uuid4().hex[:8]}"
    with Client() as client:
        project = EnsureParameters(
            image="tools",
            source=str(PROJECT),
            setup=[parallel(f"{PIP} --editable .", "cd web && npm install --silent --offline")],
            lifecycle=EnvironmentLifecycle(snapshot="after_run", destroy_on_complete=True),
            labels={"example": key},
        )
        try:
            turn(client, key, project, "python3 -m unittest")
            turn(client, key, project, "sed -i s/120/10/ shop/__init__.py")
            turn(client, key, project, "python3 -m unittest")
            turn(client, key, project, "node web/index.js")
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
