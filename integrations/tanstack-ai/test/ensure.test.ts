/** Which sandbox a thread gets: every row of the table by which the layer falls through, with its real code. */

import {
  createSecrets,
  defineSandbox,
  defineWorkspace,
  InMemoryLockStore,
  InMemorySandboxStore,
  type SandboxConfig,
  type SandboxHandle,
  type SandboxRecord,
} from "@tanstack/ai-sandbox";
import { Dormouse, NotFoundError, UnauthorizedError } from "@dormouse/sdk";
import { describe, expect, test } from "vitest";

import { type DormouseProvider, dormouseSandbox } from "../src/index.js";
import { dormouse, provider, unique, until } from "./support.js";

/** A daemon of before `sandbox_max_age_secs` refuses it. */
const knowsMaxAge = JSON.stringify(await dormouse.openApi()).includes("sandbox_max_age_secs");

/** A workspace whose setup leaves a mark, so that a test sees whether it ran again. */
const workspace = defineWorkspace({ source: { type: "none" }, setup: ["date +%s%N > /workspace/mark"] });

/** One process of the user: a definition with its store and locks. */
function client(threadId: string, config: Partial<SandboxConfig> = {}, store = new InMemorySandboxStore()) {
  const definition = defineSandbox({ id: "agent", provider: provider(), workspace, ...config });
  const context = { threadId, runId: unique("run"), store, locks: new InMemoryLockStore() };
  const key = definition.key(context);
  return {
    definition,
    context,
    store,
    ensure: () => definition.ensure(context),
    destroy: () => definition.destroy(context),
    record: async (): Promise<SandboxRecord> => (await store.get(key))!,
    change: async (change: Partial<SandboxRecord>): Promise<void> =>
      store.upsert({ ...(await store.get(key))!, ...change }),
  };
}

const mark = (handle: SandboxHandle): Promise<string> => handle.fs.read("/workspace/mark");

describe("without a record", () => {
  test("a sandbox is created, set up and saved", async () => {
    const one = client(unique("thread"));
    const handle = await one.ensure();
    const record = await one.record();
    expect(record).toMatchObject({
      provider: "dormouse",
      providerSandboxId: handle.id,
      key: one.definition.key(one.context),
    });
    expect(await mark(handle)).toMatch(/^\d+\n$/);
    const snapshot = await dormouse.snapshots.get(record.latestSnapshotId!);
    expect(snapshot).toMatchObject({ source: handle.id, kind: "filesystem", labels: { label: "after-setup" } });
    const environment = await dormouse.environments.get(record.key!);
    expect(environment).toMatchObject({ sandbox: handle.id, snapshot: null, state: "ready" });
  });

  test("no snapshot is taken if the definition wants none", async () => {
    const one = client(unique("thread"), { lifecycle: { snapshot: "none" } });
    await one.ensure();
    expect((await one.record()).latestSnapshotId).toBeUndefined();
  });

  test("a failed setup leaves no sandbox", async () => {
    const broken = defineWorkspace({ source: { type: "none" }, setup: ["sh -c 'echo why; exit 7'"] });
    const one = client(unique("thread"), { workspace: broken });
    await expect(one.ensure()).rejects.toThrow(/setup step failed: .* \(exit 7\)\nwhy/);
    await expect(dormouse.environments.get(one.definition.key(one.context))).rejects.toThrow(NotFoundError);
    expect(await one.store.get(one.definition.key(one.context))).toBeNull();
  });

  test("parallel and serial setup share the directory", async () => {
    const built = defineWorkspace({
      source: { type: "none" },
      setup: ({ serial, parallel }) => {
        serial("mkdir app && cd app");
        parallel(["pwd > one", "echo two > two"]);
        serial("cat one two > all");
      },
    });
    const handle = await client(unique("thread"), { workspace: built }).ensure();
    expect(await handle.fs.read("/workspace/app/all")).toBe("/workspace/app\ntwo\n");
  });
});

describe("with a record of a sandbox that lives", () => {
  test("it is reused as it is, by thread", async () => {
    const one = client(unique("thread"));
    const first = await one.ensure();
    await first.fs.write("/workspace/state", "kept");
    const second = await one.ensure();
    expect(second.id).toBe(first.id);
    expect(await mark(second)).toBe(await mark(first));
    expect(await second.fs.read("/workspace/state")).toBe("kept");
  });

  test("it is resumed with its processes if it sleeps", async () => {
    const one = client(unique("thread"));
    const handle = await one.ensure();
    const process = await handle.process.spawn("read x; echo got $x");
    const sandbox = await dormouse.sandboxes.connect(handle.id);
    await sandbox.suspend();
    await one.ensure();
    expect((await sandbox.refresh()).info).toMatchObject({ state: "running", restored: "memory" });
    await process.stdin.write("it\n");
    expect(await process.wait()).toBe(0);
  });

  test("another thread gets another one", async () => {
    const [a, b] = [await client(unique("thread")).ensure(), await client(unique("thread")).ensure()];
    expect(a.id).not.toBe(b.id);
  });

  test("another run gets another one if the definition reuses nothing", async () => {
    const thread = unique("thread");
    const store = new InMemorySandboxStore();
    const fresh = () => client(thread, { lifecycle: { reuse: "none", snapshot: "none" } }, store).ensure();
    expect((await fresh()).id).not.toBe((await fresh()).id);
  });

  test("a changed setup gets another one, changed secrets do not", async () => {
    const thread = unique("thread");
    const store = new InMemorySandboxStore();
    const first = await client(thread, {}, store).ensure();
    const secrets = createSecrets({ TOKEN: "rotated" });
    const rotated = defineWorkspace({ ...workspace, secrets });
    expect((await client(thread, { workspace: rotated }, store).ensure()).id).toBe(first.id);
    const changed = defineWorkspace({ ...workspace, setup: [...(workspace.setup as string[]), "true"] });
    expect((await client(thread, { workspace: changed }, store).ensure()).id).not.toBe(first.id);
  });

  test("a tenant gets its own", async () => {
    const one = client(unique("thread"), { lifecycle: { snapshot: "none" } });
    const ensure = (userId: string) => one.definition.ensure({ ...one.context, tenant: { userId } });
    expect((await ensure("u1")).id).not.toBe((await ensure("u2")).id);
    expect((await ensure("u1")).id).toBe((await ensure("u1")).id);
  });
});

describe("with a record of a sandbox that is gone", () => {
  test("the snapshot after the setup is restored, without a setup", async () => {
    const one = client(unique("thread"));
    const first = await one.ensure();
    const before = await mark(first);
    await first.fs.write("/workspace/later", "lost");
    await first.destroy();
    const second = await one.ensure();
    expect(second.id).not.toBe(first.id);
    expect(await mark(second)).toBe(before);
    expect(await second.fs.exists("/workspace/later")).toBe(false);
    const record = await one.record();
    expect(record).toMatchObject({ providerSandboxId: second.id });
    expect((await one.ensure()).id).toBe(second.id);
  });

  test("a restored sandbox has the environment, so that others join it", async () => {
    const thread = unique("thread");
    const one = client(thread);
    await (await one.ensure()).destroy();
    const restored = await one.ensure();
    expect((await client(thread).ensure()).id).toBe(restored.id);
  });

  test("it is created again if there is no snapshot", async () => {
    const one = client(unique("thread"), { lifecycle: { snapshot: "none" } });
    const first = await one.ensure();
    const before = await mark(first);
    await first.destroy();
    const second = await one.ensure();
    expect(second.id).not.toBe(first.id);
    expect(await mark(second)).not.toBe(before);
  });

  test("it is created again if the provider could not restore", async () => {
    const able = provider();
    const unable: DormouseProvider = Object.create(able, {
      capabilities: { value: () => ({ ...able.capabilities(), snapshots: false }) },
      name: { value: able.name },
      create: { value: able.create.bind(able) },
      resume: { value: able.resume.bind(able) },
      destroy: { value: able.destroy.bind(able) },
    });
    const thread = unique("thread");
    const store = new InMemorySandboxStore();
    const first = await client(thread, { provider: able }, store).ensure();
    const before = await mark(first);
    await first.destroy();
    expect(await mark(await client(thread, { provider: unable }, store).ensure())).not.toBe(before);
  });

  test("a snapshot that is gone is an error", async () => {
    const one = client(unique("thread"));
    await (await one.ensure()).destroy();
    const { latestSnapshotId } = await one.record();
    await dormouse.snapshots.delete(latestSnapshotId!);
    await expect(one.ensure()).rejects.toThrow(NotFoundError);
  });

  test("a sandbox that was destroyed by its definition leaves no record", async () => {
    const one = client(unique("thread"));
    const first = await one.ensure();
    await one.destroy();
    await one.destroy();
    expect(await one.record()).toBeNull();
    expect((await dormouse.sandboxes.connect(first.id)).state).toBe("terminated");
  });
});

describe("a failure to resume", () => {
  test("is an error, and never another sandbox", async () => {
    const one = client(unique("thread"));
    await one.ensure();
    const stranger = dormouseSandbox({ client: { apiKey: "wrong" } });
    await expect(client(one.context.threadId, { provider: stranger }, one.store).ensure()).rejects.toThrow(
      UnauthorizedError,
    );
    const offline = dormouseSandbox({ client: new Dormouse({ server: "http://127.0.0.1:1", maxRetries: 0 }) });
    await expect(client(one.context.threadId, { provider: offline }, one.store).ensure()).rejects.toThrow("connection");
  });

  test("is null for an id that never was", async () => {
    expect(await provider().resume({ id: "a".repeat(20) })).toBeNull();
  });

  test("destroy forgives what is gone", async () => {
    const created = await provider().create({ id: unique("twice") });
    await provider().destroy({ id: created.id });
    await provider().destroy({ id: created.id });
    await provider().destroy({ id: "a".repeat(20) });
    await created.destroy();
  });

  test("destroy ends a sandbox that sleeps", async () => {
    const created = await provider().create({ id: unique("asleep") });
    await created.sandbox.suspend();
    await provider().destroy({ id: created.id });
    expect((await created.sandbox.refresh()).state).toBe("terminated");
  });
});

describe("a stale record", () => {
  const lifecycle = { snapshotMaxAge: "1h" };
  const hours = 3_600_000;

  test("younger than its limit is used", async () => {
    const one = client(unique("thread"), { lifecycle });
    const first = await one.ensure();
    await one.change({ updatedAt: Date.now() - 0.9 * hours });
    expect((await one.ensure()).id).toBe(first.id);
  });

  test("joins the sandbox that still exists, by default", async () => {
    const one = client(unique("thread"), { lifecycle });
    const first = await one.ensure();
    await one.change({ updatedAt: Date.now() - 2 * hours });
    expect((await one.ensure()).id).toBe(first.id);
  });

  test.skipIf(!knowsMaxAge)("gets a fresh one if the old one is older than maxAgeMs, which is kept", async () => {
    const one = client(unique("thread"), { lifecycle, provider: provider({ maxAgeMs: 1 }) });
    const first = await one.ensure();
    await one.change({ updatedAt: Date.now() - 2 * hours });
    const second = await one.ensure();
    expect(second.id).not.toBe(first.id);
    const { key } = await one.record();
    expect(await dormouse.environments.get(key)).toMatchObject({ sandbox: second.id, retired: [first.id] });
    const retired = await dormouse.sandboxes.connect(first.id);
    await until("it is suspended", async () => (await retired.refresh()).state === "suspended");
    await second.destroy();
    expect((await retired.refresh()).state).toBe("suspended");
  });

  test.skipIf(!knowsMaxAge)("joins one that is younger than maxAgeMs", async () => {
    const one = client(unique("thread"), { lifecycle, provider: provider({ maxAgeMs: hours }) });
    const first = await one.ensure();
    await one.change({ updatedAt: Date.now() - 2 * hours });
    expect((await one.ensure()).id).toBe(first.id);
  });

  test("asks for the environment of its key, which is used as it is up to maxAgeMs", async () => {
    const bodies: unknown[] = [];
    const fetch: typeof globalThis.fetch = async (_, init) => {
      bodies.push(JSON.parse(String(init!.body)));
      return Response.json({}, { status: 400 });
    };
    const asking = dormouseSandbox({ client: { fetch }, maxAgeMs: hours }).create({ id: "0ad2b56eb7ad29f7" });
    await expect(asking).rejects.toThrow();
    expect(bodies).toEqual([
      expect.objectContaining({
        key: "0ad2b56eb7ad29f7",
        image: "base",
        lifecycle: { snapshot: "none", on_drift: "keep", keep_alive_secs: 1800, sandbox_max_age_secs: 3600 },
      }),
    ]);
  });
});

describe("several clients", () => {
  test("of one thread in one process get one sandbox", async () => {
    const one = client(unique("thread"));
    const handles = await Promise.all([one.ensure(), one.ensure(), one.ensure()]);
    expect(new Set(handles.map(({ id }) => id)).size).toBe(1);
  });

  test("of one thread in several processes get one sandbox", async () => {
    const thread = unique("thread");
    const lifecycle = { snapshot: "none" } as const;
    const handles = await Promise.all(Array.from({ length: 4 }, () => client(thread, { lifecycle }).ensure()));
    expect(new Set(handles.map(({ id }) => id)).size).toBe(1);
  });

  test("that lost their store find the sandbox again, also asleep", async () => {
    const thread = unique("thread");
    const first = await client(thread).ensure();
    await (await dormouse.sandboxes.connect(first.id)).suspend();
    const second = await client(thread).ensure();
    expect(second.id).toBe(first.id);
    expect((await dormouse.sandboxes.connect(first.id)).state).toBe("running");
  });

  test("that ask for the thread reach the sandbox that its key was made with", async () => {
    const clientKey = crypto.randomUUID().replaceAll("-", "").slice(0, 16);
    const created = await provider().create({ id: clientKey });
    const thread = { thread: unique("thread"), definition: "repo-agent" };
    const { sandbox, environment } = await dormouse.environments.ensure({
      ...{ thread, clientKey, image: "base" },
      lifecycle: { snapshot: "none", onDrift: "keep" },
    });
    expect([sandbox.id, environment.key]).toEqual([created.id, clientKey]);
    await created.destroy();
    await expect(dormouse.environments.get(environment.id)).rejects.toThrow(NotFoundError);
  });

  test("that restore one snapshot at the same time get one sandbox", async () => {
    const source = await provider().create({ id: unique("race") });
    const { id: snapshotId } = await source.snapshot();
    await source.destroy();
    const restored = await Promise.all([1, 2, 3].map(() => provider().restoreSnapshot({ snapshotId })));
    expect(new Set(restored.map(({ id }) => id)).size).toBe(1);
  });

  test("create a new one while the old one ends", async () => {
    const id = unique("ending");
    const first = await provider().create({ id });
    const [, second] = await Promise.all([first.destroy(), provider().create({ id })]);
    const { state } = await dormouse.sandboxes.connect(second.id);
    expect(state).toBe(second.id === first.id ? "terminated" : "running");
  });

  test("without an id get their own", async () => {
    expect((await provider().create({})).id).not.toBe((await provider().create({})).id);
  });
});

describe("policy and secrets", () => {
  const denied = { capabilities: { network: "deny" } } as const;

  test("a denied network is closed, and opened again for another policy", async () => {
    const id = unique("network");
    const closed = await provider().create({ id, policy: denied });
    expect(closed.sandbox.info.egress).toBe("closed");
    const resolve = await closed.process.exec(
      "getent hosts example.com || python3 -c 'import socket; socket.create_connection((\"198.51.100.1\", 80), 2)'",
    );
    expect(resolve.exitCode).not.toBe(0);
    const open = await provider().create({ id });
    expect(open.id).toBe(closed.id);
    expect((await open.sandbox.refresh()).info.egress).toBe("public");
  });

  test("a restored sandbox has the policy and the secrets of now", async () => {
    const source = await provider().create({ id: unique("policy"), env: { TOKEN: "old", GONE: "x" } });
    const { id: snapshotId } = await source.snapshot();
    const restored = await provider().restoreSnapshot({ snapshotId, policy: denied, env: { TOKEN: "new" } });
    expect(restored.sandbox.info.egress).toBe("closed");
    expect((await restored.process.exec("echo $TOKEN:$GONE")).stdout).toBe("new:\n");
  });

  test("secrets reach the commands, and no answer of the daemon has them", async () => {
    const secrets = createSecrets({ TOKEN: "canary-7" });
    const handle = await client(unique("thread"), { workspace: defineWorkspace({ ...workspace, secrets }) }).ensure();
    expect((await handle.process.exec("echo $TOKEN")).stdout).toBe("canary-7\n");
    const { info } = await dormouse.sandboxes.connect(handle.id);
    expect(info.secrets).toEqual(["TOKEN"]);
    expect(JSON.stringify(info)).not.toContain("canary-7");
  });

  test("secrets are there after a resume without them", async () => {
    const created = await provider().create({ id: unique("again"), env: { TOKEN: "kept" } });
    const resumed = await provider().resume({ id: created.id });
    expect((await resumed!.process.exec("echo $TOKEN")).stdout).toBe("kept\n");
  });

  test("options of the provider reach the sandbox", async () => {
    const options = { egress: { allow: ["example.com"] }, portAccess: "public", idleTimeoutMs: 60_000 } as const;
    const input = { id: unique("options"), adapterName: "claude-code" };
    const { info } = (await provider({ ...options, egress: { allow: ["example.com"] } }).create(input)).sandbox;
    expect(info).toMatchObject({ ...options, onTimeout: "suspend", wake: "any", labels: { adapter: "claude-code" } });
    const never = await provider({ idleTimeoutMs: null }).create({ id: unique("never") });
    expect(never.sandbox.info.idleTimeoutMs).toBeNull();
  });

  test("a sandbox can start from a snapshot with the repository", async () => {
    const prepared = await provider().create({ id: unique("prepared") });
    await prepared.process.exec(
      "git init -q --bare -b main /srv/app.git && git clone -q /srv/app.git /tmp/app && cd /tmp/app && git config user.email a@b && " +
        "git config user.name a && echo '{}' > package-lock.json && git add . && git commit -qm one && git push -q origin HEAD:main",
    );
    const { id: snapshot } = await prepared.snapshot();
    const source = { type: "git", url: "file:///srv/app.git" } as const;
    const cloned = defineWorkspace({ source, instructions: "Be kind.", setup: ["test -f package-lock.json"] });
    const handle = await client(unique("thread"), {
      provider: provider({ source: { snapshot } }),
      workspace: cloned,
    }).ensure();
    expect(await handle.git.branch()).toBe("main");
    expect(await handle.fs.read("/workspace/AGENTS.md")).toContain("Be kind.");
    expect((await handle.process.exec("readlink CLAUDE.md")).stdout).toBe("AGENTS.md\n");
  });
});
