// Sandbox: overview and lifecycle.
import assert from "node:assert/strict";
import { Sandbox } from "e2b";
import { example, main, until } from "./pages.mjs";

const lifetime = (info) => (info.endAt - info.startedAt) / 1000;

example("Start with a timeout", async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 60_000 });
  const secs = lifetime(await sandbox.getInfo());
  assert(secs > 58 && secs < 62);
  await sandbox.kill();
});

example("Change the timeout while it runs", async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 60_000 });
  await sandbox.setTimeout(30_000);
  assert(lifetime(await sandbox.getInfo()) < 60);
  await sandbox.kill();
});

example("Retrieve information", async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 60_000, metadata: { name: "page" } });
  const info = await sandbox.getInfo();
  assert.equal(info.sandboxId, sandbox.sandboxId);
  assert.deepEqual([info.metadata, info.name], [{ name: "page" }, "base"]);
  await sandbox.kill();
});

example("Shut down", async () => {
  const sandbox = await Sandbox.create();
  assert(await sandbox.kill());
  await until(async () => !(await sandbox.isRunning()));
});

await main();
