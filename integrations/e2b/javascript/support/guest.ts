/** Sandboxes for cases, programs in them, and requests to their ports. */
import { randomBytes } from "node:crypto";
import { request } from "node:https";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, onTestFinished } from "vitest";
import { type CommandHandle, Sandbox, type SandboxOpts } from "./client.ts";

const DEADLINE_MS = 60_000;
export const BOOT_ID = "/proc/sys/kernel/random/boot_id";

/** A name that nothing else has. */
export const unique = (): string => `t${randomBytes(6).toString("hex")}`;

/** The value of a variable that the server of the cases sets. */
export function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`set ${name}`);
  return value;
}

/** Returns the first result of a function that is neither false nor empty, and fails if there is none in a minute. */
export async function eventually<T>(check: () => T | Promise<T>, shown: () => unknown = () => ""): Promise<T> {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    const result = await check();
    if (result) return result;
    if (Date.now() > deadline) throw new Error(`this did not happen within the deadline: ${String(shown())}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Creates a sandbox that is killed at the end of the case. */
export async function create(opts?: SandboxOpts & { template?: string }): Promise<Sandbox> {
  const { template, ...rest } = { timeoutMs: 600_000, ...opts };
  const sandbox = await (template === undefined ? Sandbox.create(rest) : Sandbox.create(template, rest));
  onTestFinished(async () => void (await sandbox.kill()));
  return sandbox;
}

/** Kills a sandbox at the end of the case. */
export function keep(sandbox: Sandbox | Error): Sandbox {
  if (sandbox instanceof Error) throw sandbox;
  onTestFinished(async () => void (await sandbox.kill()));
  return sandbox;
}

/** A sandbox for the cases of a file that only use its files and processes. */
export function shared(): { readonly sandbox: Sandbox; home(): Promise<string> } {
  let sandbox: Sandbox | undefined;
  beforeAll(async () => {
    sandbox = await Sandbox.create({ timeoutMs: 3_600_000, metadata: { case: "shared" } });
  });
  afterAll(async () => void (await sandbox?.kill()));
  return {
    get sandbox(): Sandbox {
      if (sandbox === undefined) throw new Error("the shared sandbox is not there yet");
      return sandbox;
    },
    /** Makes a directory. */
    async home(): Promise<string> {
      const path = `/home/user/${unique()}`;
      await this.sandbox.files.makeDir(path);
      return path;
    },
  };
}

export const bootId = async (sandbox: Sandbox): Promise<string> => (await sandbox.files.read(BOOT_ID)).trim();

/** Runs a command and returns what it prints, without the last line break. */
export async function output(
  sandbox: Sandbox,
  command: string,
  opts: { [key: string]: unknown } = {},
): Promise<string> {
  const result = await sandbox.commands.run(command, { ...opts, background: false });
  return result.stdout.replace(/\n$/, "");
}

/** Sends a request to a port of a sandbox, which headers name. */
export async function visit(
  sandbox: Sandbox,
  port: number | string,
  path = "/",
  init: RequestInit = {},
): Promise<Response> {
  const headers = { "E2b-Sandbox-Id": sandbox.sandboxId, "E2b-Sandbox-Port": String(port), ...init.headers };
  return fetch(variable("E2B_SANDBOX_URL") + path, { ...init, headers });
}

/** Sends a request over HTTPS to the host of a port, which the authority of the server has signed. */
export async function visitByHost(sandbox: Sandbox, port: number, path = "/"): Promise<string> {
  const host = sandbox.getHost(port);
  const address = new URL(variable("E2B_API_URL"));
  const ca = readFileSync(variable("E2B_CASES_CA"));
  // Not every resolver knows names that end in localhost.
  const options = { host: address.hostname, port: address.port, servername: host.split(":")[0], ca, path };
  return new Promise((resolve, reject) => {
    const sent = request({ ...options, headers: { Host: host } }, (answer) => {
      let text = "";
      answer.on("data", (chunk: Buffer) => (text += chunk.toString()));
      answer.on("end", () => resolve(text));
    });
    sent.on("error", reject);
    sent.end();
  });
}

/** Starts a web server and waits until it answers. No stream stays open, whose end would wake the sandbox. */
export async function serve(sandbox: Sandbox, port = 8000, directory = "/home/user"): Promise<void> {
  const server = `python3 -m http.server ${port} --directory ${directory}`;
  await sandbox.commands.run(`setsid ${server} > /dev/null 2>&1 &`);
  await eventually(async () => (await visit(sandbox, port)).status === 200);
}

/** A command in the background, with all output so far. */
export class Started {
  out = "";
  err = "";
  handle!: CommandHandle;

  static async run(sandbox: Sandbox, command: string, opts: { [key: string]: unknown } = {}): Promise<Started> {
    const started = new Started();
    started.handle = await sandbox.commands.run(command, { ...opts, ...started.hooks(), background: true });
    return started;
  }

  static async connect(sandbox: Sandbox, pid: number, opts: { [key: string]: unknown } = {}): Promise<Started> {
    const started = new Started();
    started.handle = await sandbox.commands.connect(pid, { ...opts, ...started.hooks() });
    return started;
  }

  private hooks(): object {
    return { onStdout: (text: string) => void (this.out += text), onStderr: (text: string) => void (this.err += text) };
  }

  get pid(): number {
    return this.handle.pid;
  }

  /** Waits until the standard output contains a text, and returns it. */
  async says(text: string): Promise<string> {
    return eventually(
      () => (this.out.includes(text) ? this.out : ""),
      () => this.out,
    );
  }
}

/** An interactive Python in a sandbox. */
export class Repl {
  private asked = 0;
  private constructor(
    readonly sandbox: Sandbox,
    readonly run: Started,
  ) {}

  static async start(sandbox: Sandbox): Promise<Repl> {
    return new Repl(sandbox, await Started.run(sandbox, "exec python3 -i -q -u", { stdin: true, timeoutMs: 0 }));
  }

  /** Connects to the same process, in this sandbox. */
  async again(sandbox: Sandbox): Promise<Repl> {
    return new Repl(sandbox, await Started.connect(sandbox, this.run.pid, { timeoutMs: 0 }));
  }

  async do(source: string): Promise<void> {
    for (const line of source.trim().split("\n")) await this.sandbox.commands.sendStdin(this.run.pid, `${line}\n`);
  }

  /** Returns the text of a value. */
  async ask(expression: string): Promise<string> {
    this.asked += 1;
    const mark = `${this.asked}>`;
    await this.do(`print('<' + '${mark}', ${expression}, '</' + '${mark}')`);
    const text = await this.run.says(`</${mark}`);
    return text.split(`<${mark}`).at(-1)!.split(`</${mark}`)[0]!.trim();
  }
}

/** A sandbox at work: a process with a variable and a deleted file, and another one that counts. */
export class Work {
  private constructor(
    readonly repl: Repl,
    readonly counter: number,
    readonly boot: string,
    private seen: number,
  ) {}

  static async start(sandbox: Sandbox): Promise<Work> {
    const repl = await Repl.start(sandbox);
    await repl.do(
      'import os\nvalue = {"answer": 42}\nkept = open("/tmp/deleted", "w+"); kept.write("still here"); kept.flush(); os.unlink("/tmp/deleted")',
    );
    const loop = "i=0; while true; do i=$((i+1)); echo $i > /tmp/next; mv /tmp/next /tmp/count; sleep 0.1; done";
    const counter = await sandbox.commands.run(loop, { background: true, timeoutMs: 0 });
    await eventually(async () => (await Work.count(sandbox)) > 1);
    return new Work(repl, counter.pid, await bootId(sandbox), await Work.count(sandbox));
  }

  static async count(sandbox: Sandbox): Promise<number> {
    return Number(await output(sandbox, "cat /tmp/count 2> /dev/null || echo 0"));
  }

  /** Checks that all of it is there in this sandbox, and continues. */
  async continues(sandbox: Sandbox): Promise<void> {
    expect(await bootId(sandbox)).toBe(this.boot);
    const repl = await this.repl.again(sandbox);
    expect(await repl.ask("value['answer']")).toBe("42");
    expect(await repl.ask("(kept.seek(0), kept.read())[1]")).toBe("still here");
    const pids = (await sandbox.commands.list()).map((process) => process.pid);
    expect(pids).toEqual(expect.arrayContaining([this.counter, this.repl.run.pid]));
    const before = await Work.count(sandbox);
    expect(before).toBeGreaterThanOrEqual(this.seen);
    await eventually(async () => (await Work.count(sandbox)) > before);
    this.seen = before;
  }
}

/** Returns the items of all pages. */
export async function allItems<T>(paginator: { hasNext: boolean; nextItems(): Promise<T[]> }): Promise<T[]> {
  const found: T[] = [];
  while (paginator.hasNext) found.push(...(await paginator.nextItems()));
  return found;
}

/** Returns the error of a call that must fail. */
export async function failure(call: Promise<unknown>): Promise<any> {
  try {
    await call;
  } catch (error) {
    return error;
  }
  throw new Error("the call did not fail");
}
