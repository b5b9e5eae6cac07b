import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { Sandbox, SandboxNotFoundError, TimeoutError } from "../support/client.ts";
import { Started, Work, bootId, create, eventually, failure, output, serve, unique, visit } from "../support/guest.ts";

const isPaused = async (sandbox: Sandbox) => (await sandbox.getInfo()).state === "paused";
const automatic = { onTimeout: "pause", autoResume: true } as const;

describe("a pause", () => {
  test("is reported once and shown", async () => {
    const sandbox = await create();
    expect(await sandbox.pause()).toBe(true);
    expect(await isPaused(sandbox)).toBe(true);
    expect(await sandbox.isRunning()).toBe(false);
    expect(await sandbox.pause()).toBe(false);
  });

  test("works by id and by its former name", async () => {
    const sandbox = await create();
    expect(await Sandbox.pause(sandbox.sandboxId)).toBe(true);
    await sandbox.connect();
    expect(await sandbox.betaPause()).toBe(true);
    await sandbox.connect();
    expect(await Sandbox.betaPause(sandbox.sandboxId, { keepMemory: true })).toBe(true);
  });

  test("of an unknown or killed sandbox is refused", async () => {
    expect(await failure(Sandbox.pause(unique()))).toBeInstanceOf(SandboxNotFoundError);
    const sandbox = await create();
    await sandbox.kill();
    expect(await failure(sandbox.pause())).toBeInstanceOf(SandboxNotFoundError);
  });

  test("keeps commands from running", async () => {
    const sandbox = await create();
    await sandbox.pause();
    expect(await failure(sandbox.commands.run("true"))).toBeInstanceOf(SandboxNotFoundError);
    expect(await failure(sandbox.files.read("note"))).toBeInstanceOf(TimeoutError);
  });

  test("keeps processes, variables and deleted files", async () => {
    const sandbox = await create();
    const work = await Work.start(sandbox);
    await sandbox.pause();
    await sandbox.connect();
    await work.continues(sandbox);
  });

  test("on timeout keeps processes, variables and deleted files", async () => {
    const sandbox = await create({ lifecycle: { onTimeout: "pause" } });
    const work = await Work.start(sandbox);
    await sandbox.setTimeout(1000);
    await eventually(() => isPaused(sandbox));
    await sandbox.connect();
    await work.continues(sandbox);
    expect((await sandbox.getInfo()).lifecycle?.onTimeout).toBe("pause");
  });

  test("with memory keeps the boot id", async () => {
    const sandbox = await create();
    const boot = await bootId(sandbox);
    await sandbox.pause({ keepMemory: true });
    await sandbox.connect();
    expect(await bootId(sandbox)).toBe(boot);
  });

  test("of files alone keeps files and boots again", async () => {
    const sandbox = await create();
    const boot = await bootId(sandbox);
    await sandbox.files.write("note", "kept");
    const { pid } = await sandbox.commands.run("sleep 600", { background: true, timeoutMs: 0 });
    await sandbox.pause({ keepMemory: false });
    await sandbox.connect();
    expect(await bootId(sandbox)).not.toBe(boot);
    expect(await sandbox.files.read("note")).toBe("kept");
    expect((await sandbox.commands.list()).map((process) => process.pid)).not.toContain(pid);
  });

  test("on timeout of files alone boots again", async () => {
    const lifecycle = { onTimeout: { action: "pause", keepMemory: false } } as const;
    const sandbox = await create({ lifecycle });
    const boot = await bootId(sandbox);
    await sandbox.setTimeout(0);
    await eventually(() => isPaused(sandbox));
    await sandbox.connect();
    expect(await bootId(sandbox)).not.toBe(boot);
  });

  test("keeps the tokens of a sandbox", async () => {
    const sandbox = await create({ network: { allowPublicTraffic: false } });
    const url = await sandbox.downloadUrl("note");
    await sandbox.pause();
    const same = await Sandbox.connect(sandbox.sandboxId);
    expect(await same.downloadUrl("note")).toBe(url);
    expect(same.trafficAccessToken).toBe(sandbox.trafficAccessToken);
  });

  test("lets a command go on", async () => {
    const sandbox = await create();
    const run = await Started.run(sandbox, "echo begun; read line; echo got $line", { stdin: true, timeoutMs: 0 });
    run.handle.wait().catch(() => {});
    await run.says("begun");
    await sandbox.pause();
    await sandbox.connect();
    const again = await Started.connect(sandbox, run.pid, { timeoutMs: 0 });
    await sandbox.commands.sendStdin(run.pid, "input\n");
    await again.says("got input");
    expect((await again.handle.wait()).exitCode).toBe(0);
  });
});

describe("ten cycles of pause and connect", () => {
  test("keep settings, tokens, timeouts, files and variables", async () => {
    const sandbox = await create({
      metadata: { keep: "me" },
      envs: { KEPT: "variable" },
      lifecycle: { onTimeout: "pause" },
    });
    const before = await sandbox.getInfo();
    const url = await sandbox.downloadUrl("note");
    const work = await Work.start(sandbox);
    const sums = new Map<string, string>();
    for (let cycle = 0; cycle < 10; cycle += 1) {
      const path = `/home/user/cycles/${cycle}`;
      await sandbox.files.write(path, `cycle ${cycle}`.repeat(1000));
      sums.set(path, createHash("sha256").update(`cycle ${cycle}`.repeat(1000)).digest("hex"));
      await sandbox.pause();
      const same = await sandbox.connect({ timeoutMs: (500 + cycle) * 1000 });
      const info = await same.getInfo();
      expect(Math.abs(info.endAt.getTime() - info.startedAt.getTime() - (500 + cycle) * 1000)).toBeLessThan(2000);
      expect([info.metadata, info.lifecycle, info.templateId]).toEqual([
        before.metadata,
        before.lifecycle,
        before.templateId,
      ]);
      expect(await same.downloadUrl("note")).toBe(url);
      expect(await output(sandbox, "echo $KEPT")).toBe("variable");
      await work.continues(sandbox);
    }
    const lines = (await output(sandbox, "sha256sum /home/user/cycles/*")).split("\n");
    expect(new Map(lines.map((line) => line.split(/\s+/).reverse() as [string, string]))).toEqual(sums);
  });
});

describe("a sandbox that resumes by itself", () => {
  test("is woken by a request", async () => {
    const sandbox = await create({ lifecycle: automatic });
    await serve(sandbox);
    const boot = await bootId(sandbox);
    await sandbox.pause();
    expect((await visit(sandbox, 8000)).status).toBe(200);
    expect(await bootId(sandbox)).toBe(boot);
  });

  test("is woken by a command", async () => {
    const sandbox = await create({ lifecycle: automatic });
    await sandbox.pause();
    expect(await output(sandbox, "echo awake")).toBe("awake");
    expect((await sandbox.getInfo()).state).toBe("running");
  });

  test("is woken by the question whether it runs", async () => {
    const sandbox = await create({ lifecycle: automatic });
    await sandbox.pause();
    expect(await sandbox.isRunning()).toBe(true);
  });

  test("pauses and wakes again and again", async () => {
    const sandbox = await create({ lifecycle: automatic });
    for (const cycle of ["1", "2", "3"]) {
      await sandbox.setTimeout(0);
      await eventually(() => isPaused(sandbox));
      expect(await output(sandbox, `echo ${cycle}`)).toBe(cycle);
    }
  });
});

test("a sandbox that does not resume by itself is not woken by a request", async () => {
  const sandbox = await create();
  await serve(sandbox);
  await sandbox.pause();
  const answer = await visit(sandbox, 8000);
  expect([answer.status, await answer.json()]).toEqual([
    502,
    { sandboxId: sandbox.sandboxId, message: "The sandbox was not found", code: 502 },
  ]);
  expect(await isPaused(sandbox)).toBe(true);
});
