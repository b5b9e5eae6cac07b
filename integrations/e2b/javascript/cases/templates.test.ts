import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  BuildError,
  InvalidArgumentError,
  LogEntry,
  Template,
  TemplateError,
  defaultBuildLogger,
  isOlder,
  waitForFile,
  waitForPort,
  waitForProcess,
  waitForTimeout,
  waitForURL,
} from "../support/client.ts";
import { create, eventually, failure, output, unique, variable, visit } from "../support/guest.ts";

/** A directory that is removed at the end of the case. */
function directory(): string {
  const path = mkdtempSync(join(tmpdir(), "cases-"));
  onTestFinished(() => rmSync(path, { recursive: true }));
  return path;
}

type Begun = ReturnType<typeof Template>;
type Builder = ReturnType<Begun["fromTemplate"]>;
type Built = Parameters<typeof Template.build>[0];

const begin = (context = directory(), fileIgnorePatterns: string[] = []): Begun =>
  Template({ fileContextPath: context, fileIgnorePatterns });
const base = (context?: string): Builder => begin(context).fromTemplate("base");

/** Builds a template that is deleted at the end of the case. */
async function build(builder: Built, name = unique(), opts: { [key: string]: unknown } = {}) {
  const info = await Template.build(builder, name, opts);
  remove(info.templateId);
  return info;
}

function remove(templateId: string): void {
  onTestFinished(async () => {
    const headers = { "X-API-Key": variable("E2B_API_KEY") };
    await fetch(`${variable("E2B_API_URL")}/templates/${templateId}`, { method: "DELETE", headers });
  });
}

async function sent(builder: Built): Promise<any> {
  return JSON.parse(await Template.toJSON(builder, true));
}

describe("a builder", () => {
  test.each([
    ["fromDebianImage", "debian:stable", "bookworm"],
    ["fromUbuntuImage", "ubuntu:latest", "24.04"],
    ["fromFedoraImage", "fedora:", "40"],
    ["fromAlpineImage", "alpine:", "3.20"],
    ["fromArchImage", "archlinux:latest", "base"],
    ["fromPythonImage", "python:3", "3.12"],
    ["fromNodeImage", "node:lts", "22"],
    ["fromBunImage", "oven/bun:latest", "1"],
  ] as const)("%s begins with an image", async (method, image, variant) => {
    expect((await sent(begin()[method]())).fromImage).toContain(image);
    expect((await sent(begin()[method](variant))).fromImage).toContain(`:${variant}`);
  });

  test("sends credentials of registries", async () => {
    expect((await sent(begin().fromBaseImage())).fromImage).toBe("e2bdev/base");
    const plain = await sent(begin().fromImage("registry.example.com/app", { username: "ann", password: "secret" }));
    expect(plain.fromImageRegistry).toEqual({ type: "registry", username: "ann", password: "secret" });
    const credentials = { accessKeyId: "id", secretAccessKey: "secret", region: "eu-west-1" };
    expect((await sent(begin().fromAWSRegistry("x.example.com/app", credentials))).fromImageRegistry.type).toBe("aws");
    const gcp = await sent(begin().fromGCPRegistry("gcr.io/app", { serviceAccountJSON: { project: "p" } }));
    expect(gcp.fromImageRegistry.type).toBe("gcp");
  });

  test("turns helpers into commands", async () => {
    const builder = base()
      .makeDir(["/a", "/b"], { mode: 0o750, user: "root" })
      .makeSymlink("/a", "/c", { user: "root", force: true })
      .rename("/b", "/d", { force: true, user: "root" })
      .remove(["/c", "/d"], { force: true, recursive: true, user: "root" })
      .pipInstall(["x"], { g: false })
      .npmInstall("y", { g: true, dev: false })
      .bunInstall(["z"], { g: false, dev: true })
      .aptInstall("w", { noInstallRecommends: true, fixMissing: true })
      .gitClone("https://example.com/x.git", "/srv/x", { branch: "main", depth: 1, user: "root" });
    const commands = (await sent(builder)).steps.map((step: any) => step.args[0]);
    expect(commands.slice(0, 4)).toEqual(["mkdir -p -m 0750 /a /b", "ln -s -f /a /c", "mv /b /d -f", "rm -r -f /c /d"]);
    expect(commands.slice(4, 7)).toEqual(["pip install --user x", "npm install -g y", "bun install --dev z"]);
    expect(commands[7]).toContain("--no-install-recommends --fix-missing w");
    expect(commands[8]).toContain("--branch main --single-branch --depth 1");
  });

  test("sends steps in their order", async () => {
    const builder = base()
      .runCmd(["one", "two"], { user: "root" })
      .setEnvs({ A: "b" })
      .setWorkdir("/srv")
      .setUser("root")
      .skipCache()
      .runCmd("x");
    const steps = (await sent(builder)).steps;
    expect(steps.map((step: any) => [step.type, step.args[0], step.force ?? false])).toEqual([
      ["RUN", "one && two", false],
      ["ENV", "A", false],
      ["WORKDIR", "/srv", false],
      ["USER", "root", false],
      ["RUN", "x", true],
    ]);
    expect((await sent(begin().skipCache().fromTemplate("base"))).force).toBe(true);
  });

  test("names files by their hash", async () => {
    const context = directory();
    for (const name of ["one", "two"]) writeFileSync(join(context, name), name);
    const options = { forceUpload: true, user: "root", mode: 0o600, resolveSymlinks: true, gzip: false } as const;
    const items = [{ src: ["two"], dest: "/2", ...options }];
    const steps = (await sent(base(context).copy("one", "/1", options).copyItems(items))).steps;
    expect(steps.map((step: any) => step.args)).toEqual([
      ["one", "/1", "root", "0600"],
      ["two", "/2", "root", "0600"],
    ]);
    expect(steps[0].filesHash).toHaveLength(64);
  });

  test("refuses files outside its directory, and half of the credentials", () => {
    expect(() => base().copy("../outside", "/srv/")).toThrow();
    const half = { username: "ann" } as { username: string; password: string };
    expect(() => begin().fromImage("x", half)).toThrow(InvalidArgumentError);
  });

  test("has conditions of readiness", () => {
    expect(waitForPort(8000).getCmd()).toContain("8000");
    expect(waitForURL("http://localhost", 204).getCmd()).toContain("204");
    expect(waitForProcess("nginx").getCmd()).toContain("nginx");
    expect(waitForFile("/ready").getCmd()).toContain("/ready");
    expect(waitForTimeout(3000).getCmd()).toBe("sleep 3");
  });

  test("is shown as a Dockerfile, and made from one", async () => {
    const builder = begin().fromImage("debian:12").runCmd("true").setEnvs({ A: "b" });
    expect(Template.toDockerfile(builder)).toContain("FROM debian:12\nRUN true\nENV A=b");
    const from = begin().fromDockerfile('FROM debian:12\nENV A=b\nRUN true\nCMD ["run"]\n');
    expect(await sent(from)).toMatchObject({ fromImage: "debian:12", startCmd: "run" });
  });

  test("has servers for MCP and development containers in their templates alone", async () => {
    expect(() => base().addMcpServer("exa")).toThrow(BuildError);
    expect(() => base().betaDevContainerPrebuild("/srv")).toThrow(BuildError);
    expect(() => base().betaSetDevContainerStart("/srv")).toThrow(BuildError);
    const gateway = begin().fromTemplate("mcp-gateway").addMcpServer(["exa", "box"]);
    expect((await sent(gateway)).steps[0].args[0]).toBe("mcp-gateway pull exa box");
    const container = begin().fromTemplate("devcontainer").betaDevContainerPrebuild("/srv");
    expect((await sent(container.betaSetDevContainerStart("/srv"))).startCmd).toContain("devcontainer up");
  });

  test("has a logger", () => {
    const log = defaultBuildLogger({ minLevel: "error" });
    const entry = new LogEntry(new Date(), "info", "quiet");
    log(entry);
    expect(entry.toString()).toContain("quiet");
  });
});

describe("a template", () => {
  test("has what its steps made", async () => {
    const context = directory();
    mkdirSync(join(context, "app"));
    writeFileSync(join(context, "app", "main.py"), "print('main')");
    writeFileSync(join(context, "app", "left.log"), "no");
    const builder = begin(context, ["**/*.log"])
      .fromTemplate("base")
      .copy("app", "/srv/app", { user: "root" })
      .runCmd("echo made > /home/user/made")
      .setEnvs({ BUILT: "yes" });
    const name = unique();
    const info = await build(builder, name);
    expect(info).toMatchObject({ name, alias: name });
    const sandbox = await create({ template: name });
    expect(await output(sandbox, "cat made; echo $BUILT; python3 /srv/app/main.py; ls /srv/app")).toBe(
      "made\nyes\nmain\nmain.py",
    );
    expect((await sandbox.getInfo()).templateId).toBe(info.templateId);
  });

  test("has user, directory and resources", async () => {
    const name = unique();
    await build(base().setUser("root").runCmd("mkdir -p /srv/app").setWorkdir("/srv/app"), name, {
      cpuCount: 1,
      memoryMB: 512,
    });
    const sandbox = await create({ template: name });
    expect(await output(sandbox, "whoami; pwd")).toBe("root\n/srv/app");
    expect(await sandbox.getInfo()).toMatchObject({ cpuCount: 1, memoryMB: 512 });
  });

  test("has its program running in every sandbox", async () => {
    const name = unique();
    const start = "od -An -N16 -tx8 /dev/urandom > /tmp/token; python3 -m http.server 8000 --directory /tmp";
    await build(base().setStartCmd(start, waitForPort(8000)), name);
    const tokens = [];
    for (const _ of [1, 2]) tokens.push(await (await visit(await create({ template: name }), 8000, "/token")).text());
    expect(tokens[0]).toBe(tokens[1]);
  });

  test("waits until it is ready", async () => {
    const name = unique();
    await build(base().runCmd("touch /tmp/ready").setReadyCmd(waitForFile("/tmp/ready")), name);
    expect(await output(await create({ template: name }), "echo ready")).toBe("ready");
  });

  test("is built in the background", async () => {
    const name = unique();
    const entries: string[] = [];
    const options = { tags: ["one"], cpuCount: 1, memoryMB: 512, skipCache: true };
    const onBuildLogs = (entry: LogEntry) => void entries.push(entry.message);
    const info = await Template.buildInBackground(base().runCmd("echo in the background"), name, {
      ...options,
      onBuildLogs,
    });
    remove(info.templateId);
    const status = await eventually(async () => {
      const found = await Template.getBuildStatus(info, { logsOffset: 0 });
      return ["ready", "error"].includes(found.status) ? found : undefined;
    });
    expect(status!.status).toBe("ready");
    expect(status!.logEntries.some((entry) => entry.message.includes("in the background"))).toBe(true);
    expect((await Template.getBuildStatus(info, { logsOffset: status!.logEntries.length })).logEntries).toEqual([]);
    expect(await output(await create({ template: `${name}:one` }), "echo ready")).toBe("ready");
  });

  test("takes steps from the cache unless told otherwise", async () => {
    const name = unique();
    const command = `echo ${name} > /dev/null; od -An -N16 -tx8 /dev/urandom > /tmp/random`;
    const token = async (opts = {}) => {
      await build(base().runCmd(command), name, opts);
      return (await create({ template: name })).files.read("/tmp/random");
    };
    const first = await token();
    expect(await token()).toBe(first);
    expect(await token({ skipCache: true })).not.toBe(first);
  });

  test("names the step that failed", async () => {
    const entries: LogEntry[] = [];
    const failing = base().runCmd("true").runCmd("echo the reason >&2; exit 3");
    const error = await failure(
      build(failing, unique(), { onBuildLogs: (entry: LogEntry) => void entries.push(entry) }),
    );
    expect(error).toBeInstanceOf(BuildError);
    expect(entries.some((entry) => entry.message.includes("the reason"))).toBe(true);
  });

  test("exists once it is built, also by its former name", async () => {
    const alias = unique();
    expect(await Template.exists(alias)).toBe(false);
    const info = await Template.build(base().runCmd("true"), { alias });
    remove(info.templateId);
    expect(await Template.exists(alias)).toBe(true);
    expect(await Template.aliasExists(alias)).toBe(true);
    const again = await Template.buildInBackground(base().runCmd("true"), { alias });
    expect(again.templateId).toBe(info.templateId);
  });

  test("has tags", async () => {
    const name = unique();
    const info = await build(base().setEnvs({ TAGGED: "yes" }), name, { tags: ["first"] });
    const assigned = await Template.assignTags(`${name}:first`, ["second", "third"]);
    expect(assigned.buildId).toBe(info.buildId);
    const opts = { requestTimeoutMs: 60_000 };
    await Template.assignTags(`${name}:first`, "fourth", opts);
    const tags = async () => (await Template.getTags(name, opts)).map((tag) => tag.tag);
    expect(await tags()).toEqual(expect.arrayContaining(["first", "second", "third", "fourth"]));
    expect(await output(await create({ template: `${name}:third` }), "echo $TAGGED")).toBe("yes");
    await Template.removeTags(name, ["second", "third"]);
    await Template.removeTags(name, "fourth", opts);
    expect(await tags()).toContain("first");
    for (const tag of ["second", "third", "fourth"]) expect(await tags()).not.toContain(tag);
  });

  test.runIf(!isOlder)("has the free disk that is asked for", async () => {
    const name = unique();
    await build(base().runCmd("true"), name, { minFreeDiskMb: 1024 });
    const sandbox = await create({ template: name });
    expect(Number(await output(sandbox, "df --output=avail -m / | tail -1"))).toBeGreaterThanOrEqual(1000);
  });
});

describe("refused is", () => {
  test.each(["with space", "a/b/c", "ü"])("a template with the name '%s'", async (name) => {
    expect(await failure(build(base().runCmd("true"), name))).toBeInstanceOf(BuildError);
  });

  test("a template of an unknown one", async () => {
    const error = await failure(build(begin().fromTemplate("nothing-of-the-kind").runCmd("true")));
    expect(error.message).toContain("nothing-of-the-kind");
  });

  test("a tag of what does not exist", async () => {
    const calls = [
      () => Template.getTags(unique()),
      () => Template.assignTags(`${unique()}:none`, "tag"),
      () => Template.removeTags(unique(), "tag"),
    ];
    for (const call of calls) expect(await failure(call())).toBeInstanceOf(TemplateError);
  });

  test.each([{ cpuCount: 0 }, { memoryMB: -1 }, { memoryMB: 1e9 }])("a template with %o", async (opts) => {
    expect(await failure(build(base().runCmd("true"), unique(), opts))).toBeInstanceOf(BuildError);
  });
});
