// Sandbox: auto-resume.
import assert from "node:assert/strict";
import { Sandbox } from "e2b";
import { example, main, until, visit } from "./pages.mjs";

const lifecycle = { onTimeout: "pause", autoResume: true };

example("Configure", async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 10 * 60 * 1000, lifecycle });
  assert.deepEqual((await sandbox.getInfo()).lifecycle, lifecycle);
  await sandbox.kill();
});

example("A command wakes a paused sandbox", async () => {
  const sandbox = await Sandbox.create({ lifecycle });
  await sandbox.files.write("/home/user/hello.txt", "hello");
  await sandbox.pause();
  assert.equal(await sandbox.files.read("/home/user/hello.txt"), "hello");
  assert.equal((await sandbox.getInfo()).state, "running");
  await sandbox.kill();
});

example("A request wakes a preview server", async () => {
  const sandbox = await Sandbox.create({ lifecycle });
  await sandbox.commands.run("python3 -m http.server 3000", { background: true, timeoutMs: 0 });
  await until(async () => (await visit(sandbox.getHost(3000))).status === 200);
  await sandbox.pause();
  assert.equal((await visit(sandbox.getHost(3000))).status, 200);
  await sandbox.kill();
});

example("Pause and wake again and again", async () => {
  const sandbox = await Sandbox.create({ lifecycle });
  for (const turn of [1, 2, 3]) {
    await sandbox.setTimeout(0);
    await until(async () => (await sandbox.getInfo()).state === "paused");
    assert.equal((await sandbox.commands.run(`echo ${turn}`)).stdout, `${turn}\n`);
  }
  await sandbox.kill();
});

await main();
