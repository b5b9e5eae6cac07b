/** The keys of the layer, which are the keys of environments. They never change. */

import {
  computeSandboxKey,
  computeWorkspaceHash,
  createSecrets,
  defineSandbox,
  defineWorkspace,
  githubRepo,
} from "@tanstack/ai-sandbox";
import { describe, expect, test } from "vitest";

import { CAPABILITIES } from "../src/capabilities.js";
import { dormouseSandbox } from "../src/index.js";

const app = { source: githubRepo({ repo: "owner/app" }), setup: ["corepack enable", "pnpm install"] };
const none = { source: { type: "none" } } as const;

describe("the hash of a workspace", () => {
  test.each([
    ["nothing", undefined, "2f9912c6e23c62b5"],
    ["an empty source", none, "e9d495cc537319ad"],
    ["a repository with setup", app, "b3f9b72002187e45"],
    ["secrets beside them", { ...app, secrets: createSecrets({ TOKEN: "x" }) }, "b3f9b72002187e45"],
    ["a builder of the setup", { ...none, setup: (): void => undefined }, "993818ed9bcfe135"],
    ["a repository and a builder", { source: app.source, setup: (): void => undefined }, "b2e26e4d17217a27"],
  ])("of %s", (_, workspace, hash) => {
    expect(computeWorkspaceHash(workspace && defineWorkspace(workspace))).toBe(hash);
  });
});

describe("the key of a sandbox", () => {
  const docker = { threadId: "t1", sandboxId: "repo-agent", providerName: "docker" };
  const plain = { sandboxId: "s", providerName: "p" };
  const agent = { sandboxId: "repo-agent", providerName: "docker" };

  test.each([
    ["of a thread", { ...docker, workspace: app }, "0ad2b56eb7ad29f7"],
    ["of a tenant", { ...docker, workspace: app, tenant: { userId: "u1" } }, "546c807f78fc8efd"],
    [
      "of a tenant as the middleware passes it",
      { ...docker, workspace: app, tenant: { userId: "u1", orgId: undefined } as object },
      "f4f9c686725c3305",
    ],
    ["without a workspace", { ...plain, threadId: "t1" }, "607bcbce8297aa8f"],
    ["of a thread in Unicode", { ...plain, threadId: "té中" }, "275d1fa70c37d3b3"],
    ["of a thread that collides", { ...agent, threadId: "8a541e40-3b7f-7dd0-48d2-b9b0c807ed86" }, "ab6b395954a43fcf"],
    [
      "of the thread that it collides with",
      { ...agent, threadId: "bed43630-d2e0-742b-48da-9d8ccaab0c65" },
      "ab6b395954a43fcf",
    ],
  ])("%s", (_, input, key) => {
    expect(computeSandboxKey(input)).toBe(key);
  });

  test("is the one that definitions compute for the provider", () => {
    const provider = dormouseSandbox();
    const definition = defineSandbox({ id: "repo-agent", provider });
    const key = definition.key({ threadId: "t1", runId: "r1" });
    expect(key).toBe(computeSandboxKey({ threadId: "t1", sandboxId: "repo-agent", providerName: "dormouse" }));
  });
});

describe("the provider", () => {
  test("has every capability", () => {
    const provider = dormouseSandbox();
    expect(provider.name).toBe("dormouse");
    expect(provider.capabilities()).toEqual(Object.fromEntries(Object.keys(CAPABILITIES).map((name) => [name, true])));
    expect(Object.keys(provider.capabilities())).toHaveLength(11);
  });

  test("refuses a workspace root that is not absolute", () => {
    expect(() => dormouseSandbox({ workspaceRoot: "workspace" })).toThrow(TypeError);
  });
});
