"""Results with data: images, charts of matplotlib and tables of pandas."""

import base64
import json

import pytest

PLOT = "import matplotlib.pyplot as plt\n"


def chart(client, code):
    (line,) = client.run(PLOT + code + "\nplt.show()").of("result")
    assert base64.b64decode(line["png"]).startswith(b"\x89PNG")
    return line["chart"]


def test_a_figure_is_a_picture_with_data_and_text(client):
    ran = client.run(PLOT + "plt.plot([1, 2], [3, 4])\nplt.show()")
    (line,) = ran.of("result")
    assert line["text"].startswith("<Figure") and not line["is_main_result"]
    assert set(line) >= {"png", "chart", "text"}


def test_a_figure_that_is_not_shown_is_a_result_at_the_end_of_the_run(client):
    ran = client.run(PLOT + "plt.plot([1, 2], [3, 4]); None")
    assert [line["chart"]["type"] for line in ran.of("result")] == ["line"]


def test_lines_have_labels_units_ticks_and_points(client):
    code = "plt.plot([0, 1, 2], [0.5, 1.5, float('nan')], label='one')\nplt.plot([0, 1, 2], [2, 3, 4])\n"
    code += "plt.axhline(1)\nplt.xlabel('Time (s)')\nplt.ylabel('Speed [m/s]')\nplt.title('Both')"
    found = chart(client, code)
    assert (found["type"], found["title"]) == ("line", "Both")
    assert (found["x_label"], found["x_unit"], found["y_unit"]) == ("Time (s)", "s", "m/s")
    assert (found["x_scale"], found["y_scale"]) == ("linear", "linear")
    one, other = found["elements"]
    assert one == {"label": "one", "points": [[0.0, 0.5], [1.0, 1.5], [2.0, None]]}
    assert (other["label"], len(other["points"])) == ("", 3)
    assert len(found["x_ticks"]) == len(found["x_tick_labels"]) > 0
    assert all(isinstance(tick, float) for tick in found["x_ticks"])


def test_scales_are_distinguished(client):
    assert chart(client, "plt.semilogy([1, 2], [1, 100])")["y_scale"] == "log"
    found = chart(client, "plt.plot([1, 2], ['A', 'B'])")
    assert (found["y_scale"], found["elements"][0]["points"]) == ("categorical", [[1.0, "A"], [2.0, "B"]])
    found = chart(client, "import datetime\nplt.plot([datetime.date(2023, 9, day) for day in (1, 2)], [1, 2])")
    assert (found["x_scale"], found["elements"][0]["points"][0][0]) == ("datetime", "2023-09-01T00:00:00")
    assert all(isinstance(tick, str) for tick in found["x_ticks"])


def test_points_are_a_scatter_chart(client):
    found = chart(client, "plt.scatter([1, 2], [3, 4], label='a')\nplt.scatter([5], [6])")
    assert found["type"] == "scatter"
    assert found["elements"] == [{"label": "a", "points": [[1.0, 3.0], [2.0, 4.0]]}, {"label": "", "points": [[5.0, 6.0]]}]
    assert chart(client, "plt.plot([1, 2], [3, 4], 'o')")["type"] == "scatter"


def test_bars_have_labels_values_and_groups(client):
    found = chart(client, "plt.bar(['A', 'B'], [1, 2], label='sold')\nplt.xlabel('Who')")
    assert (found["type"], found["x_label"], found["x_unit"]) == ("bar", "Who", None)
    assert found["elements"] == [
        {"label": "A", "value": 1.0, "group": "sold"},
        {"label": "B", "value": 2.0, "group": "sold"},
    ]
    assert chart(client, "plt.barh(['A'], [7])")["elements"] == [{"label": "A", "value": 7.0, "group": ""}]
    code = "for shift, name in ((-0.2, 'x'), (0.2, 'y')): plt.bar([0 + shift, 1 + shift], [1, 2], 0.4, label=name)\n"
    found = chart(client, code + "plt.xticks([0, 1], ['A', 'B'])")
    assert [(bar["label"], bar["group"]) for bar in found["elements"]] == [("A", "x"), ("B", "x"), ("A", "y"), ("B", "y")]
    assert [bar["value"] for bar in chart(client, "plt.hist([1, 1, 2, 3], bins=2)")["elements"]] == [2.0, 2.0]


def test_slices_have_labels_and_angles(client):
    found = chart(client, "plt.pie([90, 10], labels=['No', 'Yes'], startangle=90)\nplt.title('Early?')")
    assert (found["type"], found["title"]) == ("pie", "Early?")
    assert found["elements"] == [
        {"label": "No", "angle": 324.0, "radius": 1.0},
        {"label": "Yes", "angle": 36.0, "radius": 1.0},
    ]


@pytest.mark.parametrize("options", ["", ", patch_artist=True", ", showfliers=False"])
def test_boxes_have_their_quartiles(client, options):
    found = chart(client, f"plt.boxplot([[1, 2, 3, 4, 5, 50]], tick_labels=['A']{options})\nplt.ylabel('Score')")
    assert (found["type"], found["y_label"]) == ("box_and_whisker", "Score")
    (box,) = found["elements"]
    assert (box["label"], box["min"], box["median"], box["max"], box["outliers"]) == ("A", 1.0, 3.5, 5.0, [50.0])
    assert (box["first_quartile"], box["third_quartile"]) == (2.25, 4.75)


def test_boxes_that_are_drawn_twice_are_there_once(client):
    code = "plt.boxplot([[1, 2], [2, 3]], tick_labels=['A', 'B'])\n"
    assert len(chart(client, code + code)["elements"]) == 2
    assert chart(client, code + "plt.cla()\nplt.plot([1])")["type"] == "line"


def test_a_figure_with_several_axes_is_a_chart_of_charts(client):
    code = "figure, axes = plt.subplots(1, 3)\nfigure.suptitle('All')\naxes[0].plot([1, 2])\naxes[0].set_title('Line')\n"
    found = chart(client, code + "axes[1].scatter([1], [2])")
    assert (found["type"], found["title"]) == ("superchart", "All")
    assert [one["type"] for one in found["elements"]] == ["line", "scatter", "unknown"]
    assert found["elements"][0]["title"] == "Line"


def test_an_unknown_chart_has_no_elements(client):
    found = chart(client, "plt.gca().add_artist(plt.Circle((0, 0), 1))\nplt.title('Circle')")
    assert found == {"type": "unknown", "title": "Circle", "elements": []}
    assert chart(client, "plt.imshow([[1, 2]])\nplt.colorbar()")["type"] == "unknown"


def test_a_chart_with_very_many_points_is_a_picture_only(client):
    (line,) = client.run(PLOT + "plt.plot(range(200_000))\nplt.show()").of("result")
    assert "png" in line and "chart" not in line


def test_charts_of_other_libraries_have_data(client):
    code = "import pandas, seaborn\nframe = pandas.DataFrame({'kind': ['A', 'A', 'B'], 'size': [1, 2, 3]})\n"
    assert chart(client, code + "frame.plot.scatter('size', 'size')")["type"] == "scatter"
    assert chart(client, code + "seaborn.barplot(frame, x='kind', y='size', errorbar=None)")["elements"] == [
        {"label": "A", "value": 1.5, "group": ""},
        {"label": "B", "value": 3.0, "group": ""},
    ]
    assert chart(client, code + "seaborn.boxplot(frame, x='kind', y='size')")["type"] == "box_and_whisker"
    assert chart(client, code + "seaborn.heatmap([[1, 2]])")["type"] == "unknown"


def test_a_table_is_data_text_and_html(client):
    code = "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', None], 3: [0.5, float('nan')], "
    code += "'t': pd.to_datetime(['2024-01-02', None]), 'l': [[1], {'k': 2}]})"
    (line,) = client.run(code).of("result")
    assert line["is_main_result"] and "<table" in line["html"] and line["text"].startswith("   a")
    assert line["data"] == {
        "a": [1, 2],
        "b": ["x", None],
        "3": [0.5, None],
        "t": ["2024-01-02T00:00:00", None],
        "l": [[1], {"k": 2}],
    }


def test_a_very_large_table_has_no_data(client):
    (line,) = client.run("import pandas as pd\npd.DataFrame({'a': range(1_000_001)})").of("result")
    assert "data" not in line and "html" in line


def test_every_kind_of_data_arrives_under_its_name(client):
    code = "from IPython.display import *\n"
    for show, kind, value in [
        ("HTML('<b>x</b>')", "html", "<b>x</b>"),
        ("Markdown('*x*')", "markdown", "*x*"),
        ("Latex('$x$')", "latex", "$x$"),
        ("JSON({'a': 1})", "json", {"a": 1}),
        ("Javascript('x()')", "javascript", "x()"),
        ("SVG('<svg></svg>')", "svg", "<svg/>"),
    ]:
        (line,) = client.run(code + show).of("result")
        assert line[kind] == value
    (line,) = client.run(code + "display({'application/pdf': 'eA==', 'image/jpeg': 'eQ==\\n', 'x/y': 1}, raw=True)").of("result")
    assert (line["pdf"], line["jpeg"], line["extra"]) == ("eA==", "eQ==", {"x/y": 1})


def test_an_image_that_is_shown_is_a_result(client):
    code = "from PIL import Image\nimage = Image.new('RGB', (2, 2))\n"
    for show in ("image.show()\nprint('shown')", "image", "display(image)"):
        (line,) = client.run(code + show).of("result")
        assert base64.b64decode(line["png"]).startswith(b"\x89PNG")


def test_the_quotes_of_a_string_are_removed(client):
    assert client.run("'text'").result == "text"
    assert client.run('"it\'s"').result == "it's"
    assert client.run("\"'\"").result == "'"
    assert client.run("''").result == ""
    assert client.run("'text'", language="js").result == "text"
    assert client.run("`'text'`", language="js").result == "'text'"


@pytest.mark.parametrize(
    "code, text",
    [
        ("{ a: 1 }", "{ a: 1 }"),
        ("{ a: 1 };", "1"),
        ("10n ** 20n", "100000000000000000000n"),
        ("NaN", "NaN"),
        ("Symbol('x')", "Symbol(x)"),
        ("null", "null"),
        ("new Map([[1, 2]])", "Map(1) { 1 => 2 }"),
        ("await Promise.resolve(3)", "3"),
        ("[1, 2].map((x) => x * 2)", "[ 2, 4 ]"),
        ("class A {}\nnew A()", "A {}"),
        ("const { sep } = require('node:path')\nsep", "/"),
        ("import fs, { existsSync as is } from 'node:fs'\nis('/') && fs.existsSync('/')", "true"),
        ("import * as path from 'node:path'\npath.sep", "/"),
        ("import 'node:path'\n(await import('node:path')).sep", "/"),
        ("let a = 1, b\nlet { c, d: [e, ...f], ...g } = { c: 2, d: [3, 4], h: 5 };\n[a, b, c, e, f, g]",
         "[ 1, undefined, 2, 3, [ 4 ], { h: 5 } ]"),
        ("for (var i = 0, j; i < 3; i++) await 1\nfor (var { k } of [{ k: 7 }]) {}\n[i, j, k]", "[ 3, undefined, 7 ]"),
        ("await 1; function hoisted() { return 6 }\nhoisted()", "6"),
        ("const crypto = { mine: 8 }\ncrypto.mine", "8"),
        ("async function main() { await 1; return 9 }\nmain()", "9"),
        ("if (true) { 10 }", "10"),
        ("for await (const one of [11]) var last = one\nlast", "11"),
        ("export const shown = 12; export default 1", None),
        ("'use strict'\nconst strict = 13\nstrict", "13"),
    ],
)
def test_values_of_javascript_are_shown_as_in_its_shell(client, code, text):
    for language in ("js", "ts"):
        ran = client.run(code, language=language)
        assert text is None or ran.result == text


def test_values_of_javascript_may_have_representations(client):
    code = "display({ 'text/html': '<b>x</b>' }); ({ [Symbol.for('Jupyter.display')]: () => ({ 'text/markdown': '*x*' }) })"
    shown, value = client.run(code, language="js").of("result")
    assert (shown["html"], shown["is_main_result"]) == ("<b>x</b>", False)
    assert (value["markdown"], value["is_main_result"]) == ("*x*", True)


def test_declarations_of_javascript_persist_and_can_be_repeated(client):
    context = client.context(language="ts")
    client.run("const a: number = 1; let b = 2; class C {}; function f() { return a }; enum E { X, Y }", context_id=context)
    assert client.run("const a = 5; [a, b, typeof C, f(), E.Y]", context_id=context).result == "[ 5, 2, 'function', 5, 1 ]"
    assert not client.run("const nothing = 1", context_id=context).of("result")


def test_modules_are_found_from_the_directory_of_the_context(client, tmp_path):
    (tmp_path / "mine.mjs").write_text("export default 7")
    (tmp_path / "old.cjs").write_text("module.exports = 8")
    context = client.context(language="js", cwd=str(tmp_path))
    code = "import mine from './mine.mjs'\n;[mine, require('./old.cjs'), (await import('./mine.mjs')).default]"
    assert client.run(code, context_id=context).result == "[ 7, 8, 7 ]"
    assert "Cannot find module" in client.run("import './none.mjs'", context_id=context).error["value"]


def test_an_error_after_the_end_of_a_run_does_not_end_the_kernel(client):
    context = client.context(language="js")
    client.run("var kept = 1; setTimeout(() => { throw new Error('late') }, 1); Promise.reject(new Error('later'))", context_id=context)
    ran = client.run("await new Promise((resolve) => setTimeout(resolve, 20)); kept", context_id=context)
    assert ran.result == "1" and "KernelEnded" not in json.dumps(ran.lines)
