/** Whole runs of `chat()` with `withSandbox`, with a scripted adapter in place of a model. */

import { chat, type StreamChunk, type TextOptions } from "@tanstack/ai";
import {
  createSecrets,
  defineSandbox,
  defineSandboxPolicy,
  defineWorkspace,
  getSandbox,
  type SandboxConfig,
  type SandboxDefinition,
  type SandboxHandle,
  withSandbox,
} from "@tanstack/ai-sandbox";
import { describe, expect, test } from "vitest";

import { dormouse, provider, unique, until } from "./support.js";

type Script = (sandbox: SandboxHandle) => Promise<string>;

/** A model that does what the script says in the sandbox of the run. */
function scripted(script: Script) {
  return {
    kind: "text",
    name: "scripted",
    model: "scripted",
    "~types": {} as never,
    async *chatStream({ capabilities, runId = "r", threadId = "t" }: TextOptions<object>): AsyncIterable<StreamChunk> {
      const chunk = (fields: object): StreamChunk =>
        ({ runId, threadId, timestamp: Date.now(), ...fields }) as StreamChunk;
      yield chunk({ type: "RUN_STARTED" });
      const delta = await script(getSandbox(capabilities!));
      yield chunk({ type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" });
      yield chunk({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta });
      yield chunk({ type: "TEXT_MESSAGE_END", messageId: "m" });
      yield chunk({ type: "RUN_FINISHED", finishReason: "stop" });
    },
    structuredOutput: () => Promise.reject(new Error("not scripted")),
  } as const;
}

interface Run {
  threadId?: string;
  context?: object;
  abortController?: AbortController;
}

/** Runs the script as one turn of a conversation, and returns its chunks. */
async function run(definition: SandboxDefinition, script: Script, options: Run = {}): Promise<StreamChunk[]> {
  const stream = chat({
    adapter: scripted(script),
    messages: [{ role: "user", content: "go" }],
    middleware: [withSandbox(definition)],
    threadId: unique("thread"),
    ...options,
  } as never) as unknown as AsyncIterable<StreamChunk>;
  const chunks: StreamChunk[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const empty = defineWorkspace({ source: { type: "none" } });

const define = (config: Partial<SandboxConfig> = {}): SandboxDefinition =>
  // The middleware of 0.2.4 needs a workspace.
  defineSandbox({ id: "agent", provider: provider(), workspace: empty, lifecycle: { snapshot: "none" }, ...config });

const said = (chunks: StreamChunk[]): string =>
  chunks.map((chunk) => (chunk.type === "TEXT_MESSAGE_CONTENT" ? chunk.delta : "")).join("");

const state = async (id: string): Promise<string> => (await dormouse.sandboxes.connect(id)).state;

describe("a run", () => {
  test("works in a sandbox, which its thread keeps", async () => {
    const definition = define();
    const threadId = unique("thread");
    const first = await run(
      definition,
      async ({ process, id }) => `${(await process.exec("echo 1 > turn; pwd")).stdout}${id}`,
      { threadId },
    );
    const second = await run(definition, async ({ process, id }) => `${(await process.exec("cat turn")).stdout}${id}`, {
      threadId,
    });
    const id = said(first).split("\n")[1];
    expect(said(first)).toBe(`/workspace\n${id}`);
    expect(said(second)).toBe(`1\n${id}`);
  });

  test("of another user has another sandbox", async () => {
    const definition = define();
    const threadId = unique("thread");
    const script: Script = async ({ id }) => id;
    const ids = new Set<string>();
    for (const userId of ["u1", "u2", "u1"])
      ids.add(said(await run(definition, script, { threadId, context: { userId } })));
    expect(ids.size).toBe(2);
  });

  test("at the same time as another of its thread has the same sandbox", async () => {
    const definition = define();
    const threadId = unique("thread");
    const script: Script = async ({ id, process }) => (await process.exec(`echo ${id}`)).stdout;
    const [a, b] = await Promise.all([run(definition, script, { threadId }), run(definition, script, { threadId })]);
    expect(said(a!)).toBe(said(b!));
  });

  test("reports the files that it changes, without polling", async () => {
    const seen: string[] = [];
    const hooks = {
      onFileCreate: ({ path }: { path: string }) => void seen.push(`create ${path}`),
      onFileChange: ({ path }: { path: string }) => void seen.push(`change ${path}`),
      onFileDelete: ({ path }: { path: string }) => void seen.push(`delete ${path}`),
    };
    const workspace = defineWorkspace({ source: { type: "none" }, setup: ["echo old > existing"] });
    await run(define({ hooks, workspace }), async ({ fs }) => {
      await fs.write("/workspace/src/new.ts", "1");
      await until("create", async () => seen.includes("create /workspace/src/new.ts"));
      await fs.write("/workspace/existing", "changed");
      await until("change", async () => seen.includes("change /workspace/existing"));
      await fs.remove("/workspace/src/new.ts");
      await until("delete", async () => seen.includes("delete /workspace/src/new.ts"));
      return "done";
    });
    expect(seen.some((event) => event.endsWith("/workspace/src"))).toBe(false);
  });

  test("has diffs of a repository", async () => {
    const workspace = defineWorkspace({
      source: { type: "none" },
      setup: [
        "git init -q . && git config user.email a@b && git config user.name a && echo one > f && git add . && git commit -qm 1",
      ],
    });
    const diffs: string[] = [];
    const hooks = { onFile: async (event: { diff: () => Promise<string> }) => void diffs.push(await event.diff()) };
    await run(define({ workspace, hooks }), async ({ fs }) => {
      await fs.write("/workspace/f", "two\n");
      await until("a diff", async () => diffs.some((diff) => diff.includes("-one\n+two")));
      return "done";
    });
  });

  test("has secrets and hooks of the sandbox", async () => {
    const ready: string[] = [];
    const workspace = defineWorkspace({ source: { type: "none" }, secrets: createSecrets({ TOKEN: "s3cret" }) });
    const hooks = { onReady: ({ id }: SandboxHandle) => void ready.push(id) };
    const chunks = await run(
      define({ workspace, hooks }),
      async ({ process, id }) => `${id} ${(await process.exec("echo $TOKEN")).stdout}`,
    );
    expect(said(chunks)).toBe(`${ready[0]} s3cret\n`);
  });

  test("with a policy that denies the network has none", async () => {
    const policy = defineSandboxPolicy({ capabilities: { network: "deny" } });
    const chunks = await run(define({ policy }), async ({ process }) => {
      const { exitCode } = await process.exec("python3 -c 'import socket; socket.getaddrinfo(\"example.com\", 80)'");
      return String(exitCode);
    });
    expect(said(chunks)).not.toBe("0");
  });
});

describe("the end of a run", () => {
  test("keeps the sandbox by default", async () => {
    const id = said(await run(define(), async ({ id }) => id));
    expect(await state(id)).toBe("running");
  });

  test("takes a snapshot if it should", async () => {
    const definition = define({ lifecycle: { snapshot: "after-run" } });
    const id = said(await run(definition, async ({ id }) => id));
    const snapshots = await dormouse.snapshots.list({ source: id }).toArray();
    expect(snapshots.map(({ labels }) => labels["label"])).toEqual([expect.stringMatching(/^after-run-/)]);
  });

  test("destroys the sandbox if it should", async () => {
    let destroyed = 0;
    const hooks = { onDestroy: () => void destroyed++ };
    const definition = define({ lifecycle: { snapshot: "none", destroyOnComplete: true }, hooks });
    const id = said(await run(definition, async ({ id }) => id));
    expect([await state(id), destroyed]).toEqual(["terminated", 1]);
  });

  test("destroys the sandbox of a run that was aborted", async () => {
    const abortController = new AbortController();
    let id = "";
    const script: Script = async (sandbox) => {
      id = sandbox.id;
      abortController.abort();
      return "aborted";
    };
    await run(define(), script, { abortController }).catch(() => undefined);
    await until("it is terminated", async () => (await state(id)) === "terminated");
  });

  test.each([
    [true, "terminated"],
    [false, "running"],
  ])("after an error, with destroyOnComplete %s", async (destroyOnComplete, expected) => {
    let id = "";
    const definition = define({ lifecycle: { snapshot: "none", destroyOnComplete } });
    const script: Script = async (sandbox) => {
      id = sandbox.id;
      throw new Error("the model failed");
    };
    await run(definition, script).catch(() => undefined);
    expect(await state(id)).toBe(expected);
  });
});
