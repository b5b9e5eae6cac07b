// Sandbox: metadata, list, connect, environment variables, metrics.
import assert from "node:assert/strict";
import { Sandbox as Interpreter } from "@e2b/code-interpreter";
import { Sandbox } from "e2b";
import { example, main, until } from "./pages.mjs";

const list = (query, opts = {}) => Sandbox.list({ ...opts, query });

example("Metadata: set and find", async () => {
  const sandbox = await Sandbox.create({ metadata: { userId: "js-123" } });
  const found = await list({ metadata: { userId: "js-123" } }).nextItems();
  assert.deepEqual(
    found.map((item) => item.metadata),
    [{ userId: "js-123" }],
  );
  await sandbox.kill();
});

example("Metadata: all pairs must match", async () => {
  const sandbox = await Sandbox.create({ metadata: { env: "dev", app: "my-app", userId: "js-1234" } });
  assert.equal((await list({ metadata: { userId: "js-1234", env: "dev" } }).nextItems()).length, 1);
  assert.equal((await list({ metadata: { userId: "js-1234", env: "prod" } }).nextItems()).length, 0);
  await sandbox.kill();
});

example("List: pages", async () => {
  const metadata = { page: "js-list" };
  const made = [];
  for (const _ of [1, 2, 3]) made.push(await Sandbox.create({ metadata }));
  const paginator = list({ metadata }, { limit: 2 });
  assert.deepEqual([(await paginator.nextItems()).length, paginator.hasNext], [2, true]);
  const rest = list({ metadata }, { limit: 2, nextToken: paginator.nextToken });
  assert.deepEqual([(await rest.nextItems()).length, rest.hasNext], [1, false]);
  for (const sandbox of made) await sandbox.kill();
});

example("List: by state", async () => {
  const sandbox = await Sandbox.create({ metadata: { page: "js-states" } });
  await sandbox.pause();
  const [found] = await list({ metadata: { page: "js-states" }, state: ["running", "paused"] }).nextItems();
  assert.equal(found.state, "paused");
  await sandbox.kill();
});

example("Connect to a running sandbox", async () => {
  const sandbox = await Sandbox.create({ metadata: { page: "js-connect" } });
  const [found] = await list({ metadata: { page: "js-connect" } }).nextItems();
  const same = await Sandbox.connect(found.sandboxId);
  assert.equal((await same.commands.run("whoami")).stdout, "user\n");
  await sandbox.kill();
});

example("Environment variables: of the sandbox", async () => {
  const sandbox = await Sandbox.create({ envs: { MY_VAR: "my_value" } });
  assert.equal((await sandbox.commands.run("echo $MY_VAR")).stdout, "my_value\n");
  await sandbox.kill();
});

example("Environment variables: of one command", async () => {
  const sandbox = await Sandbox.create();
  assert.equal((await sandbox.commands.run("echo $MY_VAR", { envs: { MY_VAR: "123" } })).stdout, "123\n");
  await sandbox.kill();
});

example("Environment variables: of one run of code", async () => {
  const sandbox = await Interpreter.create();
  const code = 'import os; print(os.environ.get("MY_VAR"))';
  assert.deepEqual((await sandbox.runCode(code, { envs: { MY_VAR: "my_value" } })).logs.stdout, ["my_value\n"]);
  await sandbox.kill();
});

example("Environment variables: what is always set", async () => {
  const sandbox = await Sandbox.create();
  const { stdout } = await sandbox.commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID");
  assert.equal(stdout, `true ${sandbox.sandboxId}\n`);
  await sandbox.kill();
});

example("Metrics", async () => {
  const sandbox = await Sandbox.create();
  const [first] = await until(async () => {
    const found = await sandbox.getMetrics();
    return found.length > 0 && found;
  });
  assert(first.cpuCount >= 1 && first.memUsed <= first.memTotal && first.diskUsed <= first.diskTotal);
  assert((await Sandbox.getMetrics(sandbox.sandboxId)).length > 0);
  await sandbox.kill();
});

await main();
