// Templates: quickstart, definition, start command, build, names, tags, caching, logging, errors.
import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BuildError, Sandbox, Template, defaultBuildLogger, waitForPort, waitForTimeout } from "e2b";
import { example, main, until } from "./pages.mjs";

async function remove(name) {
  const headers = { "X-API-Key": process.env.E2B_API_KEY };
  await fetch(`${process.env.E2B_API_URL}/templates/${name}`, { method: "DELETE", headers });
}

/** Runs a command in a new sandbox of a template. */
async function said(template, command) {
  const sandbox = await Sandbox.create(template);
  try {
    return (await sandbox.commands.run(command)).stdout;
  } finally {
    await sandbox.kill();
  }
}

const base = () => Template().fromTemplate("base");

example("Quickstart: define, build, use", async () => {
  const template = Template().fromBaseImage().setEnvs({ HELLO: "Hello, World!" });
  const started = template.setStartCmd('echo "$HELLO"', waitForTimeout(1_000));
  await Template.build(started, "js-page-quickstart", {
    cpuCount: 1,
    memoryMB: 1024,
    onBuildLogs: defaultBuildLogger(),
  });
  assert.equal(await said("js-page-quickstart", "echo $HELLO"), "Hello, World!\n");
  await remove("js-page-quickstart");
});

example("User and working directory", async () => {
  await Template.build(base().setUser("root").setWorkdir("/srv"), "js-page-user");
  assert.equal(await said("js-page-user", "whoami; pwd"), "root\n/srv\n");
  await remove("js-page-user");
});

example("Copy files, run commands, set variables", async () => {
  const fileContextPath = mkdtempSync(join(tmpdir(), "page-"));
  writeFileSync(join(fileContextPath, "package.json"), "{}");
  const template = Template({ fileContextPath })
    .fromTemplate("base")
    .copy("package.json", "/app/package.json", { user: "user", mode: 0o644 })
    .runCmd(["mkdir -p /home/user/a", "touch /home/user/a/b"])
    .makeDir("/home/user/logs")
    .rename("/home/user/a/b", "/home/user/a/c")
    .remove("/home/user/logs", { recursive: true })
    .makeSymlink("/home/user/a", "/home/user/link")
    .setEnvs({ NODE_ENV: "production" });
  await Template.build(template, "js-page-define");
  const words = (await said("js-page-define", "ls /app link; echo $NODE_ENV")).split(/\s+/);
  assert.deepEqual(words.filter(Boolean), ["/app:", "package.json", "link:", "c", "production"]);
  await remove("js-page-define");
});

example("From a Dockerfile", async () => {
  await Template.build(
    Template().fromDockerfile("FROM base\nWORKDIR /app\nRUN echo built > file\n"),
    "js-page-dockerfile",
  );
  assert.equal(await said("js-page-dockerfile", "cat /app/file"), "built\n");
  await remove("js-page-dockerfile");
});

example("Start and ready commands", async () => {
  await Template.build(base().setStartCmd("python3 -m http.server 8000", waitForPort(8000)), "js-page-start");
  assert((await said("js-page-start", "curl -sI http://localhost:8000")).includes("200 OK"));
  await remove("js-page-start");
});

example("Build in the background, and ask for the status", async () => {
  const options = { cpuCount: 1, memoryMB: 512 };
  const info = await Template.buildInBackground(base().runCmd("echo built"), "js-page-background", options);
  const ended = await until(async () => {
    const { status } = await Template.getBuildStatus(info);
    return ["ready", "error"].includes(status) && status;
  });
  assert.equal(ended, "ready");
  await remove("js-page-background");
});

example("Names: existence", async () => {
  assert.equal(await Template.exists("base"), true);
  assert.equal(await Template.exists("page-not-there"), false);
});

example("Tags: build, assign, use, remove", async () => {
  await Template.build(base().setEnvs({ VERSION: "1" }), "js-page-tags:v1", { tags: ["latest"] });
  await Template.assignTags("js-page-tags:v1", ["production"]);
  assert.equal(await said("js-page-tags:production", "echo $VERSION"), "1\n");
  const tags = async () => (await Template.getTags("js-page-tags")).map((tag) => tag.tag);
  for (const tag of ["v1", "latest", "production"]) assert((await tags()).includes(tag));
  await Template.removeTags("js-page-tags", "production");
  assert(!(await tags()).includes("production"));
  await remove("js-page-tags");
});

example("Caching: a part, and all", async () => {
  // Not the steps of the program in Python, which has them built at the same time.
  const random = "od -An -N8 -tx8 /dev/urandom >";
  async function built(options = {}) {
    await Template.build(
      base().runCmd(`${random} /tmp/js-1`).skipCache().runCmd(`${random} /tmp/js-2`),
      "js-page-caching",
      options,
    );
    return (await said("js-page-caching", "cat /tmp/js-1 /tmp/js-2")).trim().split("\n");
  }
  const [first, second, third] = [await built(), await built(), await built({ skipCache: true })];
  assert.deepEqual([first[0] === second[0], first[1] === second[1], first[0] === third[0]], [true, false, false]);
  await remove("js-page-caching");
});

example("Logging", async () => {
  const entries = [];
  const onBuildLogs = (entry) => void entries.push(entry.message);
  await Template.build(base().runCmd("echo a line of the log"), "js-page-logging", { onBuildLogs });
  assert(entries.some((entry) => entry.includes("a line of the log")));
  await remove("js-page-logging");
});

example("Errors", async () => {
  await assert.rejects(Template.build(base().runCmd("exit 7"), "js-page-errors"), BuildError);
  await remove("js-page-errors");
});

await main();
