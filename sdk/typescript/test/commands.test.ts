import { beforeAll, describe, expect, test } from "vitest";

import {
  ApiError,
  CommandError,
  ConflictError,
  InvalidArgumentError,
  NotFoundError,
  type OutputEvent,
  type OutputPosition,
  type Process,
  type Sandbox,
} from "@dormouse/sdk";

import { createSandbox, dormouse, failure, unique, until } from "./support.js";

let sandbox: Sandbox;

beforeAll(async () => {
  sandbox = await createSandbox({ name: unique("commands"), env: { GREETING: "hello" } });
});

async function collect(
  output: AsyncIterable<OutputEvent>,
): Promise<{ stdout: string; stderr: string; events: OutputEvent[] }> {
  const collected = { stdout: "", stderr: "", events: [] as OutputEvent[] };
  for await (const event of output) {
    collected.events.push(event);
    if (event.type === "stdout" || event.type === "stderr") collected[event.type] += event.text;
  }
  return collected;
}

describe("exec", () => {
  test("returns exit code and both outputs", async () => {
    const result = await sandbox.exec("echo out; echo err >&2; exit 3");
    expect(result).toMatchObject({
      exitCode: 3,
      signal: null,
      timedOut: false,
      stdout: "out\n",
      stderr: "err\n",
      ok: false,
    });
    expect(result.pid).toBeGreaterThan(1);
  });

  test("runs a program with arguments that no shell changes", async () => {
    const { stdout } = await sandbox.exec(["printf", "%s|", "a b", "$HOME", "", "*"]);
    expect(stdout).toBe("a b|$HOME||*|");
  });

  test("has variables of the sandbox and its own, a directory and a user", async () => {
    const { stdout } = await sandbox.exec("echo $GREETING $NAME $(pwd) $(id -un)", {
      env: { NAME: "dormouse" },
      cwd: "/var",
      user: "nobody",
    });
    expect(stdout).toBe("hello dormouse /var nobody\n");
  });

  test("sends text as input", async () => {
    expect((await sandbox.exec("cat", { stdin: "grüße\n" })).stdout).toBe("grüße\n");
  });

  test("sends bytes as input and returns bytes", async () => {
    const bytes = Uint8Array.from({ length: 256 }, (_, at) => at);
    expect((await sandbox.exec("cat", { stdin: bytes })).stdoutBytes).toEqual(bytes);
  });

  test("sends long input beside the request", async () => {
    const bytes = new Uint8Array(3 << 20).fill(7);
    const { stdout } = await sandbox.exec("wc -c", { stdin: bytes });
    expect(stdout.trim()).toBe(String(3 << 20));
  });

  test("sends a stream as input", async () => {
    async function* lines(): AsyncGenerator<Uint8Array> {
      for (const line of ["one\n", "two\n"]) yield new TextEncoder().encode(line);
    }
    expect((await sandbox.exec("cat -n", { stdin: lines() })).stdout).toBe("     1\tone\n     2\ttwo\n");
  });

  test("ends the command if its input fails", async () => {
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield new TextEncoder().encode("one\n");
      throw new Error("the source failed");
    }
    await expect(sandbox.exec("echo $$; cat; sleep 600", { stdin: broken() })).rejects.toThrow("the source failed");
  });

  test("does not fail if the command reads no input", async () => {
    expect((await sandbox.exec("exit 4", { stdin: new Uint8Array(1 << 20) })).exitCode).toBe(4);
  });

  test("returns ten megabytes without a gap", async () => {
    const result = await sandbox.exec([
      "python3",
      "-c",
      "import sys\nfor n in range(1250000): sys.stdout.write('%07d\\n' % n)",
    ]);
    expect(result.lostBytes).toBe(0);
    expect(result.stdoutBytes).toHaveLength(10_000_000);
    expect(result.stdout.slice(0, 16)).toBe("0000000\n0000001\n");
    expect(result.stdout.slice(-8)).toBe("1249999\n");
  });

  test("reports output as it arrives", async () => {
    const seen: string[] = [];
    await sandbox.exec("echo a; echo b >&2", { onOutput: (event) => seen.push(event.type) });
    expect(seen).toContain("stdout");
    expect(seen).toContain("stderr");
    expect(seen.at(-1)).toBe("exit");
  });

  test("reports a signal", async () => {
    expect(await sandbox.exec("kill -TERM $$")).toMatchObject({ exitCode: null, signal: 15, ok: false });
  });

  test("ends a command at its time limit", async () => {
    expect(await sandbox.exec("sleep 600", { timeoutMs: 200 })).toMatchObject({ timedOut: true, signal: 9 });
  });

  test("throws for another code than 0 if it should", async () => {
    const error = await failure(sandbox.exec("echo no such thing >&2; exit 2", { check: true }), CommandError);
    expect(error.message).toBe("the command exited with code 2: no such thing");
    expect(error.result.exitCode).toBe(2);
    expect((await sandbox.exec("true", { check: true })).ok).toBe(true);
  });

  test("says that a command exceeded its limit or was killed", async () => {
    expect((await failure(sandbox.exec("sleep 600", { check: true, timeoutMs: 100 }), CommandError)).message).toBe(
      "the command exceeded its time limit",
    );
    expect((await failure(sandbox.exec("kill -9 $$", { check: true }), CommandError)).message).toBe(
      "the command was ended by signal 9",
    );
  });

  test("takes a snapshot first", async () => {
    const { checkpoint } = await sandbox.exec("true", { checkpoint: "filesystem" });
    expect((await dormouse.snapshots.get(checkpoint!)).source).toBe(sandbox.id);
    await dormouse.snapshots.delete(checkpoint!);
  });

  test("continues the command when the call is aborted", async () => {
    const controller = new AbortController();
    let process: number | undefined;
    const call = sandbox.exec("echo ready; sleep 600", {
      signal: controller.signal,
      onOutput: () => controller.abort(new Error("left")),
    });
    await expect(call).rejects.toThrow("left");
    for await (const running of sandbox.processes.list()) {
      if (running.exit == null && running.argv.join(" ").includes("echo ready")) process = running.process;
    }
    expect(process).toBeDefined();
    await (await sandbox.processes.get(process!)).kill();
  });

  test("kills the command with its descendants when the call is aborted, if it should", async () => {
    const controller = new AbortController();
    const call = sandbox.exec("setsid sleep 654 & echo ready; sleep 654", {
      signal: controller.signal,
      killOnAbort: true,
      onOutput: () => controller.abort(new Error("left")),
    });
    await expect(call).rejects.toThrow("left");
    await until("nothing is left", async () => (await sandbox.exec("pgrep -fx 'sleep 654'")).exitCode === 1);
    const early = sandbox.exec("sleep 655", { signal: AbortSignal.timeout(1), killOnAbort: true });
    await expect(early).rejects.toThrow(/timeout/);
    await until("nothing is left", async () => (await sandbox.exec("pgrep -fx 'sleep 655'")).exitCode === 1);
  });

  test("refuses what is invalid", async () => {
    await failure(sandbox.exec([]), InvalidArgumentError);
    await failure(sandbox.exec("true", { timeoutMs: -1 }), InvalidArgumentError);
    await failure(sandbox.exec("true", { user: "nemo" }), NotFoundError);
    await failure(sandbox.exec(["true", 5 as unknown as string]), InvalidArgumentError);
  });

  test("a program that does not exist is an error of its own", async () => {
    const result = await sandbox.exec(["/no/such/program"]).catch((error: unknown) => error);
    expect(result).toBeInstanceOf(ApiError);
  });
});

describe("processes", () => {
  test("are started, listed by label, and waited for", async () => {
    const label = unique("label");
    const process = await sandbox.processes.start("echo hi; exit 5", { label });
    expect(await process.wait()).toEqual({ exitCode: 5, signal: null, timedOut: false });
    const [listed] = await sandbox.processes.list({ label }).toArray();
    expect(listed).toMatchObject({ process: process.id, pid: process.pid, label });
    expect((await process.info()).stdoutBytes).toBe(3);
  });

  test("yield output from the beginning, also after their end", async () => {
    const process = await sandbox.processes.start("printf abc; printf def >&2");
    await process.wait();
    const { stdout, stderr, events } = await collect(process);
    expect([stdout, stderr]).toEqual(["abc", "def"]);
    expect(events.at(-1)).toEqual({
      type: "exit",
      exitCode: 0,
      signal: null,
      timedOut: false,
      position: { stdout: 3, stderr: 3 },
    });
  });

  test("take input until it is closed", async () => {
    const process = await sandbox.processes.start("cat", { stdin: "pipe" });
    await process.write("one ");
    await process.write(Uint8Array.of(0xf0, 0x9f));
    await process.write(Uint8Array.of(0x90, 0xad));
    await process.closeStdin();
    expect((await collect(process)).stdout).toBe("one 🐭");
  });

  test("have text whose characters no border cuts", async () => {
    const script =
      "import sys,time\nfor b in 'äß🐭€'.encode():\n sys.stdout.buffer.write(bytes([b])); sys.stdout.flush(); time.sleep(0.02)";
    const process = await sandbox.processes.start(["python3", "-c", script]);
    const { stdout, events } = await collect(process);
    expect(stdout).toBe("äß🐭€");
    expect(events.filter(({ type }) => type === "stdout").length).toBeGreaterThan(4);
    for (const event of events) if (event.type === "stdout") expect(event.text).not.toContain("\ufffd");
  });

  test("have a replacement character for bytes that are no text", async () => {
    const { stdout, events } = await collect(await sandbox.processes.start("printf 'a\\377b\\303'"));
    expect(stdout).toBe("a\ufffdb\ufffd");
    const bytes = events.flatMap((event) => (event.type === "stdout" ? [...event.bytes] : []));
    expect(bytes).toEqual([0x61, 0xff, 0x62, 0xc3]);
  });

  test("get signals by name and number", async () => {
    const script = "trap 'echo usr1' USR1; trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    const process = await sandbox.processes.start(script);
    const seen: string[] = [];
    for await (const event of process) {
      if (event.type === "exit") expect(event.exitCode).toBe(7);
      if (event.type !== "stdout") continue;
      seen.push(event.text.trim());
      if (event.text.includes("ready")) await process.signal("SIGUSR1");
      if (event.text.includes("usr1")) await process.signal(15);
    }
    expect(seen.join(" ")).toBe("ready usr1");
  });

  test("are killed with their descendants", async () => {
    const process = await sandbox.processes.start("setsid sleep 987 & setsid sleep 987 & echo started; wait");
    for await (const event of process) if (event.type === "stdout") break;
    expect(await process.kill()).toBeGreaterThanOrEqual(3);
    expect((await sandbox.exec("pgrep -fx 'sleep 987'")).exitCode).toBe(1);
  });

  test("can be read without waiting for more", async () => {
    const process = await sandbox.processes.start("echo one; sleep 600");
    const first = await until("the first line", async () => {
      const { stdout } = await collect(process.output({ follow: false }));
      return stdout !== "" && stdout;
    });
    expect(first).toBe("one\n");
    await process.kill();
  });

  test("have a terminal if they should", async () => {
    const process = await sandbox.processes.start("stty size; read x; stty size", { terminal: { cols: 81, rows: 25 } });
    for await (const event of process) if (event.type === "stdout") break;
    await process.resize(100, 30);
    await process.write("\n");
    const { stdout } = await collect(process);
    expect(
      stdout
        .replaceAll("\r", "")
        .split("\n")
        .filter((line) => line !== ""),
    ).toEqual(["25 81", "30 100"]);
  });

  test("tell of output that is no longer kept", async () => {
    const process = await sandbox.processes.start("head -c 300000 /dev/zero", { outputKeptBytes: 65536 });
    await process.wait();
    const { events } = await collect(process);
    const lost = events.flatMap((event) => (event.type === "lost" ? [event.lostBytes] : []));
    const read = events.flatMap((event) => (event.type === "stdout" ? [event.bytes.length] : []));
    expect(sum(lost)).toBeGreaterThan(0);
    expect(sum(lost) + sum(read)).toBe(300_000);
  });

  test("continue across a suspend, and their output from where it was read", async () => {
    const script = "import time\nfor n in range(100000): print(n, flush=True); time.sleep(0.01)";
    const process = await sandbox.processes.start(["python3", "-c", script]);
    const before = await readSome(process, undefined, 20);
    await sandbox.suspend();
    expect(sandbox.state).toBe("suspended");
    const error = await failure(readSome(process, before.position, 1), ConflictError);
    expect(error.nextStep).not.toBe("");
    await sandbox.resume();
    expect(sandbox.info.restored).toBe("memory");
    const after = await readSome(process, before.position, 20);
    const numbers = (before.text + after.text).split("\n").slice(0, -1);
    expect(numbers.length).toBeGreaterThan(20);
    expect(numbers.slice(0, 30)).toEqual(Array.from({ length: 30 }, (_, n) => String(n)));
    await process.kill();
  });

  test("a stream is continued by a reader that may wake the sandbox", async () => {
    const process = await sandbox.processes.start("cat", { stdin: "pipe" });
    await process.write("before");
    const output = process.output({ wake: "any" });
    expect((await output.next()).value).toMatchObject({ type: "stdout", text: "before" });
    const next = output.next();
    await sandbox.suspend();
    await until("the reader wakes the sandbox", async () => (await sandbox.refresh()).state === "running");
    await process.write("after");
    expect((await next).value).toMatchObject({ type: "stdout", text: "after" });
    await process.kill();
    await output.return();
  });

  test("of another handle do not exist", async () => {
    await failure(sandbox.processes.get(999_999), NotFoundError);
    const unknown = await sandbox.processes.start("true");
    await unknown.wait();
    await failure(unknown.write("x"), ApiError);
  });

  test("an aborted stream ends with the reason", async () => {
    const process = await sandbox.processes.start("echo one; sleep 600");
    const controller = new AbortController();
    const read = collect(process.output({ signal: controller.signal }));
    const rejected = expect(read).rejects.toThrow("enough");
    controller.abort(new Error("enough"));
    await rejected;
    await process.kill();
  });

  test("a wait can be aborted", async () => {
    const process = await sandbox.processes.start("sleep 600");
    await expect(process.wait({ signal: AbortSignal.timeout(50) })).rejects.toThrow(/timeout/);
    await process.kill();
    expect((await process.wait()).signal).toBe(9);
  });
});

const sum = (numbers: number[]): number => numbers.reduce((total, number) => total + number, 0);

/** Reads output until it has this many lines. */
async function readSome(
  process: Process,
  from: OutputPosition | undefined,
  lines: number,
): Promise<{ text: string; position: OutputPosition }> {
  let text = "";
  for await (const event of process.output({ from })) {
    if (event.type === "stdout") text += event.text;
    if (text.split("\n").length > lines) return { text, position: event.position };
  }
  throw new Error("the process has ended");
}
