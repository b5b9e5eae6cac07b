"""The code interpreter."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from e2b import InvalidArgumentException, NotFoundException, SandboxException, TimeoutException

from support.surface import Surface

pytestmark = pytest.mark.needs("e2b_code_interpreter.Sandbox.run_code")

CHART = """
import matplotlib.pyplot as plt
figure, axes = plt.subplots()
{body}
plt.title("A chart"); plt.xlabel("x (m)"); plt.ylabel("y (s)")
plt.show()
"""


def test_a_context_is_made_from_json() -> None:
    from e2b_code_interpreter import Context

    context = Context.from_json({"id": "abc", "language": "python", "cwd": "/home/user"})
    assert (context.id, context.language, context.cwd) == ("abc", "python", "/home/user")


@pytest.fixture(scope="module")
def interpreter(api: Surface) -> Iterator[Any]:
    with api.Interpreter.create(timeout=3600) as sandbox:
        yield sandbox


@pytest.fixture
def launch(api: Surface) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def launch(*args: Any, **kwargs: Any) -> Any:
        made.append(api.Interpreter.create(*args, **kwargs))
        return made[-1]

    yield launch
    for sandbox in made:
        sandbox.kill()


def test_the_value_of_the_last_line_is_the_result(interpreter: Any) -> None:
    execution = interpreter.run_code("x = 20\nx + 22")
    assert execution.text == "42"
    assert execution.error is None
    assert execution.results[0].is_main_result is True
    assert list(execution.results[0].formats()) == ["text"]


def test_variables_stay(interpreter: Any, unique: str) -> None:
    interpreter.run_code(f"{unique} = 41")
    assert interpreter.run_code(f"{unique} + 1").text == "42"


def test_executions_are_counted(interpreter: Any) -> None:
    first = interpreter.run_code("1").execution_count
    assert interpreter.run_code("1").execution_count == first + 1


def test_printed_text_is_in_the_logs(interpreter: Any) -> None:
    execution = interpreter.run_code("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert ("".join(execution.logs.stdout), "".join(execution.logs.stderr)) == ("out\n", "err\n")
    assert json.loads(execution.logs.to_json()) == {"stdout": ["out\n"], "stderr": ["err\n"]}
    assert execution.text is None


def test_output_is_passed_on_as_it_comes(interpreter: Any) -> None:
    seen: dict[str, list[Any]] = {"out": [], "err": [], "result": [], "error": []}
    interpreter.run_code(
        "import sys, time\nprint('one'); time.sleep(0.2); print('two', file=sys.stderr)\n3",
        on_stdout=seen["out"].append,
        on_stderr=seen["err"].append,
        on_result=seen["result"].append,
        on_error=seen["error"].append,
        timeout=60,
        request_timeout=60,
    )
    assert [message.line for message in seen["out"]] == ["one\n"]
    assert [message.line for message in seen["err"]] == ["two\n"]
    assert [result.text for result in seen["result"]] == ["3"]
    assert seen["error"] == []
    assert seen["out"][0].timestamp > 0
    assert (seen["out"][0].error, seen["err"][0].error) == (False, True)


def test_an_error_has_a_name_a_value_and_a_traceback(interpreter: Any) -> None:
    errors: list[Any] = []
    execution = interpreter.run_code("def f():\n    return 1 / 0\nf()", on_error=errors.append)
    assert (execution.error.name, execution.error.value) == ("ZeroDivisionError", "division by zero")
    assert "in f" in execution.error.traceback or "f()" in execution.error.traceback
    assert [error.name for error in errors] == ["ZeroDivisionError"]
    assert json.loads(execution.error.to_json())["name"] == "ZeroDivisionError"
    assert execution.text is None


def test_a_syntax_error_is_reported(interpreter: Any) -> None:
    assert interpreter.run_code("if").error.name == "SyntaxError"


def test_code_after_an_error_runs(interpreter: Any) -> None:
    interpreter.run_code("raise ValueError('no')")
    assert interpreter.run_code("'still here'").text == "still here"


@pytest.mark.parametrize("text", ["plain", "ü漢😀", "'quoted'", 'dou"ble', ""])
def test_a_text_is_shown_without_its_quotes(interpreter: Any, text: str) -> None:
    assert interpreter.run_code(repr(text)).text == text


def test_an_execution_is_turned_into_json(interpreter: Any) -> None:
    data = json.loads(interpreter.run_code("print('x')\n1").to_json())
    assert data["results"][0]["text"] == "1"
    assert data["error"] is None


def test_variables_of_the_environment_are_set_for_one_run(interpreter: Any) -> None:
    code = "import os; os.environ.get('CASE_ONCE', 'unset')"
    assert interpreter.run_code(code, envs={"CASE_ONCE": "set"}).text == "set"
    assert interpreter.run_code(code).text == "unset"


def test_variables_of_the_sandbox_are_set_for_every_run(launch: Callable[..., Any]) -> None:
    sandbox = launch(envs={"CASE_ALWAYS": "set"})
    code = "import os; os.environ['CASE_ALWAYS']"
    assert sandbox.run_code(code).text == sandbox.run_code(code).text == "set"


def test_a_plot_is_a_picture(interpreter: Any) -> None:
    execution = interpreter.run_code(CHART.format(body="axes.plot([1, 2], [3, 4])"))
    pictures = [result for result in execution.results if result.png]
    assert base64.b64decode(pictures[0].png).startswith(b"\x89PNG")
    assert "png" in pictures[0].formats()


CHARTS = {
    "line": "axes.plot([1, 2, 3], [4, 5, 6], label='one')",
    "scatter": "axes.scatter([1, 2, 3], [4, 5, 6], label='one')",
    "bar": "axes.bar(['a', 'b'], [1, 2])",
    "pie": "axes.pie([1, 3], labels=['a', 'b'])",
    "box_and_whisker": "axes.boxplot([[1, 2, 3, 4, 50], [2, 3, 4, 5, 6]])",
}


@pytest.mark.parametrize("kind", CHARTS)
def test_a_plot_is_a_chart_as_data(interpreter: Any, kind: str) -> None:
    execution = interpreter.run_code(CHART.format(body=CHARTS[kind]))
    (chart,) = [result.chart for result in execution.results if result.chart]
    assert (chart.type.value, chart.title) == (kind, "A chart")
    assert len(chart.elements) >= 1
    if kind in ("line", "scatter"):
        assert [tuple(point) for point in chart.elements[0].points] == [(1, 4), (2, 5), (3, 6)]
        assert (chart.x_label, chart.y_label, chart.elements[0].label) == ("x (m)", "y (s)", "one")
    if kind == "bar":
        assert [(bar.label, float(bar.value)) for bar in chart.elements] == [("a", 1), ("b", 2)]
    if kind == "pie":
        assert [slice.label for slice in chart.elements] == ["a", "b"]
        assert [round(slice.angle) for slice in chart.elements] == [90, 270]
    if kind == "box_and_whisker":
        assert chart.elements[1].median == 4
        assert chart.elements[0].outliers == [50]


def test_several_plots_of_a_figure_are_one_chart_of_charts(interpreter: Any) -> None:
    code = (
        "import matplotlib.pyplot as plt\nfigure, axes = plt.subplots(1, 2)\n"
        "axes[0].plot([1, 2], [3, 4]); axes[1].bar(['a'], [1])\nplt.show()"
    )
    (chart,) = [result.chart for result in interpreter.run_code(code).results if result.chart]
    assert chart.type.value == "superchart"
    assert [one.type.value for one in chart.elements] == ["line", "bar"]


def test_a_table_is_shown_as_html_and_data(interpreter: Any) -> None:
    code = "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})"
    (result,) = interpreter.run_code(code).results
    assert "<table" in result.html
    assert result.data == {"a": [1, 2], "b": ["x", "y"]}
    assert "a" in result.text
    assert result["html"] == result.html


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("html", "from IPython.display import HTML\nHTML('<b>bold</b>')"),
        ("markdown", "from IPython.display import Markdown\nMarkdown('# head')"),
        ("latex", "from IPython.display import Latex\nLatex('$x$')"),
        ("json", "from IPython.display import JSON\nJSON({'a': 1})"),
        ("svg", "from IPython.display import SVG\nSVG('<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>')"),
        ("javascript", "from IPython.display import Javascript\nJavascript('1')"),
    ],
)
def test_a_result_has_the_format_of_its_value(interpreter: Any, kind: str, code: str) -> None:
    (result,) = interpreter.run_code(code).results
    assert kind in result.formats()


def test_values_that_are_displayed_are_results_too(interpreter: Any) -> None:
    execution = interpreter.run_code("from IPython.display import display\ndisplay(1)\ndisplay(2)\n3")
    assert [result.text for result in execution.results] == ["1", "2", "3"]
    assert [result.is_main_result for result in execution.results] == [False, False, True]


@pytest.mark.parametrize(
    ("language", "code", "text"),
    [
        ("python", "1 + 1", "2"),
        ("javascript", "const x = 20; x + 22", "42"),
        ("js", "1 + 2", "3"),
        ("typescript", "const y: number = 21; y * 2", "42"),
        ("ts", "2 + 3", "5"),
    ],
)
def test_code_runs_in_several_languages(interpreter: Any, language: str, code: str, text: str) -> None:
    execution = interpreter.run_code(code, language=language)
    assert execution.error is None, execution.error
    assert execution.text == text


def test_code_runs_in_a_shell(interpreter: Any) -> None:
    execution = interpreter.run_code("X=5; echo $((X * 2))", language="bash")
    assert "".join(execution.logs.stdout).strip() == "10"


@pytest.mark.parametrize("language", ["r", "java", "cobol"])
def test_a_language_that_is_not_there_is_refused(interpreter: Any, language: str) -> None:
    with pytest.raises(SandboxException, match=language):
        interpreter.run_code("1", language=language)


def test_an_error_in_javascript_has_a_name(interpreter: Any) -> None:
    error = interpreter.run_code("throw new TypeError('no')", language="javascript").error
    assert (error.name, error.value) == ("TypeError", "no")


def test_a_context_has_variables_of_its_own(interpreter: Any) -> None:
    context = interpreter.create_code_context(cwd="/tmp", language="python", request_timeout=60)
    assert (context.language, context.cwd) == ("python", "/tmp")
    assert interpreter.run_code("import os; os.getcwd()", context=context).text == "/tmp"
    interpreter.run_code("only_here = 1", context=context)
    assert interpreter.run_code("only_here", context=context).text == "1"
    assert interpreter.run_code("only_here").error.name == "NameError"
    interpreter.remove_code_context(context)


def test_contexts_are_listed_and_removed(interpreter: Any) -> None:
    context = interpreter.create_code_context()
    assert context.id in [one.id for one in interpreter.list_code_contexts()]
    interpreter.remove_code_context(context.id)
    assert context.id not in [one.id for one in interpreter.list_code_contexts()]
    with pytest.raises(NotFoundException):
        interpreter.run_code("1", context=context)
    with pytest.raises(NotFoundException):
        interpreter.remove_code_context(context)


def test_a_restarted_context_has_no_variables(interpreter: Any) -> None:
    context = interpreter.create_code_context(language="python")
    interpreter.run_code("here = 1", context=context)
    interpreter.restart_code_context(context)
    assert interpreter.run_code("here", context=context).error.name == "NameError"
    interpreter.restart_code_context(context.id)
    interpreter.remove_code_context(context)


def test_an_unknown_context_cannot_be_restarted(interpreter: Any, unique: str) -> None:
    with pytest.raises(NotFoundException):
        interpreter.restart_code_context(unique)


def test_language_and_context_exclude_each_other(interpreter: Any) -> None:
    context = interpreter.create_code_context()
    with pytest.raises(InvalidArgumentException):
        interpreter.run_code("1", language="python", context=context)
    interpreter.remove_code_context(context)


def test_a_run_that_takes_too_long_is_interrupted(interpreter: Any) -> None:
    context = interpreter.create_code_context()
    with pytest.raises(TimeoutException):
        interpreter.run_code("import time\nwhile True: time.sleep(0.1)", context=context, timeout=1)
    assert interpreter.run_code("'free again'", context=context, timeout=60).text == "free again"
    interpreter.remove_code_context(context)


def test_a_run_without_a_timeout_ends_by_itself(interpreter: Any) -> None:
    assert interpreter.run_code("import time; time.sleep(1); 'done'", timeout=0).text == "done"


def test_a_kill_during_a_run_is_reported(launch: Callable[..., Any]) -> None:
    sandbox = launch()
    killer = threading.Timer(1, sandbox.kill)
    killer.start()
    with pytest.raises(TimeoutException):
        sandbox.run_code("import time; time.sleep(600)")
    killer.join()


def test_runs_in_one_context_are_one_after_the_other(interpreter: Any) -> None:
    interpreter.run_code("order = []")
    code = "import time; order.append(({n}, 'in')); time.sleep(0.2); order.append(({n}, 'out'))"
    threads = [threading.Thread(target=lambda n=n: interpreter.run_code(code.format(n=n))) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert interpreter.run_code("all(a[0] == b[0] for a, b in zip(order[::2], order[1::2]))").text == "True"


def test_variables_survive_a_pause(launch: Callable[..., Any]) -> None:
    sandbox = launch()
    sandbox.run_code("value = {'answer': 42}")
    sandbox.pause()
    sandbox.connect()
    assert sandbox.run_code("value['answer']").text == "42"


def test_variables_survive_a_fork_and_a_snapshot(api: Surface, launch: Callable[..., Any]) -> None:
    sandbox = launch()
    sandbox.run_code("value = 1")
    (fork,) = sandbox.fork(timeout=300)
    snapshot = sandbox.create_snapshot().snapshot_id
    try:
        copy = launch(snapshot)
        assert fork.run_code("value += 1; value").text == "2"
        assert copy.run_code("value").text == sandbox.run_code("value").text == "1"
    finally:
        fork.kill()
        api.Sandbox.delete_snapshot(snapshot)


def test_files_of_code_and_of_the_client_are_the_same(interpreter: Any, unique: str) -> None:
    interpreter.files.write(unique, "from outside")
    assert interpreter.run_code(f"open('{unique}').read()").text == "from outside"
    interpreter.run_code(f"open('{unique}', 'w').write('from inside')")
    assert interpreter.files.read(unique) == "from inside"


def test_an_interpreter_is_a_sandbox(api: Surface, interpreter: Any) -> None:
    assert interpreter.commands.run("echo command").stdout == "command\n"
    assert api.Interpreter.connect(interpreter.sandbox_id).run_code("1").text == "1"
    assert interpreter.get_info().name == "code-interpreter-v1"


def test_shell_commands_in_code_work(interpreter: Any) -> None:
    assert "".join(interpreter.run_code("!echo from the shell").logs.stdout).strip() == "from the shell"


def test_much_output_arrives(interpreter: Any) -> None:
    execution = interpreter.run_code("for i in range(20000): print(i)")
    assert "".join(execution.logs.stdout) == "".join(f"{n}\n" for n in range(20_000))


def test_code_in_a_sandbox_with_private_ports_runs(launch: Callable[..., Any]) -> None:
    sandbox = launch(network={"allow_public_traffic": False})
    assert sandbox.run_code("1 + 1").text == "2"
    context = sandbox.create_code_context()
    sandbox.restart_code_context(context)
    assert context.id in [one.id for one in sandbox.list_code_contexts()]
    sandbox.remove_code_context(context)


def test_a_client_object_has_the_interpreter(api: Surface) -> None:
    import e2b_code_interpreter

    client = e2b_code_interpreter.E2B(request_timeout=60)
    with api.bound(client, "Sandbox").create() as sandbox:
        assert sandbox.run_code("1").text == "1"
