import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Sandbox, type SandboxInfo, type SandboxListOpts, SandboxNotFoundError } from "../support/client.ts";
import { allItems, create, eventually, failure, shared, unique } from "../support/guest.ts";

const common = shared();
const mark = `mixed & = %20 ü ${unique()}`;
/** Three running and two paused sandboxes, oldest first. */
let mixed: Sandbox[] = [];

beforeAll(async () => {
  for (const n of [0, 1, 2, 3, 4]) {
    mixed.push(await Sandbox.create({ timeoutMs: 600_000, metadata: { "mark of": mark, n: String(n) } }));
  }
  await mixed[1]!.pause();
  await mixed[2]!.pause();
});
afterAll(async () => void (await Promise.all(mixed.map((sandbox) => sandbox.kill()))));

type Query = NonNullable<SandboxListOpts["query"]>;

function list(query: Query = {}, opts: SandboxListOpts = {}): Promise<SandboxInfo[]> {
  const metadata = { "mark of": mark, ...query.metadata };
  return allItems(Sandbox.list({ ...opts, query: { ...query, metadata } }));
}

const ids = (found: { sandboxId: string }[]): string[] => found.map((one) => one.sandboxId);

describe("information on a sandbox", () => {
  test("can be had by its id", async () => {
    const info = await Sandbox.getInfo(common.sandbox.sandboxId);
    expect(info.sandboxId).toBe(common.sandbox.sandboxId);
    expect(await Sandbox.getFullInfo(common.sandbox.sandboxId)).toMatchObject({ sandboxId: info.sandboxId });
  });

  test("that is paused has its settings", async () => {
    const sandbox = await create({ metadata: { a: "b" }, lifecycle: { onTimeout: "pause" } });
    const before = await sandbox.getInfo();
    await sandbox.pause();
    const info = await sandbox.getInfo();
    const { templateId, name, metadata, cpuCount, memoryMB, lifecycle } = before;
    expect(info).toMatchObject({ state: "paused", templateId, name, metadata, cpuCount, memoryMB, lifecycle });
  });

  test("promises all features of the daemon inside", async () => {
    const version = (await common.sandbox.getInfo()).envdVersion.split(".").map(Number);
    expect(version[0]! * 10_000 + version[1]! * 100 + version[2]!).toBeGreaterThanOrEqual(604);
  });

  test("that does not exist is refused", async () => {
    expect(await failure(Sandbox.getInfo(unique()))).toBeInstanceOf(SandboxNotFoundError);
  });

  test("that was killed is refused", async () => {
    const sandbox = await create();
    await sandbox.kill();
    expect(await failure(sandbox.getInfo())).toBeInstanceOf(SandboxNotFoundError);
  });
});

describe("the list of sandboxes", () => {
  test("has running and paused ones with metadata and size", async () => {
    const states = new Map((await list()).map((one) => [one.sandboxId, one.state]));
    expect(mixed.map((one) => states.get(one.sandboxId))).toEqual([
      "running",
      "paused",
      "paused",
      "running",
      "running",
    ]);
    for (const one of await list()) {
      expect(one.metadata["mark of"]).toBe(mark);
      expect([one.name, one.cpuCount > 0, one.memoryMB > 0]).toEqual(["base", true, true]);
    }
  });

  test("has the newest first unless told otherwise", async () => {
    expect(ids(await list())).toEqual(ids(mixed).reverse());
    expect(ids(await list({}, { order: "desc" }))).toEqual(ids(mixed).reverse());
    expect(ids(await list({}, { order: "asc" }))).toEqual(ids(mixed));
  });

  test.each([1, 2, 5])("has pages of up to %d", async (limit) => {
    const paginator = Sandbox.list({ query: { metadata: { "mark of": mark } }, order: "asc", limit });
    const found: string[] = [];
    while (paginator.hasNext) {
      const page = await paginator.nextItems();
      expect(page.length).toBeLessThanOrEqual(limit);
      found.push(...ids(page));
    }
    expect(found).toEqual(ids(mixed));
    expect(paginator.nextToken).toBeUndefined();
    expect((await failure(paginator.nextItems())).message).toContain("No more items to fetch");
  });

  test("continues from a token", async () => {
    const first = Sandbox.list({ query: { metadata: { "mark of": mark } }, limit: 2 });
    const begun = ids(await first.nextItems());
    const rest = ids(await list({}, { nextToken: first.nextToken! }));
    expect([...begun, ...rest]).toEqual(ids(mixed).reverse());
  });

  test("can be filtered by state", async () => {
    expect((await list({ state: ["running"] })).length).toBe(3);
    expect((await list({ state: ["paused"] })).length).toBe(2);
    expect((await list({ state: ["running", "paused"] })).length).toBe(5);
  });

  test("can be filtered by all of several pairs", async () => {
    expect(ids(await list({ metadata: { n: "3" } }))).toEqual([mixed[3]!.sandboxId]);
    expect(await list({ metadata: { n: "9" } })).toEqual([]);
  });

  test("can be filtered by template", async () => {
    const { templateId } = await mixed[0]!.getInfo();
    expect((await list({ template: "base" })).length).toBe(5);
    expect((await list({ template: templateId })).length).toBe(5);
    expect(await list({ template: "no-such-template" })).toEqual([]);
  });

  test("can be filtered by the time of the start", async () => {
    const startedAfter = (await mixed[3]!.getInfo()).startedAt;
    expect(ids(await list({ startedAfter })).sort()).toEqual(ids(mixed.slice(3)).sort());
    expect(await list({ startedAfter: new Date(Date.now() + 86_400_000) })).toEqual([]);
  });

  test.each([-1, 101, 2 ** 40])("refuses pages of %d", async (limit) => {
    expect((await failure(Sandbox.list({ limit }).nextItems())).message).toMatch(/^400: /);
  });

  test.each(["nonsense", "bm9uc2Vuc2U", "../..", "ü"])("refuses the token '%s'", async (nextToken) => {
    expect((await failure(Sandbox.list({ nextToken }).nextItems())).message).toMatch(/^400: /);
  });
});

describe("metrics", () => {
  test("arrive while a sandbox runs", async () => {
    const metrics = await eventually(async () => {
      const found = await common.sandbox.getMetrics();
      return found.length > 0 ? found : undefined;
    });
    const last = metrics!.at(-1)!;
    expect(last.cpuCount).toBeGreaterThanOrEqual(1);
    expect(last.memUsed).toBeLessThanOrEqual(last.memTotal);
    expect(last.diskUsed).toBeLessThanOrEqual(last.diskTotal);
    expect(last.cpuUsedPct).toBeGreaterThanOrEqual(0);
    expect(last.memCache).toBeGreaterThanOrEqual(0);
    expect((await Sandbox.getMetrics(common.sandbox.sandboxId)).length).toBeGreaterThan(0);
  });

  test("can be asked for a period", async () => {
    await eventually(async () => (await common.sandbox.getMetrics()).length);
    const ago = (minutes: number) => new Date(Date.now() - minutes * 60_000);
    expect((await common.sandbox.getMetrics({ start: ago(10), end: ago(-1) })).length).toBeGreaterThan(0);
    expect(await common.sandbox.getMetrics({ start: ago(5000), end: ago(4000) })).toEqual([]);
  });

  test("of an unknown sandbox are refused", async () => {
    expect(await failure(Sandbox.getMetrics(unique()))).toBeInstanceOf(SandboxNotFoundError);
  });
});
