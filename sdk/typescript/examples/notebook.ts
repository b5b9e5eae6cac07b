/**
 * A notebook whose Python process sleeps when the notebook is closed. Opened again, perhaps by another program, it has
 * its variables, open files and imports; nothing is run a second time.
 */

import { Dormouse, type OutputPosition, type Process, type Sandbox } from "@dormouse/sdk";

/** Runs cells: one line of JSON in, one line of JSON out. */
const KERNEL = `
import ast, contextlib, io, json, sys, traceback
scope = {}
for line in sys.stdin:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            tree = ast.parse(json.loads(line))
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "cell", "exec"), scope)
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), scope) if last else None
            if value is not None: print(repr(value))
        except Exception:
            print(traceback.format_exc(limit=0).strip())
    print(json.dumps(shown.getvalue()), flush=True)
`;

class Notebook {
  readonly #sandbox: Sandbox;
  readonly #kernel: Process;
  #position: OutputPosition;

  private constructor(sandbox: Sandbox, kernel: Process, position: OutputPosition) {
    this.#sandbox = sandbox;
    this.#kernel = kernel;
    this.#position = position;
  }

  static async create(dormouse: Dormouse, name: string): Promise<Notebook> {
    const sandbox = await dormouse.sandboxes.create({ image: "base", name });
    const kernel = await sandbox.processes.start(["python3", "-c", KERNEL], { stdin: "pipe", label: "kernel" });
    return new Notebook(sandbox, kernel, { stdout: 0, stderr: 0 });
  }

  static async open(dormouse: Dormouse, name: string): Promise<Notebook> {
    const sandbox = await (await dormouse.sandboxes.connect(name)).resume();
    for await (const { process, stdoutBytes, stderrBytes } of sandbox.processes.list({ label: "kernel" })) {
      return new Notebook(sandbox, await sandbox.processes.get(process), { stdout: stdoutBytes, stderr: stderrBytes });
    }
    throw new Error(`${name} has no kernel`);
  }

  async run(cell: string): Promise<string> {
    await this.#kernel.write(`${JSON.stringify(cell)}\n`);
    let answer = "";
    for await (const event of this.#kernel.output({ from: this.#position })) {
      this.#position = event.position;
      if (event.type === "stdout") answer += event.text;
      if (answer.endsWith("\n")) return (JSON.parse(answer) as string).trimEnd();
    }
    throw new Error("the kernel has ended");
  }

  async close(): Promise<void> {
    await this.#sandbox.suspend();
  }

  async delete(): Promise<void> {
    await this.#sandbox.terminate();
  }
}

async function show(notebook: Notebook, cell: string): Promise<void> {
  console.log(`> ${cell.replaceAll("\n", "\n. ")}`);
  const output = await notebook.run(cell);
  if (output !== "") console.log(output);
}

const dormouse = new Dormouse();
const name = `notebook-${crypto.randomUUID().slice(0, 8)}`;

const notebook = await Notebook.create(dormouse, name);
await show(notebook, "import math\nvalues = [math.factorial(n) for n in range(8)]");
await show(notebook, "values");
await show(notebook, "log = open('/tmp/log', 'w+'); log.write('first line')");
await notebook.close();
console.log("(closed: the sandbox is suspended)");

const reopened = await Notebook.open(dormouse, name);
console.log("(opened again)");
await show(reopened, "sum(values)");
await show(reopened, "log.seek(0); log.read()");
await show(reopened, "values[99]");
await reopened.delete();
