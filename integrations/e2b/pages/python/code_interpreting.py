"""Code interpreting: running code, charts, streaming, contexts, languages."""

import base64

from e2b_code_interpreter import Sandbox

from pages import example, main

SANDBOX: list[Sandbox] = []


def sandbox() -> Sandbox:
    if not SANDBOX:
        SANDBOX.append(Sandbox.create(timeout=1200))
    return SANDBOX[0]


@example("Quickstart: run code and list files")
def quickstart() -> None:
    execution = sandbox().run_code("print('hello world')")
    assert execution.logs.stdout == ["hello world\n"]
    assert len(sandbox().files.list("/")) > 5


@example("Quickstart: upload and download files")
def files() -> None:
    sandbox().files.write("/home/user/data.csv", "a,b\n1,2\n")
    code = "open('/home/user/copy.csv', 'w').write(open('/home/user/data.csv').read())"
    assert sandbox().run_code(code).error is None
    assert sandbox().files.read("/home/user/copy.csv") == "a,b\n1,2\n"


@example("Static charts")
def static_chart() -> None:
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3, 4])\nplt.ylabel('some numbers')\nplt.show()"
    first = sandbox().run_code(code).results[0]
    assert base64.b64decode(first.png).startswith(b"\x89PNG")


@example("Interactive charts")
def interactive_chart() -> None:
    code = (
        "import matplotlib.pyplot as plt\nauthors = ['Author A', 'Author B']\nsales = [100, 200]\n"
        "plt.bar(authors, sales, label='Books Sold')\nplt.xlabel('Authors')\nplt.ylabel('Number of Books Sold')\n"
        "plt.title('Book Sales by Authors')\nplt.show()"
    )
    chart = sandbox().run_code(code).results[0].chart
    assert (chart.type.value, chart.title) == ("bar", "Book Sales by Authors")
    assert [(bar.label, float(bar.value)) for bar in chart.elements] == [("Author A", 100), ("Author B", 200)]


@example("Streaming of output")
def streaming() -> None:
    out: list[str] = []
    err: list[str] = []
    errors: list[str] = []
    code = "import sys\nprint('Starting')\nprint('a warning', file=sys.stderr)\nraise Exception('test')"
    sandbox().run_code(
        code,
        on_stdout=lambda message: out.append(message.line),
        on_stderr=lambda message: err.append(message.line),
        on_error=lambda error: errors.append(error.value),
    )
    assert ("".join(out), "".join(err), errors) == ("Starting\n", "a warning\n", ["test"])


@example("Streaming of results")
def streaming_results() -> None:
    results = []
    sandbox().run_code("from IPython.display import display\ndisplay(1)\n2", on_result=results.append)
    assert [result.text for result in results] == ["1", "2"]


@example("Contexts: create, run, list, restart, remove")
def contexts() -> None:
    context = sandbox().create_code_context(cwd="/home/user", language="python")
    sandbox().run_code("value = 1", context=context)
    assert sandbox().run_code("value", context=context).text == "1"
    assert context.id in [one.id for one in sandbox().list_code_contexts()]
    sandbox().restart_code_context(context)
    assert sandbox().run_code("value", context=context).error.name == "NameError"
    sandbox().remove_code_context(context)


@example("Languages: Python")
def python() -> None:
    assert sandbox().run_code("print('Hello, world!')").logs.stdout == ["Hello, world!\n"]


@example("Languages: JavaScript and TypeScript")
def javascript() -> None:
    execution = sandbox().run_code("console.log('Hello, world!')", language="javascript")
    assert execution.logs.stdout == ["Hello, world!\n"]
    execution = sandbox().run_code("const text: string = 'typed'; console.log(text)", language="typescript")
    assert execution.logs.stdout == ["typed\n"]


@example("Languages: Bash")
def bash() -> None:
    assert sandbox().run_code('echo "Hello, world!"', language="bash").logs.stdout == ["Hello, world!\n"]


@example("Packages: install at run time")
def packages() -> None:
    assert sandbox().run_code("import numpy, pandas, matplotlib; numpy.array([1, 2]).sum()").error is None
    sandbox().kill()


if __name__ == "__main__":
    main()
