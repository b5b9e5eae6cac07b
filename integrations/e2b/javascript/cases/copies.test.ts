import { describe, expect, onTestFinished, test } from "vitest";
import { Sandbox, SandboxNotFoundError } from "../support/client.ts";
import { Work, allItems, create, failure, keep, shared, unique } from "../support/guest.ts";

const common = shared();

/** Deletes a snapshot at the end of the case. */
function taken(snapshot: { snapshotId: string; names: string[] }): { snapshotId: string; names: string[] } {
  onTestFinished(async () => void (await Sandbox.deleteSnapshot(snapshot.snapshotId)));
  return snapshot;
}

describe("a snapshot", () => {
  test("starts as often as one likes", async () => {
    const sandbox = await create();
    await sandbox.files.write("note", "from the past");
    const { snapshotId } = taken(await sandbox.createSnapshot());
    await sandbox.files.write("note", "changed since");
    const [first, second] = [await create({ template: snapshotId }), await create({ template: snapshotId })];
    await first.files.write("note", "of the first");
    expect(await second.files.read("note")).toBe("from the past");
    expect(await sandbox.files.read("note")).toBe("changed since");
  });

  test("has processes, variables and deleted files, and its sandbox continues", async () => {
    const sandbox = await create();
    const before = await sandbox.getInfo();
    const work = await Work.start(sandbox);
    const { snapshotId } = taken(await Sandbox.createSnapshot(sandbox.sandboxId));
    await work.continues(await create({ template: snapshotId }));
    await work.continues(sandbox);
    expect((await sandbox.getInfo()).endAt).toEqual(before.endAt);
  });

  test("can have a name, which means the newest", async () => {
    const [sandbox, name] = [await create(), unique()];
    // The older one has no name any more.
    onTestFinished(async () => {
      const { sandboxId } = sandbox;
      for (const one of await allItems(Sandbox.listSnapshots({ sandboxId }))) {
        await Sandbox.deleteSnapshot(one.snapshotId);
      }
    });
    for (const text of ["older", "newer"]) {
      await sandbox.files.write("note", text);
      const snapshot = taken(await sandbox.createSnapshot({ name }));
      expect(snapshot.names.some((one) => one.includes(name))).toBe(true);
    }
    expect(await (await create({ template: name })).files.read("note")).toBe("newer");
  });

  test("can have a tag", async () => {
    const [sandbox, name] = [await create(), unique()];
    await sandbox.files.write("note", "tagged");
    taken(await sandbox.createSnapshot({ name: `${name}:v1` }));
    expect(await (await create({ template: `${name}:v1` })).files.read("note")).toBe("tagged");
  });

  test.each(["with space", "a/b/c", "ü"])("cannot have the name '%s'", async (name) => {
    expect((await failure(common.sandbox.createSnapshot({ name }))).message).toMatch(/^400: /);
  });

  test("is listed", async () => {
    const [sandbox, name] = [await create(), unique()];
    const mine: string[] = [];
    for (const n of [0, 1, 2]) mine.push(taken(await sandbox.createSnapshot({ name: `${name}-${n}` })).snapshotId);
    const { sandboxId } = sandbox;
    const ids = async (paginator: ReturnType<typeof Sandbox.listSnapshots>) =>
      (await allItems(paginator)).map((one) => one.snapshotId).sort();
    expect(await ids(sandbox.listSnapshots())).toEqual([...mine].sort());
    expect(await ids(sandbox.listSnapshots({ limit: 1 }))).toEqual([...mine].sort());
    expect(await ids(Sandbox.listSnapshots({ sandboxId }))).toEqual([...mine].sort());
    expect(await ids(Sandbox.listSnapshots({ name: `${name}-1` }))).toEqual([mine[1]]);
    const first = sandbox.listSnapshots({ limit: 1 });
    const begun = (await first.nextItems()).map((one) => one.snapshotId);
    const rest = await ids(Sandbox.listSnapshots({ sandboxId, nextToken: first.nextToken!, limit: 50 }));
    expect([...begun, ...rest].sort()).toEqual([...mine].sort());
  });

  test("outlives its sandbox", async () => {
    const sandbox = await create();
    await sandbox.files.write("note", "outlives");
    const { snapshotId } = taken(await sandbox.createSnapshot());
    await sandbox.kill();
    expect(await (await create({ template: snapshotId })).files.read("note")).toBe("outlives");
  });

  test("that is deleted is gone", async () => {
    const { snapshotId } = await (await create()).createSnapshot();
    expect(await Sandbox.deleteSnapshot(snapshotId)).toBe(true);
    expect(await Sandbox.deleteSnapshot(snapshotId)).toBe(false);
    expect((await failure(Sandbox.create(snapshotId))).message).toMatch(/^404: /);
  });
});

describe("a fork", () => {
  test("has processes, variables and deleted files", async () => {
    const sandbox = await create();
    const work = await Work.start(sandbox);
    const fork = keep((await sandbox.fork({ timeoutMs: 200_000 }))[0]!);
    expect(fork.sandboxId).not.toBe(sandbox.sandboxId);
    await work.continues(fork);
    await work.continues(sandbox);
  });

  test("goes its own way", async () => {
    const sandbox = await create();
    await sandbox.files.write("note", "common");
    const forks = (await Sandbox.fork(sandbox.sandboxId, { timeoutMs: 300_000, count: 3 })).map(keep);
    for (const fork of forks) await fork.files.write("note", fork.sandboxId);
    for (const fork of forks) expect(await fork.files.read("note")).toBe(fork.sandboxId);
    expect(await sandbox.files.read("note")).toBe("common");
  });

  test("has a timeout and tokens of its own", async () => {
    const sandbox = await create({ timeoutMs: 1_000_000, network: { allowPublicTraffic: false } });
    const fork = keep((await sandbox.fork({ timeoutMs: 123_000 }))[0]!);
    const info = await fork.getInfo();
    expect(Math.abs(info.endAt.getTime() - info.startedAt.getTime() - 123_000)).toBeLessThan(5000);
    expect(fork.trafficAccessToken).not.toBe(sandbox.trafficAccessToken);
    expect(await fork.downloadUrl("note")).not.toBe(await sandbox.downloadUrl("note"));
  });

  test.each([0, -1, 21])("of %d copies is refused", async (count) => {
    expect((await failure(common.sandbox.fork({ count }))).message).toMatch(/count/);
  });
});

test("a paused sandbox cannot be copied", async () => {
  const sandbox = await create();
  await sandbox.pause();
  expect((await failure(sandbox.fork())).message).toMatch(/^409: /);
  await failure(sandbox.createSnapshot());
});

test("an unknown sandbox cannot be copied", async () => {
  expect(await failure(Sandbox.fork(unique()))).toBeInstanceOf(SandboxNotFoundError);
  expect(await failure(Sandbox.createSnapshot(unique()))).toBeInstanceOf(SandboxNotFoundError);
});
