import { describe, expect, test } from "vitest";

import {
  ApiError,
  ConflictError,
  Dormouse,
  ForbiddenError,
  InvalidArgumentError,
  NotFoundError,
  UnauthorizedError,
} from "@dormouse/sdk";

import { cleanUp, createSandbox, dormouse, failure, unique, until } from "./support.js";

describe("the daemon", () => {
  test("tells its version, engine and health", async () => {
    expect(await dormouse.health()).toEqual({ status: "ok" });
    expect(await dormouse.info()).toMatchObject({
      version: expect.any(String),
      project: "local",
      engine: { name: "gvisor" },
    });
  });

  test("serves its contract, certificate and metrics", async () => {
    expect((await dormouse.openApi())["paths"]).toHaveProperty("/v1/sandboxes");
    expect((await dormouse.authority()).certificate).toContain("BEGIN CERTIFICATE");
    expect(await dormouse.maintenance.metrics()).toContain("# TYPE");
  });

  test("refuses a wrong key, and no key", async () => {
    await failure(new Dormouse({ apiKey: "wrong" }).info(), UnauthorizedError);
    expect(await new Dormouse({ apiKey: "wrong" }).health()).toEqual({ status: "ok" });
  });

  test("shows and verifies what is on disk", async () => {
    const stored = await dormouse.maintenance.stored();
    const image = stored.find(({ kind }) => kind === "image");
    expect(image).toBeDefined();
    expect(await dormouse.maintenance.quarantine()).toMatchObject({
      files: expect.any(Array),
      records: expect.any(Array),
    });
    const verified = await dormouse.maintenance.verify({ kind: "image", id: "0".repeat(64) });
    expect(verified).toMatchObject({ kind: "image", bytes: 0, verdict: expect.any(String) });
    await failure(dormouse.maintenance.verify({ kind: "volume", id: "x" }), InvalidArgumentError);
  });

  test("collects garbage, and shows what it would collect", async () => {
    expect(await dormouse.maintenance.previewGarbageCollection()).toEqual(expect.any(Array));
    expect(await dormouse.maintenance.collectGarbage()).toEqual(expect.any(Array));
  });
});

describe("volumes", () => {
  test("outlive sandboxes and are shared", async () => {
    const name = unique("volume");
    const volume = await dormouse.volumes.create({ name, sizeBytes: 64 << 20 });
    cleanUp(() => dormouse.volumes.delete(name));
    await dormouse.volumes.write(name, "/seed", "from outside");
    const writer = await createSandbox({ name: unique("writer"), volumes: [{ volume: name, path: "/data" }] });
    expect(await writer.files.readText("/data/seed")).toBe("from outside");
    await writer.files.write("/data/dir/file", "from inside");
    const reader = await createSandbox({ name: unique("reader") });
    await reader.attach({ volume: volume.id, path: "/mnt/data", readOnly: true });
    expect(await reader.files.readText("/mnt/data/dir/file")).toBe("from inside");
    await failure(reader.files.write("/mnt/data/x", "y"), ApiError);
    expect(reader.info.volumes).toMatchObject([{ path: "/mnt/data", readOnly: true }]);
    await failure(dormouse.volumes.delete(name), ConflictError);
    await reader.detach("/mnt/data");
    await writer.terminate();
    expect(new TextDecoder().decode(await dormouse.volumes.read(name, "/dir/file"))).toBe("from inside");
    expect((await dormouse.volumes.files(name, "/")).map((entry) => entry.name).sort()).toEqual(
      expect.arrayContaining(["dir", "seed"]),
    );
    expect(await dormouse.volumes.get(name)).toMatchObject({ id: volume.id, sizeBytes: 64 << 20, attachedTo: [] });
  });

  test("have unique names, and exist before they are attached", async () => {
    const name = unique("volume");
    await dormouse.volumes.create({ name });
    await failure(dormouse.volumes.create({ name }), ConflictError);
    expect((await dormouse.volumes.list().toArray()).map((it) => it.name)).toContain(name);
    await dormouse.volumes.delete(name);
    await failure(dormouse.volumes.get(name), NotFoundError);
    await failure(dormouse.volumes.create({ name: "" }), InvalidArgumentError);
    await failure(dormouse.sandboxes.create({ image: "base", volumes: [{ volume: name, path: "/x" }] }), NotFoundError);
  });
});

describe("images", () => {
  test("are listed and found by tag and digest", async () => {
    const base = await dormouse.images.get("base");
    expect(base.tags).toContain("base");
    expect((await dormouse.images.get(base.digest.slice(0, 12))).digest).toBe(base.digest);
    expect((await dormouse.images.list().toArray()).map(({ digest }) => digest)).toContain(base.digest);
    await failure(dormouse.images.get("unknown"), NotFoundError);
  });

  test("are uploaded, downloaded and deleted", async () => {
    const sandbox = await createSandbox();
    await sandbox.exec("mkdir -p /root/fs/etc && echo tiny > /root/fs/etc/name", { check: true });
    const tag = unique("tiny");
    const stages: string[] = [];
    const image = await dormouse.images.upload(sandbox.files.readArchive("/root/fs"), {
      tag,
      onProgress: ({ stage }) => stages.push(stage),
    });
    cleanUp(() => dormouse.images.delete(tag).catch(() => undefined));
    expect(image.tags).toEqual([tag]);
    let length = 0;
    for await (const piece of await dormouse.images.download(tag)) length += piece.length;
    expect(length).toBeGreaterThan(512);
    await dormouse.images.delete(tag);
    await failure(dormouse.images.get(tag), NotFoundError);
    await failure(dormouse.images.upload("not an archive"), ApiError);
  });

  test("are composed of a snapshot", async () => {
    const sandbox = await createSandbox({ name: unique("compose") });
    await sandbox.files.write("/made", "here");
    const snapshot = await sandbox.checkpoint();
    const tag = unique("composed");
    const image = await dormouse.images.compose({
      snapshot: snapshot.id,
      tag,
      config: { env: ["COLOUR=red"], directory: "/tmp" },
    });
    cleanUp(() => dormouse.images.delete(tag));
    await dormouse.snapshots.delete(snapshot.id);
    expect(image.config?.env).toContain("COLOUR=red");
    const made = await createSandbox({ image: tag });
    expect((await made.exec("cat /made; echo; echo $COLOUR; pwd")).stdout).toBe("here\nred\n/tmp\n");
  });

  test("of the host's paths are only for the socket", async () => {
    await failure(dormouse.images.import("/tmp/x.tar"), ForbiddenError);
    await failure(dormouse.images.export("base", "/tmp/x.tar"), ForbiddenError);
  });

  test("of a registry that does not answer are an error", async () => {
    await failure(dormouse.images.pull("127.0.0.1:1/x:1", { insecure: true }), ApiError);
  });
});

describe("builds", () => {
  test("run steps with a context, and report their log", async () => {
    const sandbox = await createSandbox();
    await sandbox.files.write("/context/greeting", "hello\n");
    const pieces: Uint8Array[] = [];
    for await (const piece of sandbox.files.readArchive("/context")) pieces.push(piece);
    const archive = new Uint8Array(await new Blob(pieces as BlobPart[]).arrayBuffer());
    const { hash } = await dormouse.builds.uploadContext(archive);
    expect((await dormouse.builds.context(hash)).hash).toBe(hash);
    const tag = unique("built");
    const started = await dormouse.builds.create({
      from: "base",
      context: hash,
      tag,
      steps: [{ copy: { from: ["greeting"], to: "/greeting" } }, { run: "echo building; cat /greeting > /made" }],
    });
    const lines: string[] = [];
    for await (const line of dormouse.builds.logs(started.id)) lines.push(line.text);
    expect(lines.join("\n")).toContain("building");
    const build = await dormouse.builds.wait(started.id);
    // The results of steps are kept for builds with the same steps.
    cleanUp(async () => {
      for (const { snapshot } of [...build.steps].reverse())
        if (snapshot) await dormouse.snapshots.delete(snapshot, { whenFree: true });
    });
    expect(build).toMatchObject({ state: "succeeded", tag });
    cleanUp(() => dormouse.images.delete(tag));
    expect((await dormouse.builds.list().toArray()).map(({ id }) => id)).toContain(started.id);
    expect((await (await createSandbox({ image: tag })).exec("cat /made")).stdout).toBe("hello\n");
  });

  test("that fail are a result, and can be cancelled", async () => {
    const failed = await dormouse.builds.create({ from: "base", steps: [{ run: "exit 9" }] });
    expect(await dormouse.builds.wait(failed.id)).toMatchObject({ state: "failed", failure: { exitCode: 9 } });
    const long = await dormouse.builds.create({ from: "base", steps: [{ run: "sleep 600" }] });
    await dormouse.builds.cancel(long.id);
    expect((await dormouse.builds.wait(long.id)).state).toBe("cancelled");
    await failure(dormouse.builds.get("unknown"), ApiError);
  });
});

describe("templates", () => {
  test("are created, tagged and used", async () => {
    const name = unique("template");
    const template = await dormouse.templates.create({ name, image: "base", env: { COLOUR: "blue" }, tags: ["v1"] });
    cleanUp(() => dormouse.templates.delete(name));
    expect(template.tags["v1"]).toMatchObject({ env: ["COLOUR"] });
    await dormouse.templates.tag(name, ["stable"], { from: "v1" });
    expect(Object.keys((await dormouse.templates.get(name)).tags)).toEqual(expect.arrayContaining(["stable", "v1"]));
    const sandbox = await createSandbox({ template: `${name}:stable` });
    expect((await sandbox.exec("echo $COLOUR")).stdout).toBe("blue\n");
    await dormouse.templates.delete(name, { tag: "v1" });
    expect((await dormouse.templates.list().toArray()).find((it) => it.name === name)?.tags).not.toHaveProperty("v1");
  });
});

describe("pools", () => {
  test("keep sandboxes ready to claim", async () => {
    const name = unique("pool");
    const pool = await dormouse.pools.create({ name, image: "base", ready: 1, labels: { pool: name } });
    cleanUp(() => dormouse.pools.delete(name));
    expect(pool).toMatchObject({ name, ready: 1 });
    const claimed = await dormouse.pools.claim(name, {
      name: unique("claimed"),
      maxWaitMs: 30_000,
      wake: "any",
      labels: { job: "1" },
    });
    cleanUp(() => claimed.terminate());
    expect(claimed.info).toMatchObject({ state: "running", wake: "any", labels: { job: "1" } });
    expect((await claimed.exec("echo ready")).stdout).toBe("ready\n");
    expect((await dormouse.pools.resize(name, { ready: 0 })).ready).toBe(0);
    expect((await dormouse.pools.get(name)).claimed).toBe(1);
    expect((await dormouse.pools.list().toArray()).map((it) => it.name)).toContain(name);
    await until("no sandbox waits", async () => (await dormouse.pools.get(name)).waiting === 0);
    await failure(dormouse.pools.claim(name), ApiError);
  });
});

describe("access", () => {
  test("keys are shown once, and have a scope", async () => {
    const sandbox = await createSandbox({ name: unique("own") });
    const created = await dormouse.keys.create({ name: "reader", scope: "read_only", lifetimeMs: 3_600_000 });
    cleanUp(() => dormouse.keys.delete(created.id).catch(() => undefined));
    const reader = new Dormouse({ apiKey: created.key });
    expect((await reader.sandboxes.connect(sandbox.id)).state).toBe("running");
    await failure((await reader.sandboxes.connect(sandbox.id)).exec("true"), ForbiddenError);
    const own = await dormouse.keys.create({ scope: "sandbox", sandbox: sandbox.id });
    cleanUp(() => dormouse.keys.delete(own.id));
    expect(
      (await (await new Dormouse({ apiKey: own.key }).sandboxes.connect(sandbox.id)).exec("echo mine")).stdout,
    ).toBe("mine\n");
    const listed = await dormouse.keys.list().toArray();
    expect(listed.map(({ id }) => id)).toEqual(expect.arrayContaining([created.id, own.id]));
    expect(JSON.stringify(listed)).not.toContain(created.key);
    await dormouse.keys.delete(created.id);
    await failure(reader.info(), UnauthorizedError);
  });

  test("a key that was made twice is not shown twice", async () => {
    const idempotencyKey = crypto.randomUUID();
    const created = await dormouse.keys.create({}, { idempotencyKey });
    cleanUp(() => dormouse.keys.delete(created.id));
    await failure(dormouse.keys.create({}, { idempotencyKey }), ConflictError);
  });

  test("projects separate everything", async () => {
    const name = unique("team");
    await dormouse.projects.create({ name, budgets: { sandboxes: 1 } });
    cleanUp(() => dormouse.projects.delete(name));
    const team = new Dormouse({ project: name });
    expect((await team.info()).project).toBe(name);
    const sandbox = await team.sandboxes.create({ image: "base" });
    await failure(dormouse.sandboxes.connect(sandbox.id), NotFoundError);
    await failure(team.sandboxes.create({ image: "base" }), ApiError);
    expect((await dormouse.projects.get(name)).used.sandboxes).toBe(1);
    expect((await dormouse.projects.setBudgets(name, { sandboxes: 5 })).budgets.sandboxes).toBe(5);
    expect((await dormouse.projects.list().toArray()).map((it) => it.name)).toContain(name);
    await failure(dormouse.projects.delete(name), ConflictError);
    await sandbox.terminate();
  });

  test("secrets are never returned", async () => {
    const name = unique("SECRET").replaceAll("-", "_").toUpperCase();
    await dormouse.secrets.set(name, "canary-value");
    cleanUp(() => dormouse.secrets.delete(name).catch(() => undefined));
    expect(JSON.stringify(await dormouse.secrets.get(name))).not.toContain("canary-value");
    expect((await dormouse.secrets.list().toArray()).map((it) => it.name)).toContain(name);
    await createSandbox({
      egress: {
        ordered: {
          rules: [],
          default: "public",
          headers: [{ host: "api.example.com", name: "Authorization", value: `Bearer {${name}}` }],
        },
      },
    });
    expect((await dormouse.secrets.get(name)).usedBy).toBe(1);
    await dormouse.secrets.delete(name);
    await failure(dormouse.secrets.get(name), NotFoundError);
    await failure(dormouse.secrets.set(name, "two\nlines"), InvalidArgumentError);
  });

  test("webhooks have a secret, and are replayed", async () => {
    const webhook = await dormouse.webhooks.create({ url: "http://hooks.example.com/dormouse", kinds: ["created"] });
    cleanUp(() => dormouse.webhooks.delete(webhook.id));
    expect(webhook.secret).toMatch(/.{16}/);
    const listed = (await dormouse.webhooks.list().toArray()).find(({ id }) => id === webhook.id);
    expect(listed).toMatchObject({ kinds: ["created"] });
    expect(listed?.secret ?? null).toBeNull();
    expect((await dormouse.webhooks.replay(webhook.id, 0)).id).toBe(webhook.id);
    await failure(dormouse.webhooks.create({ url: "not a url" }), InvalidArgumentError);
  });

  test("operations that do not exist are not found", async () => {
    await failure(dormouse.operations.get("a".repeat(20)), NotFoundError);
    await failure(dormouse.events.list({ after: -1 }).toArray(), InvalidArgumentError);
  });
});
