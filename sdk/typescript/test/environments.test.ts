/** Environments with a real daemon: which sandbox a caller gets, and what happens when it is made. */

import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

import { describe, expect, test } from "vitest";

import {
  ApiError,
  ConflictError,
  type EnsureEvent,
  type EnsureRequest,
  InvalidArgumentError,
  NotFoundError,
  SetupError,
} from "@dormouse/sdk";

import { throughProxy } from "./proxy.js";
import { cleanUp, createSandbox, dormouse, failure, unique, until } from "./support.js";

const { environments } = dormouse;

/** The request for an environment whose key and setup no other test has. It is removed after the test. */
function asked(request: Omit<EnsureRequest, "key"> = {}): EnsureRequest & { key: string } {
  const key = unique("env");
  cleanUp(() => environments.remove(key));
  return { key, image: "base", resources: { memoryBytes: 128 << 20 }, setup: [`: ${key}`], ...request };
}

/** A setup that no other test has, and that leaves a line each time it runs. */
const counted = (): string[] => [`echo ${unique("run")} >> /root/runs`];
const RUNS = "wc -l < /root/runs";

describe("the way to a sandbox", () => {
  test("is to create it and set it up, if there is nothing", async () => {
    const request = asked({ setup: counted() });
    const made = await environments.ensure(request);
    expect(made).toMatchObject({ by: "created", joined: false, lost: [], drift: [] });
    expect(made.considered.map(({ way, verdict }) => `${way} ${verdict}`)).toEqual([
      "live unavailable",
      "resume unavailable",
      "own_snapshot unavailable",
      "workspace_snapshot unavailable",
      "create taken",
    ]);
    expect(made.considered[0]?.reason).toBe("it has no sandbox");
    expect(made.steps).toMatchObject([{ title: request.setup![0], state: "done", exitCode: 0 }]);
    expect(made.phases.map(({ name }) => name)).toEqual(["create", "setup", "snapshot", "restore"]);
    expect(made.phases.every(({ tookMs }) => tookMs > 0)).toBe(true);
    expect(made.restored).toMatchObject({ new: true, shared: false, snapshot: made.environment.snapshot });
    expect(made.environment).toMatchObject({ key: request.key, state: "ready", sandbox: made.sandbox.id });
    expect(made.sandbox.state).toBe("running");
    expect((await made.sandbox.exec(RUNS)).stdout).toBe("1\n");
  });

  test("is the sandbox that runs", async () => {
    const request = asked({ setup: counted() });
    const first = await environments.ensure(request);
    const second = await environments.ensure(request);
    expect(second).toMatchObject({ by: "live", considered: [{ way: "live", verdict: "taken" }], steps: [] });
    expect(second.sandbox.id).toBe(first.sandbox.id);
  });

  test("is to resume the one that is suspended, with its processes", async () => {
    const request = asked();
    const { sandbox } = await environments.ensure(request);
    const process = await sandbox.processes.start("read x; echo got $x", { stdin: "pipe" });
    await sandbox.suspend();
    const resumed = await environments.ensure(request);
    expect(resumed).toMatchObject({ by: "resumed", lost: [] });
    expect(resumed.sandbox.info.restored).toBe("memory");
    await process.write("it\n");
    expect((await process.wait()).exitCode).toBe(0);
  });

  test("is to restore its snapshot if the sandbox is gone", async () => {
    const request = asked({ setup: counted() });
    const first = await environments.ensure(request);
    await first.sandbox.terminate();
    const second = await environments.ensure(request);
    expect(second.by).toBe("restored");
    expect(second.restored).toMatchObject({ new: false, shared: false, snapshot: first.environment.snapshot });
    expect(second.lost.join()).toContain(first.sandbox.id);
    expect((await second.sandbox.exec(RUNS)).stdout).toBe("1\n");
  });

  test("is to restore the snapshot of another environment with the same definition", async () => {
    const setup = counted();
    const first = await environments.ensure(asked({ setup }));
    const second = await environments.ensure(asked({ setup }));
    expect(second).toMatchObject({ by: "restored", restored: { shared: true, new: false } });
    expect(second.environment.workspace).toBe(first.environment.workspace);
    expect(second.sandbox.id).not.toBe(first.sandbox.id);
  });

  test("leads to the same sandbox for all callers at the same time", async () => {
    const request = asked({ setup: counted() });
    const all = await Promise.all([1, 2, 3, 4].map(() => environments.ensure(request)));
    expect(new Set(all.map(({ sandbox }) => sandbox.id)).size).toBe(1);
    expect(all.filter(({ by, joined }) => by === "created" && !joined)).toHaveLength(1);
    expect((await all[0]!.sandbox.exec(RUNS)).stdout).toBe("1\n");
  });

  test("is found by thread, definition, user and organization", async () => {
    const thread = { thread: unique("thread"), definition: "agent", user: "ann" };
    const { key: _, ...request } = asked();
    const ensure = async (of: EnsureRequest["thread"]) => {
      const ensured = await environments.ensure({ ...request, thread: of });
      cleanUp(() => environments.remove(ensured.environment.id));
      return ensured;
    };
    const first = await ensure(thread);
    expect(first.environment).toMatchObject({ thread, key: null });
    expect((await ensure(thread)).sandbox.id).toBe(first.sandbox.id);
    expect((await ensure({ ...thread, organization: "acme" })).sandbox.id).not.toBe(first.sandbox.id);
  });

  test("is another one for every request if nothing is used again", async () => {
    const { key: _, ...request } = asked({ lifecycle: { reuse: "none", snapshot: "none" } });
    const [one, two] = [await environments.ensure(request), await environments.ensure(request)];
    for (const { environment } of [one, two]) cleanUp(() => environments.remove(environment.id));
    expect(one.sandbox.id).not.toBe(two.sandbox.id);
  });

  test("needs a key, or a thread, but not both", async () => {
    const { key, ...request } = asked();
    await failure(environments.ensure(request), InvalidArgumentError);
    const thread = { thread: "t", definition: "d" };
    await failure(environments.ensure({ ...request, key, thread }), InvalidArgumentError);
  });

  test("is explained without being taken", async () => {
    const request = asked({ setup: counted() });
    const before = await environments.explain(request);
    expect(before).toMatchObject({ joins: false, drift: [], environment: null });
    expect(before.considered.at(-1)).toEqual({ way: "create", verdict: "taken", reason: null });
    await failure(environments.get(request.key), NotFoundError);

    const { environment } = await environments.ensure(request);
    const after = await environments.explain({ ...request, setup: ["true"], lifecycle: { onDrift: "refuse" } });
    expect(after).toMatchObject({ environment: environment.id, drift: ["setup"] });
    expect(after.refused).toContain("setup");
  });
});

describe("a definition that has changed", () => {
  test("gets another sandbox, and the earlier one is kept", async () => {
    const request = asked({ setup: ["echo one > /root/it"] });
    const first = await environments.ensure(request);
    const second = await environments.ensure({ ...request, setup: ["echo two > /root/it"] });
    expect(second).toMatchObject({ by: "created", environment: { retired: [first.sandbox.id] } });
    expect(await second.sandbox.files.readText("/root/it")).toBe("two\n");
    await until("it is suspended", async () => (await first.sandbox.refresh()).state === "suspended");
  });

  test("gets the same sandbox if it may drift", async () => {
    const request = asked({ lifecycle: { onDrift: "keep" } });
    const first = await environments.ensure(request);
    const second = await environments.ensure({ ...request, setup: ["true"], env: { A: "1" } });
    expect(second.sandbox.id).toBe(first.sandbox.id);
    expect(second.drift.sort()).toEqual(["env", "setup"]);
  });

  test("is an error if it must not drift", async () => {
    const request = asked({ lifecycle: { onDrift: "refuse" } });
    await environments.ensure(request);
    const error = await failure(environments.ensure({ ...request, setup: ["true"] }), ConflictError);
    expect(error.message).toContain("setup");
  });
});

describe("what happens", () => {
  test("is told to a callback", async () => {
    const request = asked({ setup: ["echo out; echo err >&2"] });
    const told: EnsureEvent[] = [];
    const ensured = await environments.ensure({ ...request, onEvent: (event) => told.push(event) });
    expect(told[0]).toEqual({ type: "considered", considered: ensured.considered });
    expect(told.at(-1)).toEqual({ type: "ensured", ensured });
    const lines = told.flatMap((event) => (event.type === "line" ? [event.line] : []));
    expect(lines.map(({ offset }) => offset)).toEqual(lines.map((_, at) => at));
    expect(lines).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ stream: "stdout", text: "out", step: 0 }),
        expect.objectContaining({ stream: "stderr", text: "err", step: 0 }),
      ]),
    );
    const states = told.flatMap((event) => (event.type === "attempt" ? [event.environment.state] : []));
    expect(new Set(states)).toEqual(new Set(["working"]));
  });

  test("is iterated over", async () => {
    const request = asked();
    await environments.ensure(request);
    const types: string[] = [];
    for await (const event of environments.follow(request)) types.push(event.type);
    expect(types).toEqual(["considered", "ensured"]);
  });

  test("is told once to a caller whose connection is cut again and again", async () => {
    const request = asked({ setup: ["for n in $(seq 40); do echo line $n; done; echo x >> /root/runs; sleep 0.2"] });
    const { dormouse: flaky, cuts } = await throughProxy((line) => (line.includes("/ensure ") ? 6000 : undefined));
    const told: string[] = [];
    const ensured = await flaky.environments.ensure({
      ...request,
      onEvent: (event) => event.type === "line" && event.line.stream === "stdout" && told.push(event.line.text),
    });
    expect(cuts()).toBeGreaterThan(0);
    expect(told).toEqual(Array.from({ length: 40 }, (_, at) => `line ${at + 1}`));
    expect((await ensured.sandbox.exec(RUNS)).stdout).toBe("1\n");
  });

  test("is in the log, during and after the attempt", async () => {
    const request = asked({ setup: ["echo begun; while ! test -e /go; do sleep 0.1; done; echo done"] });
    const making = environments.ensure({ ...request, lifecycle: { snapshot: "none" } });
    await until("it exists", () => environments.get(request.key).catch(() => undefined));
    const texts: string[] = [];
    for await (const { text } of environments.logs(request.key)) {
      texts.push(text);
      if (text === "begun") await touch("/go", request.key);
    }
    await making;
    expect(texts.filter((text) => /^(begun|done)$/.test(text))).toEqual(["begun", "done"]);

    const kept: number[] = [];
    for await (const { offset } of environments.logs(request.key, { offset: 1, follow: false })) kept.push(offset);
    expect(kept).toEqual(texts.slice(1).map((_, at) => at + 1));
  });
});

/** Writes a file in the sandbox in which the setup of an environment runs. */
async function touch(path: string, key: string): Promise<void> {
  const { id } = await environments.get(key);
  for await (const { id: sandbox } of dormouse.sandboxes.list({ state: "running", labels: { "dorm.environment": id } }))
    await (await dormouse.sandboxes.connect(sandbox)).files.write(path, "");
}

describe("a setup that fails", () => {
  test("is an error with step, command and exit code, and leaves nothing", async () => {
    const request = asked({ setup: ["true", "echo why >&2; exit 7", "true"] });
    const error = await failure(environments.ensure(request), SetupError);
    expect(error).toMatchObject({ code: "failed", name: "SetupError", step: 1, exitCode: 7, kept: undefined });
    expect(error.title).toBe("echo why >&2; exit 7");
    expect(error.message).toContain("why");
    expect(error.environment).toMatchObject({ state: "idle", sandbox: null, attempt: { state: "failed" } });
    expect(error.environment.attempt?.steps.map(({ state }) => state)).toEqual(["done", "failed", "waiting"]);
  });

  test("keeps its sandbox, if asked to", async () => {
    const request = asked({ setup: ["echo trace > /root/trace; exit 1"], lifecycle: { keepFailed: true } });
    const error = await failure(environments.ensure(request), SetupError);
    const kept = await dormouse.sandboxes.connect(error.kept!);
    cleanUp(() => kept.terminate());
    expect(await kept.files.readText("/root/trace")).toBe("trace\n");
  });

  test("has the code of a time limit", async () => {
    const request = asked({ setup: ["sleep 600"], stepTimeoutMs: 1000 });
    const error = await failure(environments.ensure(request), SetupError);
    expect(error).toMatchObject({ code: "timed_out", step: 0, exitCode: undefined });
  });

  test("can be repeated with another one", async () => {
    const request = asked({ setup: ["exit 1"] });
    await failure(environments.ensure(request), SetupError);
    expect((await environments.ensure({ ...request, setup: ["exit 0"] })).by).toBe("created");
  });

  test("is not what a missing image is", async () => {
    const error = await failure(environments.ensure(asked({ image: "no-such-image", pull: "never" })), ApiError);
    expect(error).not.toBeInstanceOf(SetupError);
    expect(error).toBeInstanceOf(NotFoundError);
  });
});

describe("work in progress", () => {
  const endless = { setup: ["sleep 600"] };
  const began = (key: string) =>
    until("the setup runs", async () => {
      const environment = await environments.get(key).catch(() => undefined);
      return environment?.attempt?.steps[0]?.state === "running";
    });

  test("is cancelled for every caller", async () => {
    const request = asked(endless);
    const making = [1, 2].map(() => failure(environments.ensure(request), ApiError));
    await began(request.key);
    expect(await environments.cancel(request.key)).toMatchObject({ state: "idle", attempt: { state: "cancelled" } });
    for (const error of await Promise.all(making)) expect(error.message).toContain("cancelled");
  });

  test("ends when its last caller goes away, if asked to", async () => {
    const request = asked({ ...endless, onLeave: "cancel" });
    const leave = new AbortController();
    const making = failure(environments.ensure({ ...request, signal: leave.signal }), DOMException);
    await began(request.key);
    leave.abort();
    expect((await making).name).toBe("AbortError");
    await until("it is cancelled", async () => (await environments.get(request.key)).attempt?.state === "cancelled");
  });

  test("continues without its caller, and is joined", async () => {
    const request = asked({ setup: ["echo x >> /root/runs; while ! test -e /go; do sleep 0.1; done"] });
    const leave = new AbortController();
    const making = failure(environments.ensure({ ...request, signal: leave.signal }), DOMException);
    await began(request.key);
    leave.abort();
    await making;
    expect(await environments.explain(request)).toMatchObject({ joins: true });
    const joining = environments.ensure(request);
    await touch("/go", request.key);
    const { joined, by, sandbox } = await joining;
    expect([joined, by]).toEqual([true, "created"]);
    expect((await sandbox.exec(RUNS)).stdout).toBe("1\n");
  });
});

describe("the definition", () => {
  test("reaches the sandbox", async () => {
    const secret = unique("SECRET").replaceAll("-", "_");
    await dormouse.secrets.set(secret, "canary");
    cleanUp(() => dormouse.secrets.delete(secret));
    const { sandbox } = await environments.ensure(
      asked({
        ...{ env: { GREETING: "hello" }, secrets: { TOKEN: secret }, user: "nobody", directory: "/srv/app" },
        ...{ egress: { allow: ["example.com"] }, labels: { team: "research" } },
        setup: [{ parallel: ["id -un > user", "pwd > directory"] }, "printf %s $TOKEN | wc -c > length"],
        lifecycle: { keepAliveMs: 900_000 },
      }),
    );
    expect(sandbox.info).toMatchObject({ env: ["GREETING"], secrets: ["TOKEN"], idleTimeoutMs: 900_000 });
    expect(sandbox.info).toMatchObject({ egress: { allow: ["example.com"] }, labels: { team: "research" } });
    expect((await sandbox.exec("echo $GREETING $TOKEN; cat user directory length", { cwd: "/srv/app" })).stdout).toBe(
      "hello canary\nnobody\n/srv/app\n6\n",
    );
  });

  test("has files that were uploaded", async () => {
    const directory = await mkdtemp(join(tmpdir(), "dormouse-context-"));
    cleanUp(() => rm(directory, { recursive: true }));
    await writeFile(join(directory, "app.txt"), unique("content"));
    await promisify(execFile)("tar", ["-cf", `${directory}/app.tar`, "-C", directory, "app.txt"]);
    const { hash } = await dormouse.builds.uploadContext(await readFile(`${directory}/app.tar`));
    const { sandbox } = await environments.ensure(asked({ source: { context: hash }, setup: ["cp app.txt copy"] }));
    expect(await sandbox.files.readText("/workspace/copy")).toBe(await readFile(`${directory}/app.txt`, "utf8"));
  });

  test("starts from a snapshot, and leaves a command running", async () => {
    const origin = await createSandbox();
    await origin.files.write("/srv/page", "hello");
    const { id: snapshot } = await origin.checkpoint();
    const { sandbox } = await environments.ensure(
      asked({
        ...{ image: undefined, snapshot, directory: "/srv" },
        startCommand: "exec python3 -m http.server 8000",
        readyCommand: "curl -fs http://localhost:8000/page",
      }),
    );
    expect(await (await sandbox.ports.fetch(8000, "/page")).text()).toBe("hello");
    await sandbox.terminate();
  });
});

describe("records", () => {
  test("are found by id and by key, and listed", async () => {
    const key = `${unique("env")}/ü ?#%2e`;
    const { environment } = await environments.ensure({ ...asked(), key });
    cleanUp(() => environments.remove(key));
    expect((await environments.get(key)).id).toBe(environment.id);
    expect((await environments.get(environment.id)).key).toBe(key);
    const listed: string[] = [];
    for await (const { id } of environments.list({ limit: 1 })) listed.push(id);
    expect(listed).toContain(environment.id);
  });

  test("are removed with sandbox and snapshots, and free their key", async () => {
    const request = asked({ setup: counted() });
    const { environment, sandbox } = await environments.ensure(request);
    await environments.remove(request.key);
    await failure(environments.get(environment.id), NotFoundError);
    expect((await sandbox.refresh()).state).toBe("terminated");
    await until("its snapshot goes", async () => {
      const error = await dormouse.snapshots.get(environment.snapshot!).catch((reason: unknown) => reason);
      return error instanceof NotFoundError;
    });
    expect((await environments.ensure(request)).environment.id).not.toBe(environment.id);
  });
});
