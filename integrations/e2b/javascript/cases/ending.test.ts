import { describe, expect, test } from "vitest";
import { Sandbox, SandboxNotFoundError, TimeoutError } from "../support/client.ts";
import { Started, create, eventually, failure, unique, visit } from "../support/guest.ts";

async function leftSecs(sandbox: Sandbox): Promise<number> {
  return ((await sandbox.getInfo()).endAt.getTime() - Date.now()) / 1000;
}

async function state(sandbox: Sandbox): Promise<string> {
  try {
    return (await sandbox.getInfo()).state;
  } catch (error) {
    if (error instanceof SandboxNotFoundError) return "gone";
    throw error;
  }
}

const becomes = (sandbox: Sandbox, what: string) => eventually(async () => (await state(sandbox)) === what);

describe("a timeout", () => {
  test.each([60, 5000])("can be set to %d s", async (secs) => {
    const sandbox = await create({ timeoutMs: 1_000_000 });
    await sandbox.setTimeout(secs * 1000, { requestTimeoutMs: 30_000 });
    expect(Math.abs((await leftSecs(sandbox)) - secs)).toBeLessThan(10);
  });

  test("can be set by id", async () => {
    const sandbox = await create();
    await Sandbox.setTimeout(sandbox.sandboxId, 4_000_000);
    expect(Math.abs((await leftSecs(sandbox)) - 4000)).toBeLessThan(10);
  });

  test("ends a sandbox", async () => {
    const sandbox = await create({ timeoutMs: 1000 });
    await eventually(async () => !(await sandbox.isRunning()));
    await becomes(sandbox, "gone");
  });

  test("pauses a sandbox that pauses on timeout", async () => {
    const sandbox = await create({ timeoutMs: 1000, lifecycle: { onTimeout: "pause" } });
    await becomes(sandbox, "paused");
    expect(await sandbox.isRunning()).toBe(false);
  });

  test.each([0, -1000])("of %d ms ends a sandbox now", async (timeoutMs) => {
    const sandbox = await create();
    await sandbox.setTimeout(timeoutMs);
    await becomes(sandbox, "gone");
  });

  test("of a paused sandbox cannot be set", async () => {
    const sandbox = await create();
    await sandbox.pause();
    expect(await failure(sandbox.setTimeout(100_000))).toBeInstanceOf(SandboxNotFoundError);
  });

  test("of an unknown sandbox cannot be set", async () => {
    expect(await failure(Sandbox.setTimeout(unique(), 100_000))).toBeInstanceOf(SandboxNotFoundError);
  });

  test("of centuries is refused", async () => {
    const sandbox = await create();
    expect((await failure(sandbox.setTimeout(1e18))).message).toMatch(/^400: /);
  });
});

describe("a kill", () => {
  test("ends a sandbox, and is reported once", async () => {
    const sandbox = await create();
    expect(await sandbox.isRunning({ requestTimeoutMs: 30_000 })).toBe(true);
    expect(await sandbox.kill({ requestTimeoutMs: 30_000 })).toBe(true);
    expect(await sandbox.isRunning()).toBe(false);
    expect(await sandbox.kill()).toBe(false);
    expect(await state(sandbox)).toBe("gone");
  });

  test("works by id", async () => {
    const sandbox = await create();
    expect(await Sandbox.kill(sandbox.sandboxId)).toBe(true);
    expect(await sandbox.isRunning()).toBe(false);
  });

  test("of an unknown sandbox tells that there was none", async () => {
    expect(await Sandbox.kill(unique())).toBe(false);
  });

  test("of a paused sandbox deletes it", async () => {
    const sandbox = await create();
    await sandbox.pause();
    expect(await sandbox.kill()).toBe(true);
    expect(await failure(Sandbox.connect(sandbox.sandboxId))).toBeInstanceOf(SandboxNotFoundError);
  });

  test("during a command is reported as the end of the sandbox", async () => {
    const sandbox = await create();
    const run = await Started.run(sandbox, "echo begun; sleep 600", { timeoutMs: 0 });
    await run.says("begun");
    const ended = failure(run.handle.wait());
    await sandbox.kill();
    expect(await ended).toBeInstanceOf(TimeoutError);
    expect((await ended).message).toContain("killed or reached its end of life");
  });

  test("during a command in the foreground is reported as the end of the sandbox", async () => {
    const sandbox = await create();
    const ended = failure(sandbox.commands.run("sleep 600", { timeoutMs: 0 }));
    await eventually(async () => (await sandbox.commands.list()).length > 0);
    await sandbox.kill();
    expect(await ended).toBeInstanceOf(TimeoutError);
    expect((await ended).message).toContain("killed or reached its end of life");
  });

  test("makes every later call fail as documented", async () => {
    const sandbox = await create();
    await sandbox.kill();
    for (const call of [
      () => sandbox.files.read("/etc/hostname"),
      () => sandbox.files.write("note", "text"),
      () => sandbox.files.list("/"),
    ]) {
      const error = await failure(call());
      expect(error).toBeInstanceOf(TimeoutError);
      expect(error.message).toContain("not found");
    }
    expect(await failure(sandbox.commands.run("true"))).toBeInstanceOf(SandboxNotFoundError);
    const answer = await visit(sandbox, 49983, "/health");
    expect(answer.status).toBe(502);
    expect(await answer.text()).toBe(
      `{"sandboxId":"${sandbox.sandboxId}","message":"The sandbox was not found","code":502}`,
    );
  });

  test("during a watch ends it with an error", async () => {
    const sandbox = await create();
    const ends: unknown[] = [];
    await sandbox.files.watchDir("/home/user", () => {}, { onExit: (error) => void ends.push(error) });
    await sandbox.kill();
    await eventually(() => ends.length === 1);
    expect(ends[0]).toBeInstanceOf(TimeoutError);
  });
});
