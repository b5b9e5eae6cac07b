import { beforeAll, describe, expect, test } from "vitest";

import {
  ApiError,
  ConflictError,
  Dormouse,
  NotFoundError,
  type Pty,
  type Sandbox,
  TransportError,
  UnauthorizedError,
} from "@dormouse/sdk";

import { createSandbox, failure, unique } from "./support.js";

let sandbox: Sandbox;

beforeAll(async () => {
  sandbox = await createSandbox({ name: unique("terminal") });
});

/** Reads what a terminal shows until it contains a text. */
async function readUntil(pty: Pty, wanted: string): Promise<string> {
  const decoder = new TextDecoder();
  let shown = "";
  for await (const bytes of pty) {
    shown += decoder.decode(bytes, { stream: true });
    if (shown.includes(wanted)) break;
  }
  expect(shown).toContain(wanted);
  return shown;
}

describe("a terminal", () => {
  test("runs a command, and reports its end", async () => {
    const pty = await sandbox.pty({ cmd: "tty -s && echo a terminal; exit 3" });
    expect(pty.pid).toBeGreaterThan(1);
    await readUntil(pty, "a terminal");
    expect(await pty.wait()).toMatchObject({ exitCode: 3, signal: null });
  });

  test("runs a shell by default", async () => {
    const pty = await sandbox.pty();
    pty.write("echo $((6 * 7)) $TERM\n");
    await readUntil(pty, "42 xterm-256color");
    pty.end();
    expect((await pty.wait()).exitCode).toBe(0);
  });

  test("has a size that can change, a directory and a user", async () => {
    const pty = await sandbox.pty({
      cmd: "stty size; pwd; id -un; read x; stty size",
      rows: 30,
      cols: 90,
      cwd: "/var",
      user: "nobody",
    });
    const shown = await readUntil(pty, "nobody");
    expect(shown).toContain("30 90");
    expect(shown).toContain("/var");
    pty.resize(120, 40);
    pty.write("\n");
    await readUntil(pty, "40 120");
    await pty.wait();
  });

  test("continues without a client, and is attached to where it was left", async () => {
    const first = await sandbox.pty({ cmd: "echo one; read x; echo two $x" });
    await readUntil(first, "one\r\n");
    first.close();
    const second = await sandbox.pty({ attach: first.process, offset: first.offset });
    expect(second.process).toBe(first.process);
    second.write("three\n");
    const shown = await readUntil(second, "two three");
    expect(shown).not.toContain("one");
    await second.wait();
  });

  test("continues across a suspend", async () => {
    const before = await sandbox.pty({ cmd: "read x; echo got $x" });
    await sandbox.suspend();
    await failure(sandbox.pty({ attach: before.process }), ConflictError);
    await failure(before.wait(), Error);
    const after = await sandbox.pty({ attach: before.process, wake: "any" });
    after.write("it\n");
    await readUntil(after, "got it");
  });

  test("is closed at the end of a block", async () => {
    const closed = await (async () => {
      using pty = await sandbox.pty({ cmd: "read x" });
      return pty;
    })();
    await failure(closed.wait(), TransportError);
    await (await sandbox.processes.get(closed.process)).kill();
  });

  test("can be aborted", async () => {
    const pty = await sandbox.pty({ cmd: "sleep 600", signal: AbortSignal.timeout(200) });
    await failure(pty.wait(), TransportError);
    await (await sandbox.processes.get(pty.process)).kill();
    await expect(sandbox.pty({ signal: AbortSignal.abort(new Error("enough")) })).rejects.toThrow("enough");
  });

  test("refuses what is wrong", async () => {
    await failure(sandbox.pty({ attach: 999_999 }), NotFoundError);
    await failure(sandbox.pty({ rows: -1 }), ApiError);
    const process = await sandbox.processes.start("sleep 600");
    await failure(sandbox.pty({ attach: process.id }), ApiError);
    await process.kill();
  });

  test("needs the key", async () => {
    const stranger = new Dormouse({ apiKey: "wrong" });
    await failure(stranger.sandboxes.connect(sandbox.id), UnauthorizedError);
  });
});
