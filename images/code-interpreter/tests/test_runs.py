"""Runs of code: output, results, errors, variables, and what happens when a client leaves."""

import json
import socket
import time

import pytest

LANGUAGES = ["python", "javascript", "typescript", "bash"]
SLEEP = {
    "python": "import time\ntime.sleep(600)",
    "javascript": "await new Promise((resolve) => setTimeout(resolve, 600_000))",
    "typescript": "await 1; while (true) {}",
    "bash": "while true; do sleep 600; done",
}
SAY = {"python": "print('said')", "javascript": "console.log('said')", "typescript": "console.log('said')", "bash": "echo said"}
SHOW = {
    "python": "import os\nprint(os.environ.get('RUN_ONLY', 'none'))",
    "javascript": "console.log(process.env.RUN_ONLY ?? 'none')",
    "typescript": "console.log(process.env.RUN_ONLY ?? 'none')",
    "bash": 'echo "${RUN_ONLY:-none}"',
}


def test_the_state_of_a_context_persists(client):
    client.run("kept = 20")
    assert client.run("kept + 1").result == "21"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_first_line_counts_and_the_last_one_ends(client, language):
    ran = client.run(SAY[language], language=language)
    assert ran.lines[0]["type"] == "number_of_executions"
    assert ran.lines[0]["execution_count"] >= 1
    assert ran.text() == "said\n"


@pytest.mark.parametrize("language", LANGUAGES)
def test_variables_of_a_run_are_gone_after_it(client, language):
    assert client.run(SHOW[language], language=language, env_vars={"RUN_ONLY": "a 'b'\n$c"}).text() == "a 'b'\n$c\n"
    assert client.run(SHOW[language], language=language).text() == "none\n"


def test_a_variable_of_a_run_hides_one_that_the_code_has_set(client):
    client.run("import os; os.environ['SET'] = 'by code'")
    assert client.run("os.environ['SET']", env_vars={"SET": "by run"}).result == "by run"
    assert client.run("os.environ['SET']").result == "by code"


@pytest.mark.parametrize(
    "parts",
    [
        "[b'']",
        "[b'<IDS|MSG>']",
        "[b'<IDS|MSG>', b'forged', b'{}', b'{}', b'{}', b'{}']",
        "kernel.session.serialize({'header': {}, 'parent_header': None, 'metadata': {}, 'content': {}})",
        "kernel.session.serialize(kernel.session.msg('stream', {}, parent=kernel.get_parent()))",
        "kernel.session.serialize(kernel.session.msg('status', {}, parent=kernel.get_parent()))",
    ],
)
def test_a_message_that_no_kernel_sends_is_passed_over(client, parts):
    send = f"kernel = get_ipython().kernel\nkernel.iopub_socket.send_multipart({parts})\nprint('after')"
    assert client.run(send).text() == "after\n"


def test_output_arrives_while_the_code_runs(client):
    code = "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('second')"
    lines = client.lines(code, context_id=client.context())
    seen = []
    for line in lines:
        if line["type"] == "stdout":
            seen.append(line["text"])
            open(f"{client.home}/go", "w").close()
    assert "".join(seen) == "first\nsecond\n"


def test_stderr_and_stdout_are_distinguished(client):
    ran = client.run("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert (ran.text("stdout"), ran.text("stderr")) == ("out\n", "err\n")
    assert all(isinstance(line["timestamp"], int) for line in ran.of("stdout"))


def test_an_error_has_its_traceback(client):
    error = client.run("def broken():\n    return 1 / 0\nbroken()").error
    assert (error["name"], error["value"]) == ("ZeroDivisionError", "division by zero")
    assert "broken()" in error["traceback"] and "\x1b" not in error["traceback"]


def test_an_error_of_javascript_has_its_stack(client):
    error = client.run("function broken() { throw new TypeError('bad') }\nbroken()", language="js").error
    assert (error["name"], error["value"]) == ("TypeError", "bad")
    assert error["traceback"].startswith("TypeError: bad\n    at broken (cell-")
    assert "node:" not in error["traceback"] and "Promise" not in error["traceback"]


def test_a_syntax_error_is_an_error_of_the_run(client):
    assert client.run("def").error["name"] == "SyntaxError"
    assert client.run("foo(", language="js").error["name"] == "SyntaxError"
    assert client.run("const x: = 1", language="ts").error["name"] == "SyntaxError"
    assert client.run("if", language="bash").error["name"] == "ExitCode"


def test_a_command_that_fails_is_an_error_with_its_exit_code(client):
    assert client.run("(exit 3)", language="bash").error["value"] == "exit code 3"
    assert client.run("exit 4", language="bash").error["value"] == "exit code 4"
    ran = client.run("echo again", language="bash")
    assert ran.text() == "again\n" and "a new one" in ran.text("stderr")
    assert not client.run("exit 0", language="bash").of("error")


def test_exit_ends_the_run_and_not_the_kernel(client):
    client.run("before = 1")
    for call in ("exit()", "import sys; sys.exit(3)"):
        assert client.run(f"{call}\nprint('after')").error["name"] == "SystemExit"
    assert client.run("before").result == "1"


def test_a_kernel_that_ends_is_an_error_and_the_next_run_gets_a_new_one(client):
    context = client.context()
    error = client.run("import os; os._exit(7)", context_id=context).error
    assert error["name"] == "KernelEnded" and "exit code 7" in error["value"]
    ran = client.run("'alive'", context_id=context)
    assert ran.result == "alive" and "exit code 7" in ran.text("stderr")


def test_input_is_refused_and_does_not_wait(client):
    assert client.run("input()").error["name"] == "StdinNotImplementedError"
    assert client.run("cat", language="bash").text() == ""


def test_programs_that_the_code_starts_write_to_the_run(client):
    assert client.run("!echo from a shell").text() == "from a shell\n"
    assert client.run("import subprocess; subprocess.run(['echo', 'from a child'])").text() == "from a child\n"
    code = "require('node:child_process').spawnSync('echo', ['from node'], { stdio: 'inherit' }).status"
    assert client.run(code, language="js").text() == "from node\n"


def test_a_line_of_ten_megabytes_is_whole(client):
    size = 10_000_000
    assert len(client.run(f"print('x' * {size})").text()) == size + 1
    assert len(client.run(f"'y' * {size}").result) == size
    assert len(client.run(f"console.log('x'.repeat({size}))", language="js").text()) == size + 1
    assert len(client.run(f"head -c {size} /dev/zero | tr '\\0' x", language="bash").text()) == size


def test_code_of_ten_megabytes_runs(client):
    text = "z" * 10_000_000
    assert client.run(f"len('{text}')").result == "10000000"
    assert client.run(f"'{text}'.length", language="js").result == "10000000"


def test_many_results_all_arrive(client):
    ran = client.run("for number in range(5000): display(number)")
    assert [line["text"] for line in ran.of("result")] == [str(number) for number in range(5000)]


def test_texts_that_look_like_line_ends_stay_in_their_line(client):
    strange = "a\u2028b\x85c\x0bd\x1ce\r\nf"
    assert client.run(f"print({strange!r}, end='')").text() == strange
    assert client.run(f"console.log({json.dumps(strange)})", language="js").text() == strange + "\n"


def test_bytes_that_are_not_utf_8_are_replaced(client):
    assert client.run(r"printf 'a\xffb'", language="bash").text() == "a\ufffdb"


def test_the_rest_of_what_a_program_writes_belongs_to_its_run(client):
    code = "import subprocess; subprocess.run('seq 200000', shell=True)"
    for _ in range(5):
        assert client.run(code).text().endswith("199999\n200000\n")
    ran = client.run("print('before')\n!echo in between\nprint('after')")
    assert ran.text() == "before\nin between\nafter\n"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_run_is_interrupted_when_its_client_leaves(client, language):
    context = client.context(language=language)
    client.run({"bash": "kept=5"}.get(language, "kept = 5"), context_id=context)
    body = json.dumps({"code": SLEEP[language], "context_id": context}).encode()
    with socket.create_connection(("127.0.0.1", client.port)) as leaving:
        head = f"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        leaving.sendall(head.encode() + body)
        while b"number_of_executions" not in leaving.recv(4096):
            pass
    show = {"python": "print(kept)", "bash": "echo $kept"}.get(language, "console.log(kept)")
    assert client.run(show, context_id=context).text() == "5\n"


def test_a_client_that_leaves_its_place_in_the_queue_leaves_no_run(client):
    context = client.context()
    first = client.lines("import time\nprint('began', flush=True)\ntime.sleep(2)", context_id=context)
    while next(first)["type"] != "stdout":
        pass
    body = json.dumps({"code": "ran = True", "context_id": context}).encode()
    with socket.create_connection(("127.0.0.1", client.port)) as leaving:
        head = f"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        leaving.sendall(head.encode() + body)
        time.sleep(0.2)
    assert client.run("'ran' in globals()", context_id=context).result == "False"
    assert list(first)[-1]["type"] == "end_of_execution"


def test_silence_is_broken_by_lines_that_say_nothing(client):
    lines = client.lines("import time; time.sleep(6)")
    assert "keepalive" in [line["type"] for line in lines]
