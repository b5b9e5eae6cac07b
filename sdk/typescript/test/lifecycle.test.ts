import { describe, expect, test } from "vitest";

import { ApiError, ConflictError, GoneError, InvalidArgumentError, NotFoundError, Sandbox } from "@dormouse/sdk";

import { cleanUp, createSandbox, dormouse, failure, unique } from "./support.js";

/** An id that no object has. */
const UNKNOWN = "a".repeat(20);

describe("sandboxes", () => {
  test("are created, found by name and id, and terminated", async () => {
    const name = unique("life");
    const sandbox = await createSandbox({ name, labels: { team: "red" }, resources: { memoryBytes: 256 << 20 } });
    expect(sandbox).toMatchObject({ name, state: "running" });
    expect(sandbox.info).toMatchObject({ labels: { team: "red" }, resources: { memoryBytes: 256 << 20 } });
    expect((await dormouse.sandboxes.connect(name)).id).toBe(sandbox.id);
    expect((await dormouse.sandboxes.connect(sandbox.id)).name).toBe(name);
    await sandbox.terminate();
    expect(sandbox.info).toMatchObject({ state: "terminated", cause: { kind: "requested" } });
    await failure(dormouse.sandboxes.connect(name), NotFoundError);
    await failure(sandbox.exec("true"), GoneError);
  });

  test("without a name are ephemeral", async () => {
    const sandbox = await createSandbox();
    expect(sandbox.name).toBeUndefined();
    expect(sandbox.info.suspendable).toBe(false);
    await failure(sandbox.suspend(), ConflictError);
  });

  test("have a unique name", async () => {
    const { name } = await createSandbox({ name: unique("twice") });
    const error = await failure(dormouse.sandboxes.create({ image: "base", name: name! }), ConflictError);
    expect(error).toMatchObject({ status: 409, code: "conflict" });
    expect(error.nextStep).not.toBe("");
  });

  test("are created once for one idempotency key", async () => {
    const idempotencyKey = crypto.randomUUID();
    const first = await createSandbox({ idempotencyKey });
    const second = await createSandbox({ idempotencyKey });
    expect(second.id).toBe(first.id);
    await failure(createSandbox({ idempotencyKey, labels: { other: "request" } }), InvalidArgumentError);
  });

  test.each([
    ["no source", {}],
    ["two sources", { image: "base", snapshot: "x" }],
    ["an invalid name", { image: "base", name: "No Name" }],
    ["no memory", { image: "base", resources: { memoryBytes: 0 } }],
    ["an unknown field", { image: "base", colour: "red" } as object],
    ["a negative time", { image: "base", timeoutMs: -1 }],
    ["a wrong type", { image: "base", labels: { a: 1 as unknown as string } }],
  ])("are refused with %s", async (_, options) => {
    await failure(dormouse.sandboxes.create(options), InvalidArgumentError);
  });

  test("of an unknown image are refused", async () => {
    await failure(dormouse.sandboxes.create({ image: "sha256:0123456789ab" }), ApiError);
    await failure(dormouse.sandboxes.create({ snapshot: UNKNOWN }), NotFoundError);
  });

  test("are listed by label, state and page", async () => {
    const run = unique("run");
    const created = [];
    for (let n = 0; n < 3; n++) created.push(await createSandbox({ labels: { run, n: String(n) } }));
    await created[2]!.terminate();
    const ids = async (options: Parameters<typeof dormouse.sandboxes.list>[0]): Promise<string[]> =>
      (await dormouse.sandboxes.list({ labels: { run }, ...options }).toArray()).map(({ id }) => id);
    expect((await ids({})).sort()).toEqual(created.map(({ id }) => id).sort());
    expect(await ids({ state: "terminated" })).toEqual([created[2]!.id]);
    expect(await ids({ labels: { run, n: "1" } })).toEqual([created[1]!.id]);
    expect(await ids({ sort: "created", order: "desc", limit: 1 })).toEqual(created.map(({ id }) => id).reverse());
    await failure(ids({ limit: 0 }), InvalidArgumentError);
  });

  test("are deleted by name", async () => {
    const { name } = await createSandbox({ name: unique("deleted") });
    expect((await dormouse.sandboxes.delete(name!)).state).toBe("terminated");
  });

  test("end with the block that uses them", async () => {
    let used: Sandbox;
    {
      await using sandbox = await dormouse.sandboxes.create({ image: "base" });
      expect((await sandbox.exec("true")).ok).toBe(true);
      used = sandbox;
    }
    expect(used.state).toBe("terminated");
  });
});

describe("a suspend", () => {
  test("keeps memory, processes and files, parked or evicted", async () => {
    const sandbox = await createSandbox({ name: unique("sleeper") });
    const process = await sandbox.processes.start("n=0; while read x; do n=$((n + x)); echo $n; done", {
      stdin: "pipe",
    });
    const output = process.output();
    const add = async (number: number): Promise<string> => {
      await process.write(`${number}\n`);
      const event = (await output.next()).value;
      return event?.type === "stdout" ? event.text.trim() : String(event);
    };
    expect(await add(1)).toBe("1");
    await sandbox.suspend();
    expect(sandbox.info).toMatchObject({ state: "suspended", residence: "parked" });
    await sandbox.evict();
    expect(sandbox.info.residence).toBe("evicted");
    await sandbox.resume();
    expect(sandbox.info).toMatchObject({ state: "running", restored: "memory", generation: 2 });
    await process.write("41\n");
    const seen: string[] = [];
    for await (const event of process.output()) {
      if (event.type === "stdout") seen.push(event.text);
      if (seen.join("").includes("42")) break;
    }
    expect(seen.join("")).toBe("1\n42\n");
  });

  test("is idempotent, and says whether it changed anything", async () => {
    const sandbox = await createSandbox({ name: unique("again") });
    expect((await sandbox.suspend()).info.changed).toBe(true);
    expect((await sandbox.suspend()).info.changed).toBe(false);
    expect((await sandbox.resume()).info.changed).toBe(true);
    expect((await sandbox.resume()).info.changed).toBe(false);
  });

  test("can keep files only", async () => {
    const sandbox = await createSandbox({ name: unique("files-only") });
    await sandbox.files.write("/kept", "x");
    const process = await sandbox.processes.start("sleep 600");
    await sandbox.suspend({ keep: "files" });
    await sandbox.resume();
    expect(sandbox.info.restored).toBe("files");
    expect(await sandbox.files.readText("/kept")).toBe("x");
    await failure(sandbox.processes.get(process.id), NotFoundError);
  });

  test("need not be waited for", async () => {
    const sandbox = await createSandbox({ name: unique("later") });
    await sandbox.suspend({ wait: false });
    const operation = sandbox.info.operation?.id;
    expect(operation).toBeDefined();
    expect(await dormouse.operations.wait(operation!)).toMatchObject({ status: "completed", sandbox: sandbox.id });
    expect((await sandbox.refresh()).state).toBe("suspended");
    const listed = await dormouse.operations.list({ sandbox: sandbox.id }).toArray();
    expect(listed.map(({ id }) => id)).toContain(operation);
  });

  test("of many at once reaches each of them", async () => {
    const sandbox = await createSandbox({ name: unique("crowd") });
    await Promise.all(Array.from({ length: 5 }, () => sandbox.suspend()));
    const resumed = await Promise.all(
      Array.from({ length: 5 }, async () => (await dormouse.sandboxes.connect(sandbox.id)).resume()),
    );
    expect(resumed.map(({ state }) => state)).toEqual(Array(5).fill("running"));
    expect((await sandbox.refresh()).info.generation).toBe(2);
  });
});

describe("settings", () => {
  test("of a sandbox are updated together", async () => {
    const sandbox = await createSandbox({ name: unique("settings"), labels: { old: "1" } });
    const name = unique("renamed");
    await sandbox.update({
      name,
      labels: { old: null, new_label: "2" },
      annotations: { my_app: { someKey: "x" } },
      wake: "any",
      onTimeout: "terminate",
    });
    expect(sandbox.info).toMatchObject({
      name,
      labels: { new_label: "2" },
      annotations: { my_app: { someKey: "x" } },
      wake: "any",
      onTimeout: "terminate",
    });
    expect(sandbox.info.labels).not.toHaveProperty("old");
  });

  test("are changed only at the expected revision", async () => {
    const sandbox = await createSandbox({ name: unique("revision") });
    const { revision } = sandbox.info;
    await sandbox.update({ labels: { a: "1" } }, { ifRevision: revision });
    const error = await failure(sandbox.update({ labels: { a: "2" } }, { ifRevision: revision }), ConflictError);
    expect(error.status).toBe(412);
    expect((await sandbox.refresh()).info.labels).toEqual({ a: "1" });
  });

  test("of time are set, extended and removed", async () => {
    const sandbox = await createSandbox({ name: unique("time"), timeoutMs: 600_000, idleTimeoutMs: 500_500 });
    expect(sandbox.info).toMatchObject({ timeoutMs: 600_000, idleTimeoutMs: 500_500 });
    const before = Date.parse(sandbox.info.expiresAt!);
    await sandbox.setTimeouts({ timeoutMs: 3_600_000 });
    expect(sandbox.info.idleTimeoutMs).toBeNull();
    await sandbox.extend(7_200_000);
    expect(Date.parse(sandbox.info.expiresAt!)).toBeGreaterThan(before + 6_000_000);
    await sandbox.setTimeouts({});
    expect(sandbox.info.expiresAt).toBeNull();
    await failure(sandbox.setTimeouts({ timeoutMs: 0 }), InvalidArgumentError);
  });

  test("of CPU and memory are changed while it runs", async () => {
    const sandbox = await createSandbox({ name: unique("resize") });
    await sandbox.resize({ cpuMillis: 500, memoryBytes: 300 << 20 });
    expect(sandbox.info.resources).toMatchObject({ cpuMillis: 500, memoryBytes: 300 << 20 });
  });

  test("of egress are replaced", async () => {
    const sandbox = await createSandbox({ name: unique("egress"), egress: "closed" });
    await sandbox.setEgress({
      ordered: { rules: [{ allow: "198.51.100.0/24" }, { deny: "*.example.com" }], default: "deny" },
    });
    expect(sandbox.info.egress).toMatchObject({ ordered: { default: "deny" } });
    await failure(sandbox.setEgress("none"), ApiError);
    await failure(sandbox.setEgress({ allow: ["not a network"] }), InvalidArgumentError);
  });

  test("of retention are set", async () => {
    const sandbox = await createSandbox({ name: unique("retention") });
    await sandbox.setRetention({ keepGenerations: 3, onUnrestorable: "fresh" });
    expect(sandbox.info).toMatchObject({ keepGenerations: 3, onUnrestorable: "fresh" });
    await sandbox.suspend();
    await sandbox.resume();
    await sandbox.suspend();
    expect(sandbox.info.olderImages).toHaveLength(1);
  });

  test("of automatic checkpoints are set and ended", async () => {
    const sandbox = await createSandbox({ name: unique("schedule"), checkpoints: { everyMs: 3_600_000, keep: "3" } });
    expect(sandbox.info.checkpoints).toMatchObject({ everyMs: 3_600_000, keep: "3", kind: "filesystem" });
    await sandbox.setCheckpointPolicy({ everyMs: 60_000 });
    expect(sandbox.info.checkpoints?.everyMs).toBe(60_000);
    await sandbox.setCheckpointPolicy({ off: true });
    expect(sandbox.info.checkpoints).toBeNull();
  });

  test("a hold keeps it awake", async () => {
    const sandbox = await createSandbox({ name: unique("held") });
    const hold = await sandbox.hold({ reason: "a test", ttlMs: 60_000 });
    expect((await sandbox.refresh()).info.holds).toEqual([hold]);
    await sandbox.release(hold.id);
    expect(sandbox.info.holds).toEqual([]);
  });
});

describe("inspection", () => {
  test("explains why it sleeps", async () => {
    const sandbox = await createSandbox({ name: unique("why") });
    expect((await sandbox.why()).summary).toContain("running");
    await sandbox.suspend();
    const why = await sandbox.why();
    expect(why.sandbox).toBe(sandbox.id);
    expect(why.onDisk.length).toBeGreaterThan(0);
  });

  test("shows what it uses", async () => {
    const sandbox = await createSandbox({ name: unique("usage") });
    await sandbox.exec("head -c 1000000 /dev/urandom | sha256sum");
    const usage = await sandbox.usage();
    expect(usage.cpuMs).toBeGreaterThan(0);
    expect(usage.memoryBytes).toBeGreaterThan(0);
    expect(Array.isArray((await sandbox.metrics()).samples)).toBe(true);
  });

  test("lists and follows events", async () => {
    const sandbox = await createSandbox({ name: unique("events") });
    const before = await sandbox.events.list().toArray();
    expect(before.length).toBeGreaterThan(0);
    expect(before.every((event) => event.sandbox === sandbox.id)).toBe(true);
    const last = before.at(-1)!.number;
    const followed = sandbox.events.follow({ after: last });
    const next = followed.next();
    await sandbox.suspend();
    const event = (await next).value!;
    expect(event.number).toBeGreaterThan(last);
    expect(event).toMatchObject({ sandbox: sandbox.id, initiator: "user", caller: { door: "api" } });
    await followed.return();
    expect((await dormouse.events.list({ newest: 1 }).toArray()).length).toBe(1);
  });

  test("a followed log ends when it is aborted", async () => {
    const sandbox = await createSandbox({ name: unique("abort") });
    const controller = new AbortController();
    const read = async (): Promise<void> => {
      for await (const _ of sandbox.events.follow({ signal: controller.signal })) controller.abort(new Error("enough"));
    };
    await expect(read()).rejects.toThrow("enough");
  });
});

describe("snapshots", () => {
  test("of files start sandboxes that boot from them", async () => {
    const sandbox = await createSandbox({ name: unique("source") });
    await sandbox.files.write("/state", "one");
    const snapshot = await sandbox.checkpoint({ labels: { step: "one" }, expiresMs: 3_600_000 });
    cleanUp(() => dormouse.snapshots.delete(snapshot.id));
    expect(snapshot).toMatchObject({
      kind: "filesystem",
      status: "completed",
      source: sandbox.id,
      labels: { step: "one" },
    });
    const copy = await createSandbox({ snapshot: snapshot.id });
    cleanUp(() => copy.terminate());
    expect(await copy.files.readText("/state")).toBe("one");
    await failure(dormouse.snapshots.delete(snapshot.id), ConflictError);
    expect((await dormouse.snapshots.list({ source: sandbox.id }).toArray()).map(({ id }) => id)).toEqual([
      snapshot.id,
    ]);
  });

  test("of memory continue processes", async () => {
    const sandbox = await createSandbox({ name: unique("memory") });
    const process = await sandbox.processes.start("read x; echo got $x", { stdin: "pipe" });
    const snapshot = await sandbox.checkpoint({ kind: "memory" });
    cleanUp(() => dormouse.snapshots.delete(snapshot.id, { whenFree: true }));
    const copy = await createSandbox({ snapshot: snapshot.id });
    const same = await copy.processes.get(process.id);
    await same.write("it\n");
    expect((await same.wait()).exitCode).toBe(0);
    const files = await dormouse.snapshots.extractFiles(snapshot.id);
    cleanUp(() => dormouse.snapshots.delete(files.id));
    expect(files.kind).toBe("filesystem");
    expect((await process.info()).exit).toBeNull();
  });

  test("can have a name, which serves as an image", async () => {
    const sandbox = await createSandbox({ name: unique("named") });
    const name = `${unique("image")}:v1`;
    const snapshot = await sandbox.checkpoint({ name });
    cleanUp(() => dormouse.snapshots.delete(snapshot.id));
    expect((await dormouse.snapshots.get(name)).id).toBe(snapshot.id);
    expect((await createSandbox({ image: name })).info.snapshot).toBe(snapshot.id);
    await failure(sandbox.checkpoint({ name }), ConflictError);
  });

  test("are exported and imported", async () => {
    const sandbox = await createSandbox({ name: unique("export") });
    await sandbox.files.write("/state", "moved");
    const snapshot = await sandbox.checkpoint();
    cleanUp(() => dormouse.snapshots.delete(snapshot.id));
    const imported = await dormouse.snapshots.import(await dormouse.snapshots.export(snapshot.id), {
      labels: { from: "here" },
    });
    cleanUp(() => dormouse.snapshots.delete(imported.id));
    expect(imported).toMatchObject({ madeBy: "import", labels: { from: "here" } });
    expect(imported.id).not.toBe(snapshot.id);
    expect(await (await createSandbox({ snapshot: imported.id })).files.readText("/state")).toBe("moved");
    await failure(dormouse.snapshots.import("not an archive"), ApiError);
    await failure(dormouse.snapshots.push(snapshot.id, "127.0.0.1:1/x:1"), ApiError);
    await failure(dormouse.snapshots.pull("127.0.0.1:1/x:1"), ApiError);
  });

  test("rewind a sandbox, which keeps its id and its future", async () => {
    const sandbox = await createSandbox({ name: unique("rewind") });
    await sandbox.files.write("/state", "good");
    const snapshot = await sandbox.checkpoint();
    cleanUp(() => dormouse.snapshots.delete(snapshot.id, { whenFree: true }));
    await sandbox.files.write("/state", "bad");
    const diff = await sandbox.diff(snapshot.id);
    expect(diff.changes.map(({ change, path }) => `${change} ${path}`)).toEqual(["modified /state"]);
    expect((await dormouse.diff(sandbox.id, snapshot.id, { order: "given" })).to).toBe(snapshot.id);
    const { future } = await sandbox.rewind(snapshot.id);
    expect(await sandbox.files.readText("/state")).toBe("good");
    expect(sandbox.info.rewoundTo).toBe(snapshot.id);
    await sandbox.rewind(future!, { keep: "none" });
    expect(await sandbox.files.readText("/state")).toBe("bad");
    await failure(sandbox.rewind(UNKNOWN), NotFoundError);
    await failure(sandbox.rewind("no id"), InvalidArgumentError);
    await dormouse.snapshots.delete(future!, { whenFree: true });
  });

  test("restart a terminated sandbox", async () => {
    const sandbox = await createSandbox({ name: unique("restart") });
    await sandbox.files.write("/state", "kept");
    const snapshot = await sandbox.checkpoint();
    cleanUp(() => dormouse.snapshots.delete(snapshot.id, { whenFree: true }));
    await sandbox.terminate();
    const restarted = await sandbox.restart();
    cleanUp(() => restarted.terminate());
    expect(restarted.id).not.toBe(sandbox.id);
    expect(await restarted.files.readText("/state")).toBe("kept");
  });
});

describe("copies", () => {
  test("of a clone continue from its snapshot", async () => {
    const source = await createSandbox({ name: unique("clone"), secrets: { TOKEN: "s3cret" } });
    await source.files.write("/state", "x");
    const { sandbox, snapshot } = await source.clone({
      name: unique("copy"),
      secrets: { TOKEN: null },
      env: { MORE: "1" },
    });
    cleanUp(() => dormouse.snapshots.delete(snapshot.id));
    cleanUp(() => sandbox.terminate());
    expect((await sandbox.exec("cat /state; echo $TOKEN $MORE")).stdout).toBe("xs3cret 1\n");
  });

  test("of a fork diverge, and one is promoted", async () => {
    const parent = await createSandbox({ name: unique("parent") });
    const [one, two] = await parent.fork([{ name: unique("one"), labels: { n: "1" } }, { name: unique("two") }]);
    cleanUp(() => two!.terminate());
    cleanUp(() => one!.terminate());
    await one!.files.write("/winner", "one");
    await two!.files.write("/winner", "two");
    const { nodes } = { nodes: await parent.tree() };
    expect(nodes.map(({ id }) => id)).toEqual(expect.arrayContaining([parent.id, one!.id, two!.id]));
    expect((await dormouse.tree()).length).toBeGreaterThanOrEqual(nodes.length);
    const { parent: promoted, future } = await two!.promote();
    expect(promoted.id).toBe(parent.id);
    expect(await parent.files.readText("/winner")).toBe("two");
    expect((await two!.refresh()).state).toBe("terminated");
    expect((await one!.exec("hostname")).ok).toBe(true);
    await dormouse.snapshots.delete(future!, { whenFree: true });
    await failure(parent.promote(), ApiError);
  });

  test("of a fork are all made or none", async () => {
    const parent = await createSandbox({ name: unique("parent") });
    const name = unique("child");
    await failure(parent.fork([{ name }, { name: parent.name! }]), ConflictError);
    await failure(dormouse.sandboxes.connect(name), NotFoundError);
    await failure(parent.fork(0), InvalidArgumentError);
    await failure(parent.fork(10_000), InvalidArgumentError);
  });

  test("of a fork that may be partial are returned one by one", async () => {
    const parent = await createSandbox({ name: unique("parent") });
    const results = await parent.tryFork(2, { volumes: "none" });
    for (const { sandbox, error } of results) {
      cleanUp(async () => sandbox?.terminate());
      expect([sandbox?.state, error]).toEqual(["running", undefined]);
    }
    expect(results).toHaveLength(2);
  });
});
