"""Variables of the sandbox, which change when it continues as another one."""

import os
import subprocess

import pytest
from conftest import ended, started

HOOK = os.path.join(os.path.dirname(__file__), "..", "files", "variables-hook")


@pytest.fixture
def told(tmp_path):
    """A server, and a function that runs the agent's hook for it."""
    fifo = str(tmp_path / "variables")
    with open(HOOK) as hook, open(tmp_path / "hook", "w") as own:
        own.write(hook.read().replace("/dev/shm/code-interpreter.variables", fifo))
    process, client = started(tmp_path, "--variables", fifo, FIRST="1", DORMOUSE_SANDBOX="one")

    def tell(**variables):
        own = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "DORMOUSE_GENERATION": "2", **variables}
        subprocess.run(["sh", str(tmp_path / "hook")], env=own, check=True)

    yield client, tell
    ended(process)


SHOW = {
    "python": "import os\nprint(*[os.environ.get(name, '-') for name in ('FIRST', 'SECOND', 'E2B_SANDBOX_ID')])",
    "js": "console.log(process.env.FIRST ?? '-', process.env.SECOND ?? '-', process.env.E2B_SANDBOX_ID ?? '-')",
    "bash": "echo ${FIRST--} ${SECOND--} ${E2B_SANDBOX_ID--}",
}


@pytest.mark.parametrize("language", SHOW)
def test_a_kernel_gets_the_variables_of_the_sandbox_that_it_continues_in(told, language):
    client, tell = told
    assert client.run(SHOW[language], language=language).text() == "1 - one\n"
    tell(SECOND="2\n=", DORMOUSE_SANDBOX="other")
    assert client.run(SHOW[language], language=language).text().split() == ["-", "2", "=", "other"]
    tell(FIRST="", DORMOUSE_SANDBOX="third")
    assert client.run(SHOW[language], language=language).text().split() == ["-", "third"]


def test_what_the_code_has_set_stays_when_the_sandbox_continues(told):
    client, tell = told
    client.run("import os; os.environ['MINE'] = 'set'; os.environ['HOME']")
    tell(SECOND="2", DORMOUSE_SANDBOX="other")
    assert client.run("os.environ['MINE'], os.environ['SECOND']").result == "('set', '2')"
    assert client.run("os.environ['HOME'] != '/nonexistent'").result == "True"


def test_a_hook_never_waits_for_a_server_that_is_idle(told):
    client, tell = told
    for number in range(40):
        tell(BIG="x" * 100_000, LAST=str(number), DORMOUSE_SANDBOX="other")
    assert client.run("import os; os.environ['LAST'], len(os.environ['BIG'])").result == "('39', 100000)"


def test_a_run_whose_client_cannot_be_there_any_more_is_interrupted(told):
    client, tell = told
    lines = client.lines("kept = 1\nimport time\nprint('began', flush=True)\ntime.sleep(600)")
    while next(lines)["type"] != "stdout":
        pass
    tell(DORMOUSE_SANDBOX="other")
    assert client.run("kept").result == "1"
    assert "end_of_execution" not in [line["type"] for line in lines]


def test_the_first_run_has_random_numbers_that_no_snapshot_has(tmp_path):
    (tmp_path / "seeds.py").write_text("import random, numpy\nrandom.seed(1); numpy.random.seed(1)\n")
    process, client = started(tmp_path, "--load", "seeds", PYTHONPATH=str(tmp_path))
    try:
        same = "[random.Random(1).random() == random.random(), numpy.random.rand()]"
        found = client.run("import random, numpy\n" + same).result
        assert found.startswith("[False") and "0.4170220" not in found
        client.run("random.seed(1)")
        assert client.run("random.Random(1).random() == random.random()").result == "True"
    finally:
        ended(process)
