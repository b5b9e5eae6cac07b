import { describe, expect, test } from "vitest";
import { Sandbox, SandboxError, SandboxNotFoundError, isOlder } from "../support/client.ts";
import { Work, bootId, create, failure, output, shared, unique } from "../support/guest.ts";

const common = shared();

async function leftSecs(sandbox: Sandbox): Promise<number> {
  return ((await sandbox.getInfo()).endAt.getTime() - Date.now()) / 1000;
}

describe("connecting to a running sandbox", () => {
  test("by its id gives the same one", async () => {
    const sandbox = await create();
    await sandbox.files.write("note", "here");
    expect(await (await Sandbox.connect(sandbox.sandboxId)).files.read("note")).toBe("here");
  });

  test("only extends its timeout", async () => {
    const sandbox = await create({ timeoutMs: 1_000_000 });
    await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 50_000 });
    expect(Math.abs((await leftSecs(sandbox)) - 1000)).toBeLessThan(30);
    await sandbox.connect({ timeoutMs: 2_000_000 });
    expect(Math.abs((await leftSecs(sandbox)) - 2000)).toBeLessThan(30);
  });

  test("without a timeout extends to five minutes", async () => {
    const sandbox = await create({ timeoutMs: 60_000 });
    await Sandbox.connect(sandbox.sandboxId);
    expect(Math.abs((await leftSecs(sandbox)) - 300)).toBeLessThan(10);
  });
});

describe("connecting to a paused sandbox", () => {
  test("resets its timeout to five minutes", async () => {
    const sandbox = await create({ timeoutMs: 3_000_000 });
    await sandbox.pause();
    await sandbox.connect();
    expect(Math.abs((await leftSecs(sandbox)) - 300)).toBeLessThan(10);
  });

  test("sets its timeout if told", async () => {
    const sandbox = await create();
    await sandbox.pause();
    await sandbox.connect({ timeoutMs: 1_234_000 });
    expect(Math.abs((await leftSecs(sandbox)) - 1234)).toBeLessThan(10);
  });

  test("continues with its memory", async () => {
    const sandbox = await create();
    const boot = await bootId(sandbox);
    await sandbox.pause();
    const same = await sandbox.connect();
    expect([await bootId(same), await bootId(sandbox)]).toEqual([boot, boot]);
  });

  test("by id resumes it", async () => {
    const sandbox = await create();
    await Sandbox.pause(sandbox.sandboxId);
    expect(await output(await Sandbox.connect(sandbox.sandboxId), "echo back")).toBe("back");
    expect((await sandbox.getInfo()).state).toBe("running");
  });

  test("several times at once restores it once", async () => {
    const sandbox = await create();
    const work = await Work.start(sandbox);
    await sandbox.pause();
    const ids = [1, 2, 3, 4].map(() => sandbox.sandboxId);
    const same = await Promise.all(ids.map((id) => Sandbox.connect(id, { timeoutMs: 500_000 })));
    const starts = await Promise.all(same.map(async (one) => (await one.getInfo()).startedAt.getTime()));
    expect(new Set(starts).size).toBe(1);
    for (const one of same) await work.continues(one);
  });
});

describe.runIf(!isOlder)("the option onResume", () => {
  test("reboots a paused sandbox", async () => {
    const sandbox = await create();
    await sandbox.files.write("note", "kept");
    const boot = await bootId(sandbox);
    await sandbox.pause();
    await sandbox.connect({ onResume: "reboot", timeoutMs: 200_000 });
    expect(await bootId(sandbox)).not.toBe(boot);
    expect(await sandbox.files.read("note")).toBe("kept");
  });

  test("restores a paused sandbox", async () => {
    const sandbox = await create();
    const boot = await bootId(sandbox);
    await sandbox.pause();
    await Sandbox.connect(sandbox.sandboxId, { onResume: "restore" });
    expect(await bootId(sandbox)).toBe(boot);
  });

  test("does nothing to a running sandbox", async () => {
    const boot = await bootId(common.sandbox);
    await Sandbox.connect(common.sandbox.sandboxId, { onResume: "reboot" });
    expect(await bootId(common.sandbox)).toBe(boot);
  });
});

describe("connecting is refused", () => {
  test("for an unknown sandbox", async () => {
    expect(await failure(Sandbox.connect(unique()))).toBeInstanceOf(SandboxNotFoundError);
  });

  test("for a killed sandbox", async () => {
    const sandbox = await create();
    await sandbox.kill();
    expect(await failure(Sandbox.connect(sandbox.sandboxId))).toBeInstanceOf(SandboxNotFoundError);
  });

  test.each([0, -5000, 1e18])("with a timeout of %d ms", async (timeoutMs) => {
    const error = await failure(Sandbox.connect(common.sandbox.sandboxId, { timeoutMs }));
    expect(error.message).toMatch(/^400: /);
  });

  test.each(["with space", "a.b", "..", "%2F", "ü"])("for the id '%s'", async (id) => {
    expect(await failure(Sandbox.connect(id))).toBeInstanceOf(SandboxError);
  });
});
