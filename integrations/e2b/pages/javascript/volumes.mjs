// Volumes: managing, mounting, reading and writing, information.
import assert from "node:assert/strict";
import { Sandbox, Volume, VolumeFileType } from "e2b";
import { example, main } from "./pages.mjs";

example("Create, connect, list, information, destroy", async () => {
  const volume = await Volume.create("js-page-manage");
  assert.equal((await Volume.connect(volume.volumeId)).name, "js-page-manage");
  assert((await Volume.list()).some((one) => one.volumeId === volume.volumeId));
  assert.equal((await Volume.getInfo(volume.volumeId)).name, "js-page-manage");
  assert.equal(await Volume.destroy(volume.volumeId), true);
});

example("Mount", async () => {
  const volume = await Volume.create("js-page-mount");
  for (const by of [volume, "js-page-mount"]) {
    const sandbox = await Sandbox.create({ volumeMounts: { "/mnt/my-data": by } });
    await sandbox.files.write("/mnt/my-data/hello.txt", "Hello, world!");
    await sandbox.kill();
    assert.equal(await volume.readFile("/hello.txt"), "Hello, world!");
  }
  await Volume.destroy(volume.volumeId);
});

example("Read and write files", async () => {
  const volume = await Volume.create("js-page-files");
  await volume.writeFile("/file", "file content");
  assert.equal(await volume.readFile("/file"), "file content");
  await volume.makeDir("/a/b", { force: true });
  assert.deepEqual(
    (await volume.list("/")).map((entry) => entry.name),
    ["a", "file"],
  );
  await volume.remove("/a");
  assert.equal(await volume.exists("/a"), false);
  await Volume.destroy(volume.volumeId);
});

example("Information and metadata of files", async () => {
  const volume = await Volume.create("js-page-information");
  await volume.writeFile("/file", "12345");
  const { name, type, size } = await volume.getInfo("/file");
  assert.deepEqual([name, type, size], ["file", VolumeFileType.FILE, 5]);
  assert.equal((await volume.updateMetadata("/file", { uid: 1000, gid: 1000, mode: 0o600 })).uid, 1000);
  await Volume.destroy(volume.volumeId);
});

example("Upload and download", async () => {
  const volume = await Volume.create("js-page-transfer");
  await volume.writeFile("/data", new Blob([new Uint8Array([0, 1])]));
  assert.deepEqual([...(await volume.readFile("/data", { format: "bytes" }))], [0, 1]);
  await Volume.destroy(volume.volumeId);
});

await main();
