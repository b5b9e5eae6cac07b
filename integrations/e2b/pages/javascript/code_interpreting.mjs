// Code interpreting: running code, charts, streaming, contexts, languages.
import assert from "node:assert/strict";
import { Sandbox } from "@e2b/code-interpreter";
import { example, main } from "./pages.mjs";

const sandbox = await Sandbox.create({ timeoutMs: 1_200_000 });

example("Quickstart: run code and list files", async () => {
  assert.deepEqual((await sandbox.runCode('print("hello world")')).logs.stdout, ["hello world\n"]);
  assert((await sandbox.files.list("/")).length > 5);
});

example("Quickstart: upload and download files", async () => {
  await sandbox.files.write("/home/user/data.csv", "a,b\n1,2\n");
  const code = "open('/home/user/copy.csv', 'w').write(open('/home/user/data.csv').read())";
  assert.equal((await sandbox.runCode(code)).error, undefined);
  assert.equal(await sandbox.files.read("/home/user/copy.csv"), "a,b\n1,2\n");
});

example("Static charts", async () => {
  const code = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3, 4])\nplt.ylabel('some numbers')\nplt.show()";
  const [first] = (await sandbox.runCode(code)).results;
  assert.equal(Buffer.from(first.png, "base64").subarray(1, 4).toString(), "PNG");
});

example("Interactive charts", async () => {
  const code = `
import matplotlib.pyplot as plt
plt.bar(['Author A', 'Author B'], [100, 200], label='Books Sold')
plt.xlabel('Authors'); plt.ylabel('Number of Books Sold'); plt.title('Book Sales by Authors')
plt.show()
`;
  const { chart } = (await sandbox.runCode(code)).results[0];
  assert.deepEqual([chart.type, chart.title], ["bar", "Book Sales by Authors"]);
  assert.deepEqual(
    chart.elements.map((bar) => [bar.label, Number(bar.value)]),
    [
      ["Author A", 100],
      ["Author B", 200],
    ],
  );
});

example("Streaming of output", async () => {
  let [out, err, errors] = ["", "", []];
  const code = "import sys\nprint('Starting')\nprint('a warning', file=sys.stderr)\nraise Exception('test')";
  await sandbox.runCode(code, {
    onStdout: (message) => (out += message.line),
    onStderr: (message) => (err += message.line),
    onError: (error) => void errors.push(error.value),
  });
  assert.deepEqual([out, err, errors], ["Starting\n", "a warning\n", ["test"]]);
});

example("Streaming of results", async () => {
  const results = [];
  const onResult = (result) => void results.push(result.text);
  await sandbox.runCode("from IPython.display import display\ndisplay(1)\n2", { onResult });
  assert.deepEqual(results, ["1", "2"]);
});

example("Contexts: create, run, list, restart, remove", async () => {
  const context = await sandbox.createCodeContext({ cwd: "/home/user", language: "python" });
  await sandbox.runCode("value = 1", { context });
  assert.equal((await sandbox.runCode("value", { context })).text, "1");
  assert((await sandbox.listCodeContexts()).some((one) => one.id === context.id));
  await sandbox.restartCodeContext(context);
  assert.equal((await sandbox.runCode("value", { context })).error.name, "NameError");
  await sandbox.removeCodeContext(context);
});

example("Languages: Python", async () => {
  assert.deepEqual((await sandbox.runCode("print('Hello, world!')")).logs.stdout, ["Hello, world!\n"]);
});

example("Languages: JavaScript and TypeScript", async () => {
  const script = await sandbox.runCode("console.log('Hello, world!')", { language: "javascript" });
  assert.deepEqual(script.logs.stdout, ["Hello, world!\n"]);
  const typed = await sandbox.runCode("const text: string = 'typed'; console.log(text)", { language: "typescript" });
  assert.deepEqual(typed.logs.stdout, ["typed\n"]);
});

example("Languages: Bash", async () => {
  const { logs } = await sandbox.runCode('echo "Hello, world!"', { language: "bash" });
  assert.deepEqual(logs.stdout, ["Hello, world!\n"]);
});

example("Packages: install at run time", async () => {
  const code = "import numpy, pandas, matplotlib; numpy.array([1, 2]).sum()";
  assert.equal((await sandbox.runCode(code)).error, undefined);
  await sandbox.kill();
});

await main();
