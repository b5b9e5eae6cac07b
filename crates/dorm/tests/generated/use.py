"""Uses the client that openapi-python-client generates from docs/reference/openapi.json."""

import os

from generated import AuthenticatedClient
from generated.api.operations import list_operations
from generated.api.processes import exec_command
from generated.api.sandboxes import (
    create_sandbox,
    get_sandbox,
    list_sandboxes,
    resume_sandbox,
    suspend_sandbox,
    terminate_sandbox,
)
from generated.api.snapshots import checkpoint_sandbox, diff_files, list_snapshots
from generated.models import CheckpointRequest, CreateSandbox, ExecRequest, Problem, Sandbox

client = AuthenticatedClient(base_url=os.environ["DORM_SERVER"], token=os.environ["DORM_KEY"])
with client as client:
    made = create_sandbox.sync(client=client, body=CreateSandbox(image="base", name="web"))
    assert isinstance(made, Sandbox), made
    again = create_sandbox.sync_detailed(client=client, body=CreateSandbox(image="base", name="web"))
    assert again.status_code == 409 and isinstance(again.parsed, Problem), again
    assert again.parsed.code == "conflict", again.parsed
    assert [one.id for one in list_sandboxes.sync(client=client).sandboxes] == [made.id]
    ran = exec_command.sync(made.id, client=client, body=ExecRequest(argv=["sh", "-c", "echo hello > /root/new; cat /root/new"]))
    assert ran.exit_code == 0, ran
    snapshot = checkpoint_sandbox.sync(made.id, client=client, body=CheckpointRequest())
    assert snapshot.source == made.id, snapshot
    assert [one.id for one in list_snapshots.sync(client=client).snapshots] == [snapshot.id]
    diff = diff_files.sync(client=client, from_="web", to=snapshot.id)
    assert (diff.from_, diff.to, diff.changes) == (snapshot.id, made.id, []), diff
    for verb, state in [(suspend_sandbox, "suspended"), (resume_sandbox, "running"), (terminate_sandbox, "terminated")]:
        assert not isinstance(verb.sync(made.id, client=client), Problem)
        now = get_sandbox.sync(made.id, client=client).state
        assert now == state, (state, now)
    assert list_operations.sync(client=client).operations, "each of these was an operation"
    missing = get_sandbox.sync(made.id[::-1], client=client)
    assert isinstance(missing, Problem) and missing.code == "not_found" and missing.next_step, missing
print("used")
