// Sandbox: persistence.
import assert from "node:assert/strict";
import { NotFoundError, Sandbox } from "e2b";
import { example, main, until, visit } from "./pages.mjs";

example("Pause and resume", async () => {
  const sandbox = await Sandbox.create();
  await sandbox.files.write("kept", "text");
  await sandbox.pause();
  assert.equal((await sandbox.getInfo()).state, "paused");
  const same = await sandbox.connect();
  assert.equal(await same.files.read("kept"), "text");
  await same.kill();
});

example("Resume by id from elsewhere", async () => {
  const sandbox = await Sandbox.create();
  await sandbox.pause();
  const same = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 });
  assert(await same.isRunning());
  await same.kill();
});

example("List paused sandboxes", async () => {
  const sandbox = await Sandbox.create({ metadata: { page: "persistence" } });
  await sandbox.pause();
  const found = await Sandbox.list({ query: { state: ["paused"], metadata: { page: "persistence" } } }).nextItems();
  assert(found.some((item) => item.sandboxId === sandbox.sandboxId));
  await sandbox.kill();
});

example("Remove a paused sandbox", async () => {
  const sandbox = await Sandbox.create();
  await sandbox.pause();
  await Sandbox.kill(sandbox.sandboxId);
  await assert.rejects(Sandbox.connect(sandbox.sandboxId), NotFoundError);
});

example("Pause on timeout", async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 1000, lifecycle: { onTimeout: "pause" } });
  await until(async () => (await sandbox.getInfo()).state === "paused");
  await sandbox.kill();
});

example("A service is down while paused and back after resuming", async () => {
  const sandbox = await Sandbox.create();
  await sandbox.commands.run("python3 -m http.server 3000", { background: true, timeoutMs: 0 });
  const status = async () => (await visit(sandbox.getHost(3000))).status;
  await until(async () => (await status()) === 200);
  await sandbox.pause();
  assert.equal(await status(), 502);
  await sandbox.connect();
  assert.equal(await status(), 200);
  await sandbox.kill();
});

await main();
