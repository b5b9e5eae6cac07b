"""Contexts: their life, their limits, and requests that make no sense."""

import http.client
import json
import os
import select
import socket
import threading

import pytest


def test_the_first_contexts_are_of_python_and_javascript(client):
    contexts = json.loads(client.ask("GET", "/contexts")[1])
    assert [context["language"] for context in contexts[:2]] == ["python", "javascript"]
    assert all(context["cwd"] == client.home for context in contexts[:2])


def test_health_answers_when_code_can_run(client):
    assert client.ask("GET", "/health") == (200, '"OK"')


def test_contexts_share_nothing(client):
    one, other = client.context(), client.context()
    client.run("only_here = 1", context_id=one)
    assert client.run("only_here", context_id=other).error["name"] == "NameError"


def test_a_context_has_its_language_and_directory(client, tmp_path):
    directory = str(tmp_path / "made" / "for it")
    identifier = client.context(language="js", cwd=directory)
    assert client.run("process.cwd()", context_id=identifier).result == directory
    contexts = json.loads(client.ask("GET", "/contexts")[1])
    assert contexts[-1] == {"id": identifier, "language": "javascript", "cwd": directory}


@pytest.mark.parametrize("language, code", [("python", "import os; os.getcwd()"), ("js", "process.cwd()")])
def test_default_contexts_are_in_the_home_directory(client, language, code):
    assert client.run(code, language=language).result == client.home


def test_a_removed_context_is_not_found(client):
    identifier = client.context()
    assert client.ask("DELETE", f"/contexts/{identifier}") == (200, "null")
    missing = (404, f"Context {identifier} not found")
    assert client.ask("DELETE", f"/contexts/{identifier}") == missing
    assert client.ask("POST", f"/contexts/{identifier}/restart") == missing
    assert client.ask("POST", "/execute", {"code": "1", "context_id": identifier}) == missing


def test_a_default_context_that_was_removed_is_made_again(client):
    client.run("gone = 1", language="typescript")
    (old,) = [one for one in json.loads(client.ask("GET", "/contexts")[1]) if one["language"] == "typescript"][-1:]
    client.ask("DELETE", f"/contexts/{old['id']}")
    assert client.run("typeof gone", language="ts").result == "undefined"


def test_a_restart_forgets_the_state(client):
    identifier = client.context()
    client.run("gone = 1", context_id=identifier)
    assert client.ask("POST", f"/contexts/{identifier}/restart") == (200, "null")
    assert client.run("'gone' in globals()", context_id=identifier).result == "False"


@pytest.mark.parametrize("language", ["python", "javascript", "bash"])
@pytest.mark.parametrize("method, path", [("POST", "/restart"), ("DELETE", "")])
def test_a_run_in_progress_ends_with_its_context(client, language, method, path):
    identifier = client.context(language=language)
    say = {"python": "print('began', flush=True)\nwhile True: pass", "bash": "echo began; sleep 600"}
    lines = client.lines(say.get(language, "console.log('began'); while (true) {}"), context_id=identifier)
    while next(lines)["type"] != "stdout":
        pass
    assert client.ask(method, f"/contexts/{identifier}{path}") == (200, "null")
    error, end = [line for line in lines if line["type"] not in ("keepalive", "stdout")]
    assert (error["name"], end["type"]) == ("ContextRestarting", "end_of_execution")


def test_runs_of_one_context_take_turns(client):
    identifier = client.context()
    client.run("running = most = 0\nimport time", context_id=identifier)
    code = "running += 1; most = max(most, running); time.sleep(0.05); running -= 1"
    threads = [threading.Thread(target=client.run, args=(code,), kwargs={"context_id": identifier}) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.run("most", context_id=identifier).result == "1"


def test_other_languages_are_refused_by_name(client):
    for language in ("r", "java", "cobol"):
        text = f"Language '{language}' is not available: this image has python, javascript, typescript, bash"
        assert client.ask("POST", "/execute", {"code": "1", "language": language}) == (400, text)
        assert client.ask("POST", "/contexts", {"language": language}) == (400, text)


def test_a_context_and_a_language_exclude_each_other(client):
    body = {"code": "1", "language": "python", "context_id": "x"}
    assert client.ask("POST", "/execute", body) == (400, "Only one of context_id or language can be provided")


@pytest.mark.parametrize(
    "body, word",
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"\xff", "not JSON"),
        (b"{}", "'code' is missing"),
        (b'{"code": 1}', "'code'"),
        (b'{"code": "1", "language": 3}', "'language'"),
        (b'{"code": "1", "env_vars": []}', "'env_vars'"),
        (b'{"code": "1", "env_vars": {"A": 1}}', "'A'"),
        (b'{"code": "1", "env_vars": {"A=B": "x"}}', "'A=B'"),
        (b'{"code": "1", "env_vars": {"": "x"}}', "''"),
        (b'{"code": "1", "env_vars": {"A": "\\u0000"}}', "'A'"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused_with_the_field(client, body, word):
    status, text = client.ask("POST", "/execute", body)
    assert status == 400 and word in text, text


@pytest.mark.parametrize("cwd", ["relative", "", "/proc/none/of it", "/etc/passwd", "/a\0b", "/" + "x" * 5000])
def test_a_directory_that_cannot_be_is_refused_with_its_reason(client, cwd):
    before = client.ask("GET", "/contexts")
    status, text = client.ask("POST", "/contexts", {"cwd": cwd})
    assert status == 400 and text.startswith("cwd '"), text
    assert client.ask("GET", "/contexts") == before


def test_an_unknown_path_or_method_is_an_error_in_plain_text(client):
    assert client.ask("GET", "/nothing") == (404, "GET /nothing is not known here")
    assert client.ask("GET", "/execute")[0] == 405


def test_a_body_that_is_too_large_is_refused(client):
    connection = http.client.HTTPConnection("127.0.0.1", client.port)
    connection.putrequest("POST", "/execute")
    connection.putheader("Content-Length", str(65 << 20))
    connection.endheaders()
    assert connection.getresponse().status == 400


def test_more_runs_of_a_context_than_the_limit_are_refused(client):
    identifier = client.context()
    body = json.dumps({"code": "import time; time.sleep(600)", "context_id": identifier}).encode()
    head = f"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    waiting = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(65)]
    try:
        for connection in waiting:
            connection.sendall(head + body)
        answers = b""
        while b" 429 " not in answers:
            for connection in select.select(waiting, [], [])[0]:
                answers += connection.recv(4096)
    finally:
        for connection in waiting:
            connection.close()
    while client.ask("POST", "/execute", {"code": "1", "context_id": identifier})[0] == 429:
        pass
    assert client.run("'free'", context_id=identifier).result == "free"


def test_more_contexts_than_the_limit_are_refused(tmp_path):
    from conftest import ended, started

    process, client = started(tmp_path)
    try:
        made = []
        while (answer := client.ask("POST", "/contexts", {"language": "bash"}))[0] == 200:
            made.append(json.loads(answer[1])["id"])
        assert answer == (429, "There are 64 contexts already: remove some of them")
        assert len(made) == 62
        client.ask("DELETE", f"/contexts/{made[0]}")
        client.context(language="bash")
    finally:
        ended(process)


def test_a_removed_context_leaves_no_process_and_no_file(client):
    identifier = client.context(language="bash")
    shell = client.run("sleep 600 & echo $$ $!", context_id=identifier).text().split()
    before = len(os.listdir("/dev/shm"))
    client.ask("DELETE", f"/contexts/{identifier}")
    for process in shell:
        while lives(process):
            pass
    assert len(os.listdir("/dev/shm")) == before - 1


def lives(process):
    """Whether a process has not ended; one that has may wait for its parent."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
