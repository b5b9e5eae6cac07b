import { describe, expect, test } from "vitest";
import {
  AuthenticationError,
  InvalidArgumentError,
  Sandbox,
  SandboxError,
  Secret,
  isOlder,
} from "../support/client.ts";
import { bootId, create, failure, output, shared, unique } from "../support/guest.ts";

const common = shared();

async function lifetimeSecs(sandbox: Sandbox): Promise<number> {
  const info = await sandbox.getInfo();
  return (info.endAt.getTime() - info.startedAt.getTime()) / 1000;
}

describe("a new sandbox", () => {
  test("runs the template base", async () => {
    const sandbox = await create();
    const info = await sandbox.getInfo();
    expect(sandbox.sandboxId).toMatch(/^[a-z0-9]+$/);
    expect(info).toMatchObject({ sandboxId: sandbox.sandboxId, name: "base", state: "running" });
    expect(info.cpuCount).toBeGreaterThanOrEqual(1);
    expect(info.memoryMB).toBeGreaterThanOrEqual(128);
    expect(await output(sandbox, "echo ready")).toBe("ready");
  });

  test("can be of a template by its name, its id and its default tag", async () => {
    const { templateId } = await common.sandbox.getInfo();
    const named = await Sandbox.create({ template: "base" });
    expect((await named.getInfo()).templateId).toBe(templateId);
    await named.kill();
    for (const template of ["base", templateId, "base:default"]) {
      expect((await (await create({ template })).getInfo()).templateId).toBe(templateId);
    }
  });

  test("lives for five minutes unless told otherwise", async () => {
    const sandbox = await Sandbox.create();
    try {
      expect(Math.abs((await lifetimeSecs(sandbox)) - 300)).toBeLessThan(5);
    } finally {
      await sandbox.kill();
    }
  });

  test("lives as long as its timeout", async () => {
    expect(Math.abs((await lifetimeSecs(await create({ timeoutMs: 77_000 }))) - 77)).toBeLessThan(2);
  });

  test("has its metadata", async () => {
    const metadata = { user: "one", purpose: "with spaces & signs = ü", empty: "" };
    expect((await (await create({ metadata })).getInfo()).metadata).toEqual(metadata);
  });

  test("has its variables in every command", async () => {
    const sandbox = await create({ envs: { FIRST: "one", SECOND: "with 'quotes' and $signs" } });
    expect(await output(sandbox, 'echo "$FIRST, $SECOND"')).toBe("one, with 'quotes' and $signs");
    expect(await output(sandbox, "echo $FIRST", { envs: { FIRST: "command" } })).toBe("command");
  });

  test.each([true, false])("accepts the option secure: %s", async (secure) => {
    expect(await output(await create({ secure }), "echo ready")).toBe("ready");
  });

  test.each([true, false])("shows its access to the internet: %s", async (allowInternetAccess) => {
    expect((await (await create({ allowInternetAccess })).getInfo()).allowInternetAccess).toBe(allowInternetAccess);
  });

  test.each([
    ["kill", "kill"],
    ["pause", "pause"],
    [{ action: "kill" }, "kill"],
    [{ action: "pause" }, "pause"],
    [{ action: "pause", keepMemory: true }, "pause"],
    [{ action: "pause", keepMemory: false }, "pause"],
  ] as const)("shows what happens on timeout: %o", async (onTimeout, action) => {
    const info = await (await create({ lifecycle: { onTimeout } })).getInfo();
    expect(info.lifecycle).toEqual({ onTimeout: action, autoResume: false });
  });

  test.each([true, false])("shows whether it resumes by itself: %s", async (autoResume) => {
    const info = await (await create({ lifecycle: { onTimeout: "pause", autoResume } })).getInfo();
    expect(info.lifecycle).toEqual({ onTimeout: "pause", autoResume });
  });

  test("tells a logger of its requests", async () => {
    const said: string[] = [];
    const log = (...words: unknown[]) => void said.push(JSON.stringify(words));
    const logger = { debug: log, info: log, warn: log, error: log };
    if (isOlder) {
      // With a logger, that client refuses every answer that it gets in Node.js 24.
      const asked = Sandbox.getInfo(common.sandbox.sandboxId, { logger });
      expect((await failure(asked)).message).toContain("must return new Response()");
      return;
    }
    const sandbox = await create({ logger });
    await output(sandbox, "true");
    expect(said.length).toBeGreaterThan(0);
  });

  test("boots by itself", async () => {
    expect(await bootId(await create())).not.toBe(await bootId(common.sandbox));
  });
});

describe("creating is refused", () => {
  test.each([0, -1000, -(2 ** 31)])("with a timeout of %d ms", async (timeoutMs) => {
    const error = await failure(Sandbox.create({ timeoutMs }));
    expect(error).toBeInstanceOf(SandboxError);
    expect(error.message).toContain("400: Timeout must be greater than 0");
  });

  test.each([1e18, Number.MAX_SAFE_INTEGER, 1e30])("with a timeout of %d ms, which is centuries", async (timeoutMs) => {
    expect((await failure(Sandbox.create({ timeoutMs }))).message).toMatch(/^400: /);
  });

  test("for an unknown template, which is named", async () => {
    const name = unique();
    expect((await failure(Sandbox.create(name))).message).toContain(`404: template '${name}' not found`);
  });

  test("for an unknown tag, which is named", async () => {
    const error = await failure(Sandbox.create("base:none"));
    expect(error.message).toContain("404: tag 'none' does not exist for template 'base'");
  });

  test.each(["with space", "a/b/c", "../base", "base:", ":tag", "ü"])("for the name '%s'", async (name) => {
    expect((await failure(Sandbox.create(name))).message).toMatch(/^40[04]: /);
  });

  test.each(["envs", "metadata"])("for values of %s that are no texts", async (field) => {
    const opts = { [field]: { NUMBER: 1 } } as object;
    expect((await failure(Sandbox.create(opts))).message).toMatch(/^400: /);
  });

  test("with a wrong key", async () => {
    const error = await failure(Sandbox.create({ apiKey: `e2b_${"0".repeat(40)}` }));
    expect(error).toBeInstanceOf(AuthenticationError);
  });

  test("for files alone together with resuming by itself", async () => {
    const lifecycle = { onTimeout: { action: "pause", keepMemory: false }, autoResume: true } as const;
    expect(await failure(Sandbox.create({ lifecycle }))).toBeInstanceOf(InvalidArgumentError);
  });

  test("for resuming by itself without pausing", async () => {
    const lifecycle = { onTimeout: "kill", autoResume: true } as const;
    expect(await failure(Sandbox.create({ lifecycle }))).toBeInstanceOf(InvalidArgumentError);
  });

  test("for identities of workloads, by name", async () => {
    const token = Secret.iamToken({ audience: "example", tokenType: "JWT-SVID" });
    expect((await failure(Sandbox.create({ iam: { tokens: { cloud: token } } }))).message).toContain("iam");
  });
});
