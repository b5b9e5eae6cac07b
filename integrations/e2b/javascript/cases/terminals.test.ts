import { describe, expect, onTestFinished, test } from "vitest";
import {
  AuthenticationError,
  type CommandHandle,
  InvalidArgumentError,
  NotFoundError,
  SandboxError,
} from "../support/client.ts";
import { Started, eventually, failure, shared } from "../support/guest.ts";

const common = shared();

/** A terminal, with all output so far. */
class Terminal {
  text = "";
  handle!: CommandHandle;

  static async open(opts: { [key: string]: unknown } = {}): Promise<Terminal> {
    const terminal = new Terminal();
    const decoder = new TextDecoder();
    const onData = (data: Uint8Array) => void (terminal.text += decoder.decode(data, { stream: true }));
    terminal.handle = await common.sandbox.pty.create({ rows: 24, cols: 80, timeoutMs: 0, ...opts, onData });
    onTestFinished(async () => void (await terminal.handle.kill()));
    return terminal;
  }

  async type(text: string): Promise<void> {
    await common.sandbox.pty.sendInput(this.handle.pid, new TextEncoder().encode(text), { requestTimeoutMs: 30_000 });
  }

  shows(text: string): Promise<unknown> {
    return eventually(
      () => this.text.includes(text),
      () => this.text,
    );
  }

  /** Waits for the prompt. The shell reads and sets the size before it shows one. */
  prompts(): Promise<unknown> {
    return eventually(
      () => this.text.endsWith("$ "),
      () => this.text,
    );
  }
}

describe("a terminal", () => {
  test("runs a shell", async () => {
    const terminal = await Terminal.open();
    await terminal.type("echo $((6 * 7))-$TERM-$(whoami)-$PWD\n");
    await terminal.shows("42-xterm-256color-user-/home/user");
  });

  test("has the size that is asked for, and can be resized", async () => {
    const terminal = await Terminal.open({ rows: 33, cols: 111 });
    await terminal.type("stty size\n");
    await terminal.shows("33 111");
    await terminal.prompts();
    await common.sandbox.pty.resize(terminal.handle.pid, { rows: 11, cols: 22 }, { requestTimeoutMs: 30_000 });
    await terminal.type("stty size\n");
    await terminal.shows("11 22");
  });

  test("has user, directory and variables", async () => {
    const terminal = await Terminal.open({
      user: "root",
      cwd: "/tmp",
      envs: { SHOWN: "yes" },
      requestTimeoutMs: 30_000,
    });
    await terminal.type("echo $(whoami):$PWD:$SHOWN:$LANG\n");
    await terminal.shows("root:/tmp:yes:C.UTF-8");
  });

  test("reports the exit code of its shell", async () => {
    const terminal = await Terminal.open();
    const ended = failure(terminal.handle.wait());
    await terminal.type("exit 7\n");
    expect((await ended).exitCode).toBe(7);
  });

  test("can be killed", async () => {
    const terminal = await Terminal.open();
    const ended = failure(terminal.handle.wait());
    expect(await common.sandbox.pty.kill(terminal.handle.pid, { requestTimeoutMs: 30_000 })).toBe(true);
    await ended;
    await eventually(async () => (await common.sandbox.pty.kill(terminal.handle.pid)) === false);
  });

  test("can be connected to", async () => {
    const terminal = await Terminal.open();
    await terminal.type("state=kept; echo rea''dy\n");
    await terminal.shows("ready");
    await terminal.handle.disconnect();
    let text = "";
    const { pid } = terminal.handle;
    const onData = (data: Uint8Array) => void (text += new TextDecoder().decode(data));
    await common.sandbox.pty.connect(pid, { onData, timeoutMs: 60_000, requestTimeoutMs: 30_000 });
    await terminal.type("echo now-$state\n");
    await eventually(() => text.includes("now-kept"));
  });

  test("passes on control characters", async () => {
    const terminal = await Terminal.open();
    await terminal.type("echo wai''ting; sleep 600\n");
    await terminal.shows("waiting");
    await terminal.type("\x03");
    await terminal.type("echo inter''rupted\n");
    await terminal.shows("interrupted");
  });

  test("shows characters of all kinds", async () => {
    const terminal = await Terminal.open();
    await terminal.type("printf '%s\\n' 'ü漢😀'\n");
    await terminal.shows("ü漢😀");
  });

  test("takes no input for commands, and commands none for terminals", async () => {
    const terminal = await Terminal.open();
    expect(await failure(common.sandbox.commands.sendStdin(terminal.handle.pid, "text"))).toBeInstanceOf(SandboxError);
    const started = await Started.run(common.sandbox, "sleep 600", { stdin: true, timeoutMs: 0 });
    started.handle.wait().catch(() => {});
    expect(await failure(common.sandbox.pty.sendInput(started.pid, new Uint8Array([65])))).toBeInstanceOf(SandboxError);
    await started.handle.kill();
  });
});

describe("a terminal is refused", () => {
  test("in a directory that does not exist", async () => {
    expect(await failure(Terminal.open({ cwd: "/no/such" }))).toBeInstanceOf(InvalidArgumentError);
  });

  test("for an unknown user", async () => {
    expect(await failure(Terminal.open({ user: "nobody-here" }))).toBeInstanceOf(AuthenticationError);
  });

  test("if it is unknown", async () => {
    expect(await common.sandbox.pty.kill(4_000_000)).toBe(false);
    expect(await failure(common.sandbox.pty.connect(4_000_000))).toBeInstanceOf(NotFoundError);
    expect(await failure(common.sandbox.pty.resize(4_000_000, { rows: 1, cols: 1 }))).toBeInstanceOf(NotFoundError);
  });
});
