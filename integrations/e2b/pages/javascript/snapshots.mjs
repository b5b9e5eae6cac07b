// Sandbox: snapshots, filesystem-only snapshots, and forks.
import assert from "node:assert/strict";
import { Sandbox } from "e2b";
import { example, main, until } from "./pages.mjs";

const BOOT_ID = "/proc/sys/kernel/random/boot_id";

example("Create a snapshot and start from it", async () => {
  const sandbox = await Sandbox.create();
  await sandbox.files.write("/app/state.json", '{"step": 1}', { user: "root" });
  const { snapshotId } = await sandbox.createSnapshot();
  for (const _ of [1, 2]) {
    const copy = await Sandbox.create(snapshotId);
    assert.equal(await copy.files.read("/app/state.json"), '{"step": 1}');
    await copy.kill();
  }
  assert(await sandbox.isRunning());
  await sandbox.kill();
  await Sandbox.deleteSnapshot(snapshotId);
});

example("Create a snapshot by the id of a sandbox", async () => {
  const sandbox = await Sandbox.create();
  const { snapshotId } = await Sandbox.createSnapshot(sandbox.sandboxId);
  assert(await Sandbox.deleteSnapshot(snapshotId));
  await sandbox.kill();
});

example("List snapshots", async () => {
  const sandbox = await Sandbox.create();
  const { snapshotId } = await sandbox.createSnapshot();
  for (const paginator of [Sandbox.listSnapshots(), Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId })]) {
    const found = [];
    while (paginator.hasNext) found.push(...(await paginator.nextItems()));
    assert(found.some((item) => item.snapshotId === snapshotId));
  }
  await Sandbox.deleteSnapshot(snapshotId);
  await sandbox.kill();
});

example("Delete a snapshot", async () => {
  const sandbox = await Sandbox.create();
  const { snapshotId } = await sandbox.createSnapshot();
  assert.equal(await Sandbox.deleteSnapshot(snapshotId), true);
  assert.equal(await Sandbox.deleteSnapshot(snapshotId), false);
  await sandbox.kill();
});

example("A checkpoint before a risky change", async () => {
  const sandbox = await Sandbox.create();
  await sandbox.files.write("work", "good");
  const { snapshotId } = await sandbox.createSnapshot();
  await sandbox.commands.run("rm work");
  const restored = await Sandbox.create(snapshotId);
  assert.equal(await restored.files.read("work"), "good");
  await restored.kill();
  await sandbox.kill();
  await Sandbox.deleteSnapshot(snapshotId);
});

example("Pause only the filesystem", async () => {
  const sandbox = await Sandbox.create();
  const boot = await sandbox.files.read(BOOT_ID);
  await sandbox.files.write("kept", "text");
  await sandbox.pause({ keepMemory: false });
  await sandbox.connect();
  assert.equal(await sandbox.files.read("kept"), "text");
  assert.notEqual(await sandbox.files.read(BOOT_ID), boot);
  await sandbox.kill();
});

example("Pause only the filesystem on timeout", async () => {
  const lifecycle = { onTimeout: { action: "pause", keepMemory: false } };
  const sandbox = await Sandbox.create({ lifecycle });
  await sandbox.files.write("kept", "text");
  await sandbox.setTimeout(0);
  await until(async () => (await sandbox.getInfo()).state === "paused");
  await sandbox.connect();
  assert.equal(await sandbox.files.read("kept"), "text");
  await sandbox.kill();
});

example("Reboot instead of restoring", async () => {
  const sandbox = await Sandbox.create();
  const boot = await sandbox.files.read(BOOT_ID);
  await sandbox.pause();
  await sandbox.connect({ onResume: "reboot" });
  assert.notEqual(await sandbox.files.read(BOOT_ID), boot);
  await sandbox.kill();
});

example("Fork", async () => {
  const sandbox = await Sandbox.create();
  await sandbox.files.write("branch", "main");
  const forks = await sandbox.fork({ count: 2, timeoutMs: 60_000 });
  for (const [number, copy] of forks.entries()) {
    assert.equal(await copy.files.read("branch"), "main");
    await copy.files.write("branch", String(number));
  }
  for (const [number, copy] of forks.entries()) assert.equal(await copy.files.read("branch"), String(number));
  assert.equal(await sandbox.files.read("branch"), "main");
  for (const copy of [...forks, sandbox]) await copy.kill();
});

await main();
