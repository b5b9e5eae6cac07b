/** A handle: every member of the contract, on a real sandbox. */

import type { Sandbox } from "@dormouse/sdk";
import { beforeAll, describe, expect, test } from "vitest";

import type { DormouseHandle } from "../src/index.js";
import { dormouse, provider, unique, until } from "./support.js";

const dormouseProvider = provider();
let handle: DormouseHandle;
let sandbox: Sandbox;

beforeAll(async () => {
  handle = await dormouseProvider.create({ id: unique("handle"), env: { FROM: "create", SECRET: "canary" } });
  sandbox = handle.sandbox;
});

async function text(stream: AsyncIterable<string>): Promise<string> {
  let all = "";
  for await (const piece of stream) all += piece;
  return all;
}

/** What later versions of the contract add to 0.2.4. */
interface LaterContract {
  capabilities: { killableProcesses: boolean };
  fs: {
    lstat?: (
      path: string,
    ) => Promise<
      { type: "file"; mode: number; size: number } | { type: "dir" | "symlink" | "other"; mode: number } | undefined
    >;
  };
}

test("a handle has what later versions of the contract add", () => {
  const later: LaterContract = handle;
  expect(later.capabilities.killableProcesses).toBe(true);
  expect(later.fs.lstat).toBeTypeOf("function");
});

describe("fs", () => {
  test("writes with parents, and reads text and bytes", async () => {
    await handle.fs.write("/workspace/a/b/text", "Grüße");
    expect(await handle.fs.read("/workspace/a/b/text")).toBe("Grüße");
    const bytes = Uint8Array.from({ length: 256 }, (_, at) => at);
    await handle.fs.write("/workspace/bytes", bytes);
    expect(await handle.fs.readBytes("/workspace/bytes")).toEqual(bytes);
  });

  test("lists files and directories", async () => {
    await handle.fs.mkdir("/workspace/list/sub/deep");
    await handle.fs.write("/workspace/list/file", "x");
    expect(await handle.fs.list("/workspace/list")).toEqual([
      { name: "file", path: "/workspace/list/file", type: "file" },
      { name: "sub", path: "/workspace/list/sub", type: "dir" },
    ]);
  });

  test("renames, removes recursively, and forgives what is gone", async () => {
    await handle.fs.write("/workspace/old/file", "x");
    await handle.fs.rename("/workspace/old", "/workspace/new");
    expect(await handle.fs.exists("/workspace/old")).toBe(false);
    expect(await handle.fs.exists("/workspace/new/file")).toBe(true);
    await handle.fs.remove("/workspace/new");
    await handle.fs.remove("/workspace/new");
    expect(await handle.fs.exists("/workspace/new")).toBe(false);
    await expect(handle.fs.read("/workspace/new")).rejects.toThrow("there is no");
  });

  test.each([
    ["file", "printf abc > x && chmod 640 x", { type: "file", mode: 0o100640, size: 3 }],
    ["dir", "mkdir x && chmod 2750 x", { type: "dir", mode: 0o042750 }],
    ["symlink", "ln -s /missing x", { type: "symlink", mode: 0o120777 }],
    ["other", "mkfifo -m 600 x", { type: "other", mode: 0o010600 }],
  ])("tells what a %s is, without following links", async (_, command, expected) => {
    await handle.process.exec(`rm -rf x; ${command}`);
    expect(await handle.fs.lstat("/workspace/x")).toEqual(expected);
  });

  test("has nothing to tell about what is missing, but does not hide errors", async () => {
    expect(await handle.fs.lstat("/workspace/missing")).toBeUndefined();
    await expect(handle.fs.lstat("/a\0b")).rejects.toThrow();
  });

  test("watches files, without polling", async () => {
    await handle.fs.mkdir("/workspace/watched");
    const seen: string[] = [];
    const watch = await handle.fs.watch("/workspace/watched", ({ type, path }) => seen.push(`${type} ${path}`));
    await handle.process.exec("mkdir watched/sub && echo 1 > watched/sub/x && rm watched/sub/x && echo 2 > watched/y");
    await until("the last change", async () => seen.some((change) => change.endsWith("/workspace/watched/y")));
    await watch.stop();
    expect(seen.some((change) => change === "removed /workspace/watched/sub/x")).toBe(true);
    await handle.process.exec("echo 3 > watched/z");
    expect(seen.some((change) => change.endsWith("z"))).toBe(false);
  });

  test("continues to watch after the sandbox slept", async () => {
    const seen: string[] = [];
    const watch = await handle.fs.watch("/workspace/watched", ({ path }) => seen.push(path));
    await sandbox.suspend();
    await sandbox.resume();
    await until("a change", async () => {
      await handle.fs.write(`/workspace/watched/again`, String(seen.length));
      return seen.includes("/workspace/watched/again");
    });
    await watch.stop();
  });
});

describe("exec", () => {
  test("returns output and exit code, also of a failure", async () => {
    expect(await handle.process.exec("echo out; echo err >&2; exit 3")).toEqual({
      stdout: "out\n",
      stderr: "err\n",
      exitCode: 3,
    });
    expect((await handle.process.exec("kill -9 $$")).exitCode).toBe(137);
  });

  test("runs in the workspace, or where it is told", async () => {
    expect((await handle.process.exec("pwd")).stdout).toBe("/workspace\n");
    await handle.fs.mkdir("/workspace/sub");
    expect((await handle.process.exec("pwd", { cwd: "/workspace/sub" })).stdout).toBe("/workspace/sub\n");
    expect((await handle.process.exec("pwd", { cwd: "sub" })).stdout).toBe("/workspace/sub\n");
    expect((await handle.process.exec("pwd", { cwd: "/etc" })).stdout).toBe("/etc\n");
  });

  test("has variables: of the sandbox, then of the handle, then of the call", async () => {
    const show = "echo $FROM $MORE";
    expect((await handle.process.exec(show)).stdout).toBe("create\n");
    await handle.env.set({ FROM: "set", MORE: "more" });
    expect((await handle.process.exec(show)).stdout).toBe("set more\n");
    expect((await handle.process.exec(show, { env: { FROM: "call" } })).stdout).toBe("call more\n");
    expect((await handle.process.exec(show)).stdout).toBe("set more\n");
  });

  test("has no limit of output", async () => {
    const { stdout } = await handle.process.exec("head -c 10000000 /dev/zero | tr '\\0' x");
    expect(stdout).toHaveLength(10_000_000);
  });

  test("kills the command with its grandchildren when it is aborted", async () => {
    const call = handle.process.exec("(setsid sleep 741 & sleep 741) & wait", { signal: AbortSignal.timeout(300) });
    await expect(call).rejects.toThrow();
    await until("nothing is left", async () => (await handle.process.exec("pgrep -fx 'sleep 741'")).exitCode === 1);
    await expect(handle.process.exec("true", { signal: AbortSignal.abort() })).rejects.toThrow();
  });
});

describe("spawn", () => {
  test("streams both outputs apart, and waits", async () => {
    const process = await handle.process.spawn("echo out; echo err >&2; exit 4");
    expect(process.pid).toBeGreaterThan(1);
    expect(await Promise.all([text(process.stdout), text(process.stderr), process.wait()])).toEqual([
      "out\n",
      "err\n",
      4,
    ]);
  });

  test("feeds input, in the order of the calls, to its end", async () => {
    const process = await handle.process.spawn("cat; echo end");
    void process.stdin.write("one ");
    void process.stdin.write("two ");
    await process.stdin.end();
    expect(await text(process.stdout)).toBe("one two end\n");
    await process.stdin.end();
    await expect(process.stdin.write("late")).rejects.toThrow();
  });

  test("decodes characters across the borders of chunks", async () => {
    const script = `python3 -uc "import sys,time
for b in 'ä🐭€'.encode():
  sys.stdout.buffer.write(bytes([b])); sys.stdout.flush(); time.sleep(0.02)"`;
    const process = await handle.process.spawn(script);
    expect(await text(process.stdout)).toBe("ä🐭€");
  });

  test("is interactive", async () => {
    const process = await handle.process.spawn("while read x; do echo got $x; done");
    const lines = process.stdout[Symbol.asyncIterator]();
    await process.stdin.write("a\n");
    expect((await lines.next()).value).toBe("got a\n");
    await process.stdin.write("b\n");
    expect((await lines.next()).value).toBe("got b\n");
    await process.stdin.end();
    expect((await lines.next()).done).toBe(true);
    expect(await process.wait()).toBe(0);
  });

  test("is killed with its grandchildren, and killed twice", async () => {
    const process = await handle.process.spawn("setsid sleep 852 & sleep 852 & echo ready; wait");
    await process.stdout[Symbol.asyncIterator]().next();
    await process.kill();
    expect(await process.wait()).toBe(137);
    await process.kill();
    await until("nothing is left", async () => (await handle.process.exec("pgrep -fx 'sleep 852'")).exitCode === 1);
  });

  test("gets signals that it can handle", async () => {
    const process = await handle.process.spawn("trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done");
    await process.stdout[Symbol.asyncIterator]().next();
    await process.kill("SIGTERM");
    expect(await process.wait()).toBe(9);
    await expect(process.kill("SIGBOGUS" as NodeJS.Signals)).rejects.toThrow(TypeError);
  });

  test("ends when its signal is aborted", async () => {
    const controller = new AbortController();
    const process = await handle.process.spawn("sleep 963", { signal: controller.signal });
    controller.abort();
    expect(await process.wait()).toBe(137);
    await expect(handle.process.spawn("true", { signal: controller.signal })).rejects.toThrow();
  });

  test("continues across a suspend", async () => {
    const process = await handle.process.spawn("read x; echo got $x");
    await sandbox.suspend();
    await process.stdin.write("it\n");
    expect(await process.wait()).toBe(0);
    expect(await text(process.stdout)).toBe("got it\n");
  });
});

describe("journals of runs", () => {
  const RUN = `sh -c 'for n in 1 2 3; do echo line $n; done; echo oops >&2; exit 5' > run.log 2> run.err; printf '\\n{"__exit":%s}\\n' $? >> run.log`;

  test("have the output and end with the exit code", async () => {
    await handle.process.exec(RUN);
    expect(await handle.fs.read("/workspace/run.log")).toBe('line 1\nline 2\nline 3\n\n{"__exit":5}\n');
    expect(await handle.fs.read("/workspace/run.err")).toBe("oops\n");
  });

  test("are read from a byte on", async () => {
    expect((await handle.process.exec("tail -c +8 run.log | head -c 7 | base64")).stdout.trim()).toBe("bGluZSAyCg==");
    expect((await handle.process.exec("wc -c < run.log && stat -c '%Y %n' run.log")).stdout).toMatch(
      /^35\n\d+ run\.log\n$/,
    );
  });

  test("are followed while they are written, until the reader leaves", async () => {
    await handle.process.exec(": > live.log");
    const controller = new AbortController();
    const follow = await handle.process.spawn("tail -c +1 -f live.log", { signal: controller.signal });
    const lines = follow.stdout[Symbol.asyncIterator]();
    for (const line of ["one\n", "two\n"]) {
      await handle.process.exec(`printf '${line.trim()}\\n' >> live.log`);
      expect((await lines.next()).value).toBe(line);
    }
    controller.abort();
    expect(await follow.wait()).toBe(137);
    expect((await lines.next()).done).toBe(true);
  });
});

describe("git", () => {
  test("clones, commits and pushes", async () => {
    const commands = [
      "git init -q --bare -b main /srv/origin.git",
      "git clone -q /srv/origin.git /tmp/seed && cd /tmp/seed",
      "git config --global user.email a@b.c && git config --global user.name A",
      "echo hello > README && git add . && git commit -qm first && git push -q origin HEAD:main",
    ];
    const prepared = await handle.process.exec(commands.join(" && "));
    expect(prepared).toMatchObject({ exitCode: 0 });
    await handle.git.clone({ url: "file:///srv/origin.git", dir: "/workspace/app", auth: { token: "t" } });
    expect(await handle.fs.read("/workspace/app/README")).toBe("hello\n");
    expect(await handle.git.branch("/workspace/app")).toBe("main");
    await handle.fs.write("/workspace/app/new", "x");
    expect(await handle.git.status("/workspace/app")).toBe("?? new\n");
    await expect(handle.git.clone({ url: "file:///srv/missing.git", dir: "/tmp/x" })).rejects.toThrow("git failed");
    await handle.git.add(["new"], "/workspace/app");
    await handle.git.commit("second", "/workspace/app");
    await handle.git.push("/workspace/app");
    expect((await handle.process.exec("git -C /srv/origin.git log --format=%s main")).stdout).toBe("second\nfirst\n");
  });
});

describe("ports", () => {
  test("are reached with the headers, and not without", async () => {
    const server = await handle.process.spawn("exec python3 -m http.server 8000 --directory /etc");
    const { url, headers } = await handle.ports.connect(8000);
    await until(
      "the server listens",
      async () => (await fetch(`${url}hostname`, { headers: headers! })).status === 200,
    );
    const { "x-dormouse-token": token, ...without } = headers!;
    expect(token).toBeDefined();
    expect((await fetch(`${url}hostname`, { headers: without })).status).toBe(401);
    await server.kill();
  });

  test("of a daemon with a domain are below it", async () => {
    const { PROVIDER } = await import("../src/names.js");
    const { DormouseHandle: Handle } = await import("../src/handle.js");
    const { WorkspacePaths } = await import("../src/paths.js");
    const { Dormouse } = await import("@dormouse/sdk");
    const info = {
      id: "abc",
      state: "running",
      label: "80-abc",
      sandbox: "abc",
      port: 80,
      token: "t",
      access: "private",
    };
    const client = new Dormouse({ server: "https://boxes.example.org", fetch: async () => Response.json(info) });
    const settings = { dormouse: client, paths: new WorkspacePaths(), shell: "sh", user: undefined } as const;
    const remote = new Handle(await client.sandboxes.connect("abc"), { ...settings, snapshotKind: "filesystem" });
    expect(remote.provider).toBe(PROVIDER);
    expect(await remote.ports.connect(80)).toEqual({
      url: "https://80-abc.boxes.example.org/",
      headers: { "x-dormouse-token": "t" },
    });
  });
});

describe("snapshots and forks", () => {
  test("restore another sandbox with the same files", async () => {
    await handle.fs.write("/workspace/state", "one");
    const { id, label } = await handle.snapshot("mine");
    expect(label).toBe("mine");
    await handle.fs.write("/workspace/state", "two");
    const restored = await dormouseProvider.restoreSnapshot({ snapshotId: id, env: { FROM: "restore" } });
    expect(restored.id).not.toBe(handle.id);
    expect(await restored.fs.read("/workspace/state")).toBe("one");
    expect((await restored.process.exec("echo $FROM:$SECRET")).stdout).toBe("restore:\n");
    expect(await handle.fs.read("/workspace/state")).toBe("two");
    expect((await dormouse.snapshots.get(id)).labels).toMatchObject({ label: "mine" });
  });

  test("hold memory and processes if they should", async () => {
    const memory = provider({ snapshotKind: "memory" });
    const source = await memory.create({ id: unique("memory") });
    const process = await source.process.spawn("read x; echo got $x > /workspace/got");
    const { id } = await source.snapshot();
    const restored = await memory.restoreSnapshot({ snapshotId: id });
    const [same] = await restored.sandbox.processes.list({ pid: process.pid }).toArray();
    await (await restored.sandbox.processes.get(same!.process)).write("it\n");
    await until("it goes on", () => restored.fs.exists("/workspace/got"));
    expect(await source.fs.exists("/workspace/got")).toBe(false);
  });

  test("a fork continues with memory and variables, and diverges", async () => {
    await handle.fs.write("/workspace/state", "parent");
    await handle.env.set({ SET: "set" });
    const fork = await handle.fork();
    expect(fork.id).not.toBe(handle.id);
    expect((await fork.process.exec("cat state; echo :$SECRET:$SET")).stdout).toBe("parent:canary:set\n");
    await fork.fs.write("/workspace/state", "fork");
    expect(await handle.fs.read("/workspace/state")).toBe("parent");
    await fork.destroy();
    expect(await dormouseProvider.resume({ id: fork.id })).toBeNull();
  });

  test("a snapshot of files has no secret", async () => {
    await handle.fs.write("/workspace/marker", "visible");
    const { id } = await handle.snapshot();
    let archive = "";
    for await (const piece of await dormouse.snapshots.export(id)) archive += Buffer.from(piece).toString("latin1");
    expect(archive).toContain("visible");
    expect(archive).not.toContain("canary");
  });
});

describe("another root", () => {
  test("is what /workspace stands for", async () => {
    const other = await provider({ workspaceRoot: "/home/agent/work/" }).create({ id: unique("root") });
    expect(other.workspaceRoot).toBe("/home/agent/work");
    await other.fs.write("/workspace/a/file", "x");
    expect((await other.process.exec("pwd; cat a/file")).stdout).toBe("/home/agent/work\nx");
    expect((await other.process.exec("pwd", { cwd: "/workspace/a" })).stdout).toBe("/home/agent/work/a\n");
    expect(await other.fs.list("/workspace/a")).toEqual([{ name: "file", path: "/workspace/a/file", type: "file" }]);
    const seen: string[] = [];
    const watch = await other.fs.watch("/workspace", ({ path }) => seen.push(path));
    await other.fs.write("/workspace/b", "y");
    await until("the change", async () => seen.includes("/workspace/b"));
    await watch.stop();
  });

  test("belongs to the user that runs commands, in the shell that is chosen", async () => {
    const other = await provider({ user: "nobody", shell: "bash" }).create({ id: unique("user") });
    const { stdout } = await other.process.exec(
      "id -un; touch mine && stat -c %U mine . && echo ${BASH_VERSION:+bash}",
    );
    expect(stdout).toBe("nobody\nnobody\nnobody\nbash\n");
  });
});
