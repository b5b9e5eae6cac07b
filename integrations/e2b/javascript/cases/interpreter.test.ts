import { Sandbox as Interpreter } from "@e2b/code-interpreter";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { InvalidArgumentError, NotFoundError, SandboxError, TimeoutError, isOlder } from "../support/client.ts";
import { wrapClass } from "../support/recording.ts";
import { failure, unique } from "../support/guest.ts";

wrapClass("Interpreter", Interpreter);

let sandbox: Interpreter;
const chart = (body: string) => `
import matplotlib.pyplot as plt
figure, axes = plt.subplots()
${body}
plt.title("A chart"); plt.xlabel("x (m)"); plt.ylabel("y (s)")
plt.show()
`;

/** Creates an interpreter that is killed at the end of the case. */
async function launch(opts: { [key: string]: unknown } = {}): Promise<Interpreter> {
  const made = await Interpreter.create(opts);
  onTestFinished(async () => void (await made.kill()));
  return made;
}

describe.runIf(!isOlder)("the code interpreter", () => {
  beforeAll(async () => void (sandbox = await Interpreter.create({ timeoutMs: 3_600_000 })));
  afterAll(async () => void (await sandbox.kill()));

  test("returns the value of the last line, and keeps variables", async () => {
    const first = await sandbox.runCode("x = 20\nx + 22");
    expect([first.text, first.error, first.results[0]!.isMainResult]).toEqual(["42", undefined, true]);
    expect(first.results[0]!.formats()).toEqual([]);
    const second = await sandbox.runCode("x");
    expect([second.text, second.executionCount]).toEqual(["20", first.executionCount! + 1]);
    expect(JSON.parse(JSON.stringify(second)).results[0].text).toBe("20");
  });

  test("passes on output as it comes", async () => {
    const seen: { [key: string]: any[] } = { out: [], err: [], results: [], errors: [] };
    const execution = await sandbox.runCode(
      "import sys, time\nprint('one'); time.sleep(0.2); print('two', file=sys.stderr)\n3",
      {
        onStdout: (message) => seen["out"]!.push(message.line),
        onStderr: (message) => seen["err"]!.push(message.line),
        onResult: (result) => seen["results"]!.push(result.text),
        onError: (error) => seen["errors"]!.push(error.name),
        timeoutMs: 60_000,
        requestTimeoutMs: 60_000,
      },
    );
    expect(seen).toEqual({ out: ["one\n"], err: ["two\n"], results: ["3"], errors: [] });
    expect([execution.logs.stdout, execution.logs.stderr]).toEqual([["one\n"], ["two\n"]]);
  });

  test("reports errors with name, value and traceback", async () => {
    const names: string[] = [];
    const { error } = await sandbox.runCode("def f():\n    return 1 / 0\nf()", {
      onError: (one) => void names.push(one.name),
    });
    expect([error!.name, error!.value, names]).toEqual([
      "ZeroDivisionError",
      "division by zero",
      ["ZeroDivisionError"],
    ]);
    expect(error!.traceback).toContain("f");
    expect((await sandbox.runCode("if")).error!.name).toBe("SyntaxError");
  });

  test("sets variables of the environment for one run", async () => {
    const code = "import os; os.environ.get('CASE_ONCE', 'unset')";
    expect((await sandbox.runCode(code, { envs: { CASE_ONCE: "set" } })).text).toBe("set");
    expect((await sandbox.runCode(code)).text).toBe("unset");
  });

  test("shows a plot as a picture and as data", async () => {
    const { results } = await sandbox.runCode(chart("axes.plot([1, 2, 3], [4, 5, 6], label='one')"));
    const found = results.find((result) => result.png !== undefined)!;
    expect(Buffer.from(found.png!, "base64").subarray(1, 4).toString()).toBe("PNG");
    const shown: any = results.find((result) => result.chart !== undefined)!.chart;
    expect(shown).toMatchObject({ type: "line", title: "A chart", x_label: "x (m)", y_label: "y (s)" });
    expect(shown.elements[0].points).toEqual([
      [1, 4],
      [2, 5],
      [3, 6],
    ]);
  });

  test.each([
    ["scatter", "axes.scatter([1, 2], [3, 4])"],
    ["bar", "axes.bar(['a', 'b'], [1, 2])"],
    ["pie", "axes.pie([1, 3], labels=['a', 'b'])"],
    ["box_and_whisker", "axes.boxplot([[1, 2, 3, 4, 50]])"],
  ])("shows a plot of the kind %s as data", async (kind, body) => {
    const { results } = await sandbox.runCode(chart(body));
    expect(String(results.find((result) => result.chart !== undefined)!.chart!.type)).toBe(kind);
  });

  test("shows a table as html and as data", async () => {
    const { results } = await sandbox.runCode("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})");
    expect(results[0]!.html).toContain("<table");
    expect(results[0]!.data).toEqual({ a: [1, 2], b: ["x", "y"] });
    expect(results[0]!.formats()).toEqual(["html", "data"]);
  });

  test.each([
    ["python", "1 + 1", "2"],
    ["javascript", "const x = 20; x + 22", "42"],
    ["js", "1 + 2", "3"],
    ["typescript", "const y: number = 21; y * 2", "42"],
    ["ts", "2 + 3", "5"],
  ])("runs %s", async (language, code, text) => {
    expect((await sandbox.runCode(code, { language })).text).toBe(text);
  });

  test("runs a shell", async () => {
    const { logs } = await sandbox.runCode("X=5; echo $((X * 2))", { language: "bash" });
    expect(logs.stdout.join("").trim()).toBe("10");
  });

  test.each(["r", "java", "cobol"])("refuses the language %s", async (language) => {
    const error = await failure(sandbox.runCode("1", { language }));
    expect(error).toBeInstanceOf(SandboxError);
    expect(error.message).toBe("400 Bad Request");
  });

  test("has contexts with variables of their own", async () => {
    const context = await sandbox.createCodeContext({ cwd: "/tmp", language: "python", requestTimeoutMs: 60_000 });
    expect(context).toMatchObject({ cwd: "/tmp", language: "python" });
    expect((await sandbox.runCode("import os; here = 1; os.getcwd()", { context })).text).toBe("/tmp");
    expect((await sandbox.listCodeContexts()).map((one) => one.id)).toContain(context.id);
    await sandbox.restartCodeContext(context);
    expect((await sandbox.runCode("here", { context })).error!.name).toBe("NameError");
    const both = { context, language: "python" } as object;
    expect(await failure(sandbox.runCode("1", both))).toBeInstanceOf(InvalidArgumentError);
    await sandbox.removeCodeContext(context.id);
    expect(await failure(sandbox.runCode("1", { context }))).toBeInstanceOf(NotFoundError);
    expect(await failure(sandbox.restartCodeContext(context))).toBeInstanceOf(NotFoundError);
  });

  test("interrupts a run that takes too long", async () => {
    const context = await sandbox.createCodeContext();
    const code = "import time\nwhile True: time.sleep(0.1)";
    expect(await failure(sandbox.runCode(code, { context, timeoutMs: 1000 }))).toBeInstanceOf(TimeoutError);
    expect((await sandbox.runCode("'free again'", { context })).text).toBe("free again");
    await sandbox.removeCodeContext(context);
  });

  test("keeps variables over a pause and a fork", async () => {
    const made = await launch();
    await made.runCode("value = 42");
    await made.pause();
    await made.connect();
    expect((await made.runCode("value")).text).toBe("42");
    const fork = (await made.fork({ timeoutMs: 300_000 }))[0] as Interpreter;
    expect((await fork.runCode("value + 1")).text).toBe("43");
    await fork.kill();
  });

  test("reports a kill during a run", async () => {
    const made = await launch();
    const ended = failure(made.runCode("import time; time.sleep(600)", { timeoutMs: 0, requestTimeoutMs: 0 }));
    setTimeout(() => void made.kill(), 1000);
    expect(await ended).toBeInstanceOf(Error);
  });

  test("shares files with the client", async () => {
    const name = unique();
    await sandbox.files.write(name, "from outside");
    expect((await sandbox.runCode(`open('${name}').read()`)).text).toBe("from outside");
    expect((await sandbox.getInfo()).name).toBe("code-interpreter-v1");
  });

  test("works with private ports", async () => {
    const made = await launch({ network: { allowPublicTraffic: false } });
    expect((await made.runCode("1 + 1")).text).toBe("2");
    await made.removeCodeContext(await made.createCodeContext());
  });
});
