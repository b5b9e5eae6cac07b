import { createServer, connect as dial, type Server } from "node:net";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  AuthenticationError,
  ConnectionConfig,
  E2B,
  Sandbox,
  Secret,
  Template,
  Volume,
  isOlder,
} from "../support/client.ts";
import { allItems, create, failure, output, shared, unique, variable } from "../support/guest.ts";

const common = shared();

afterEach(() => void vi.unstubAllEnvs());

/** A proxy that tunnels, and counts its tunnels. */
async function proxy(): Promise<{ url: string; tunnels: string[]; server: Server }> {
  const tunnels: string[] = [];
  const server = createServer((client) => {
    client.once("data", (head) => {
      const target = /^CONNECT (\S+):(\d+) /.exec(head.toString());
      if (target === null) return client.destroy();
      tunnels.push(target[0]!);
      const upstream = dial(Number(target[2]), target[1], () => {
        client.write("HTTP/1.1 200 OK\r\n\r\n");
        client.pipe(upstream).pipe(client);
      });
      for (const end of [client, upstream]) end.on("error", () => (client.destroy(), upstream.destroy()));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address() as { port: number };
  return { url: `http://127.0.0.1:${address.port}`, tunnels, server };
}

describe("options of the connection", () => {
  const given = () => ({
    apiKey: variable("E2B_API_KEY"),
    apiUrl: variable("E2B_API_URL"),
    sandboxUrl: variable("E2B_SANDBOX_URL"),
  });

  function forget(): void {
    for (const name of ["E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL"]) vi.stubEnv(name, "");
  }

  test("can be given to a call", async () => {
    const opts = given();
    forget();
    const sandbox = await create({ ...opts, debug: false, domain: "sandboxes.example.com", requestTimeoutMs: 60_000 });
    expect(await output(sandbox, "echo ready")).toBe("ready");
    expect(await (await Sandbox.connect(sandbox.sandboxId, opts)).isRunning()).toBe(true);
  });

  test("are carried by a client object", async () => {
    const client = new E2B(given());
    forget();
    const sandbox = await client.Sandbox.create();
    try {
      expect(await output(sandbox, "echo ready")).toBe("ready");
      expect(Array.isArray(await client.Volume.list())).toBe(true);
      expect(await client.Template.exists("base")).toBe(true);
    } finally {
      await sandbox.kill();
    }
  });

  test("name a missing key", async () => {
    forget();
    expect((await failure(Sandbox.create())).message).toContain("API key is required");
  });

  test("add headers to requests", async () => {
    const sandbox = await create({ headers: { "X-Case": "one" }, apiHeaders: { "X-Other": "two" } });
    expect(await output(sandbox, "echo ready")).toBe("ready");
  });

  test("can turn off the check of the form of keys", async () => {
    const opts = { apiKey: "another form", validateApiKey: false };
    expect(await failure(Sandbox.list(opts).nextItems())).toBeInstanceOf(AuthenticationError);
  });

  test.runIf(!isOlder)("can have a number of retries", async () => {
    expect((await Sandbox.getInfo(common.sandbox.sandboxId, { retries: 1 })).sandboxId).toBe(common.sandbox.sandboxId);
  });

  test("can give up a request", async () => {
    const server = createServer(() => {});
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const apiUrl = `http://127.0.0.1:${(server.address() as { port: number }).port}`;
    await failure(Sandbox.create({ apiUrl, requestTimeoutMs: 200 }));
    const given = new AbortController();
    expect((await Sandbox.getInfo(common.sandbox.sandboxId, { signal: given.signal })).state).toBe("running");
    const ended = failure(Sandbox.create({ apiUrl, signal: given.signal }));
    given.abort();
    expect(await ended).toBeInstanceOf(Error);
    server.close();
  });

  test("can name a proxy", async () => {
    const { url, tunnels, server } = await proxy();
    const sandbox = await create({ proxy: url });
    expect(await output(sandbox, "echo through")).toBe("through");
    expect(tunnels.length).toBeGreaterThan(0);
    const volume = await Volume.create(unique());
    await volume.writeFile("/note", "through", { proxy: url });
    await Volume.destroy(volume.volumeId);
    server.close();
  });

  test("of the debug mode never ask the server", async () => {
    const sandbox = await Sandbox.create({ debug: true, apiUrl: "http://127.0.0.1:9" });
    expect([sandbox.sandboxId, sandbox.getHost(80)]).toEqual(["debug_sandbox_id", "localhost:80"]);
  });

  test("can be read", () => {
    const config = new ConnectionConfig({ ...given(), domain: "example.com" });
    const at = { sandboxDomain: "example.com", envdPort: 49983 };
    expect(config.getHost("abc", 80, "example.com")).toBe("80-abc.example.com");
    expect(config.getSandboxUrl("abc", at)).toBe(variable("E2B_SANDBOX_URL"));
    expect(config.getSandboxDirectUrl("abc", at)).toBe(variable("E2B_SANDBOX_URL"));
    expect(config.getSignal(1000, new AbortController().signal)).toBeInstanceOf(AbortSignal);
    expect(ConnectionConfig.mergeOpts({ apiKey: "a" }, { domain: "b" })).toMatchObject({ apiKey: "a", domain: "b" });
  });

  test("name an integration", async () => {
    ConnectionConfig.setIntegration("cases/1.0");
    expect(await output(await create(), "echo ready")).toBe("ready");
    ConnectionConfig.setIntegration(undefined);
  });
});

test.each([`e2b_${"f".repeat(40)}`, "e2b_0"])("the wrong key %s is refused by every call", async (apiKey) => {
  const { sandboxId } = common.sandbox;
  for (const call of [
    () => Sandbox.create({ apiKey }),
    () => Sandbox.connect(sandboxId, { apiKey }),
    () => Sandbox.getInfo(sandboxId, { apiKey }),
    () => Sandbox.kill(sandboxId, { apiKey }),
    () => Sandbox.pause(sandboxId, { apiKey }),
    () => Sandbox.setTimeout(sandboxId, 1000, { apiKey }),
    () => Sandbox.fork(sandboxId, { apiKey }),
    () => Sandbox.createSnapshot(sandboxId, { apiKey }),
    () => Sandbox.getMetrics(sandboxId, { apiKey }),
    () => Sandbox.updateNetwork(sandboxId, {}, { apiKey }),
    () => allItems(Sandbox.list({ apiKey })),
    () => allItems(Sandbox.listSnapshots({ apiKey })),
    () => Volume.list({ apiKey }),
    () => Template.exists("base", { apiKey }),
  ]) {
    expect(await failure(call())).toBeInstanceOf(AuthenticationError);
  }
  expect(await common.sandbox.isRunning()).toBe(true);
});

test("every method takes options of its own request", async () => {
  const opts = { requestTimeoutMs: 60_000 };
  const sandbox = await create();
  const { sandboxId } = sandbox;
  expect((await sandbox.getInfo(opts)).sandboxId).toBe(sandboxId);
  expect((await Sandbox.getFullInfo(sandboxId, opts)).sandboxId).toBe(sandboxId);
  await sandbox.getMetrics(opts);
  await Sandbox.getMetrics(sandboxId, opts);
  await sandbox.setTimeout(600_000, opts);
  await Sandbox.setTimeout(sandboxId, 600_000, opts);
  await sandbox.updateNetwork({}, opts);
  await Sandbox.updateNetwork(sandboxId, {}, opts);
  const first = await sandbox.createSnapshot(opts);
  const second = await Sandbox.createSnapshot(sandboxId, opts);
  expect((await sandbox.listSnapshots(opts).nextItems(opts)).length).toBe(2);
  await Sandbox.listSnapshots(opts).nextItems(opts);
  for (const { snapshotId } of [first, second]) expect(await Sandbox.deleteSnapshot(snapshotId, opts)).toBe(true);
  expect(await sandbox.pause(opts)).toBe(true);
  await sandbox.connect(opts);
  expect(await sandbox.betaPause(opts)).toBe(true);
  await Sandbox.connect(sandboxId, opts);
  expect(await Sandbox.pause(sandboxId, opts)).toBe(true);
  await Sandbox.connect(sandboxId, opts);
  await Sandbox.list(opts).nextItems(opts);
  for (const fork of await sandbox.fork(opts)) if (fork instanceof Sandbox) expect(await fork.kill(opts)).toBe(true);
  for (const fork of await Sandbox.fork(sandboxId, opts))
    if (fork instanceof Sandbox) await Sandbox.kill(fork.sandboxId, opts);
  const { volumeId } = await Volume.create(unique(), opts);
  const volume = await Volume.connect(volumeId, opts);
  await Volume.getInfo(volumeId, opts);
  await Volume.list(opts);
  await volume.makeDir("/dir", opts);
  await volume.writeFile("/dir/note", "text", opts);
  expect(await volume.readFile("/dir/note", opts)).toBe("text");
  await volume.list("/", opts);
  await volume.getInfo("/dir", opts);
  await volume.updateMetadata("/dir", { mode: 0o700 }, opts);
  expect(await volume.exists("/dir", opts)).toBe(true);
  await volume.remove("/dir", opts);
  expect(await Volume.destroy(volumeId, opts)).toBe(true);
  expect(await Template.exists("base", opts)).toBe(true);
  expect(await Template.aliasExists("base", opts)).toBe(true);
});

describe("secrets belong to E2B's cloud", () => {
  test.each([
    ["create", () => Secret.create("name", "value", { metadata: { a: "b" } })],
    ["getInfo", () => Secret.getInfo("name", { requestTimeoutMs: 60_000 })],
    ["update", () => Secret.update("name", "value", { metadata: { a: "b" } })],
    ["list", () => Secret.list({ limit: 1, nextToken: "x" }).nextItems({ requestTimeoutMs: 60_000 })],
    [
      "exists",
      () =>
        Secret.exists("name", { requestTimeoutMs: 60_000 }).then((found) =>
          found ? "found" : Promise.reject(new Error("denied")),
        ),
    ],
    [
      "destroy",
      () =>
        Secret.destroy("name", { requestTimeoutMs: 60_000 }).then((gone) =>
          gone ? "gone" : Promise.reject(new Error("denied")),
        ),
    ],
  ] as [string, () => Promise<unknown>][])("and Secret.%s is refused", async (_, call) => {
    expect((await failure(call())).message).toMatch(/secrets|not found|denied/);
  });

  test("and placeholders are made without a server", () => {
    expect(Secret.fill("name")).toContain("name");
    expect([Secret.list().hasNext, Secret.list().nextToken]).toEqual([true, undefined]);
  });
});

describe("the gateway for MCP", () => {
  const mcp = { "github/example/server": { runCmd: "run", installCmd: "install", envs: { A: "b" } } } as const;

  test("fails as documented in a template without it", async () => {
    const metadata = { case: unique() };
    const error = await failure(Sandbox.create("base", { mcp, metadata }));
    expect(error.message).toContain("Failed to start MCP gateway");
    expect(await allItems(Sandbox.list({ query: { metadata } }))).toEqual([]);
  });

  test("needs its template", async () => {
    expect((await failure(Sandbox.create({ mcp }))).message).toContain("404: template 'mcp-gateway' not found");
  });

  test("is a program that is started with the servers", async () => {
    const source = await create();
    const script = '#!/bin/bash\nmkdir -p /etc/mcp-gateway\necho "$@" > /etc/mcp-gateway/arguments\n';
    await source.files.write("/usr/local/bin/mcp-gateway", script, { user: "root" });
    await source.commands.run("chmod 755 /usr/local/bin/mcp-gateway", { user: "root" });
    const { snapshotId } = await source.createSnapshot();
    const sandbox = await create({ template: snapshotId, mcp });
    expect(await sandbox.files.read("/etc/mcp-gateway/arguments", { user: "root" })).toContain("github/example/server");
    await Sandbox.deleteSnapshot(snapshotId);
  });

  test("has a URL and a token", async () => {
    expect(common.sandbox.getMcpUrl()).toBe(`https://${common.sandbox.getHost(50005)}/mcp`);
    await common.sandbox.commands.run("mkdir -p /etc/mcp-gateway; echo -n token > /etc/mcp-gateway/.token", {
      user: "root",
    });
    expect(await common.sandbox.getMcpToken()).toBe("token");
  });
});
