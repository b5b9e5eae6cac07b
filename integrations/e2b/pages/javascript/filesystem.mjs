// Filesystem: read and write, information, watching, upload and download.
import assert from "node:assert/strict";
import { FileType, FilesystemEventType, Sandbox } from "e2b";
import { example, main, until } from "./pages.mjs";

/** Names an example that has a sandbox. */
function withSandbox(title, run) {
  example(title, async () => {
    const sandbox = await Sandbox.create();
    await run(sandbox);
    await sandbox.kill();
  });
}

withSandbox("Read a file", async (sandbox) => {
  await sandbox.commands.run("echo content > my-file");
  assert.equal(await sandbox.files.read("/home/user/my-file"), "content\n");
});

withSandbox("Write one file", async (sandbox) => {
  await sandbox.files.write("/home/user/my-file", "file content");
  assert.equal((await sandbox.commands.run("cat my-file")).stdout, "file content");
});

withSandbox("Write several files", async (sandbox) => {
  await sandbox.files.write([
    { path: "dir/a", data: "file content" },
    { path: "dir/b", data: "other file content" },
  ]);
  assert.deepEqual((await sandbox.files.list("dir")).map((entry) => entry.name).sort(), ["a", "b"]);
});

withSandbox("Information on a file", async (sandbox) => {
  await sandbox.files.write("test_file.txt", "Hello, world!");
  const info = await sandbox.files.getInfo("test_file.txt");
  assert.deepEqual([info.name, info.type, info.path], ["test_file.txt", FileType.FILE, "/home/user/test_file.txt"]);
  assert.deepEqual([info.size, info.mode, info.permissions, info.owner], [13, 0o644, "-rw-r--r--", "user"]);
});

withSandbox("Information on a directory", async (sandbox) => {
  await sandbox.files.makeDir("test_dir");
  const info = await sandbox.files.getInfo("test_dir");
  assert.deepEqual([info.type, info.permissions], [FileType.DIR, "drwxr-xr-x"]);
});

withSandbox("Metadata of a file", async (sandbox) => {
  await sandbox.files.write("report.txt", "text", { metadata: { author: "page" } });
  assert.deepEqual((await sandbox.files.getInfo("report.txt")).metadata, { author: "page" });
});

withSandbox("Watch a directory", async (sandbox) => {
  await sandbox.files.makeDir("my-folder");
  const events = [];
  const handle = await sandbox.files.watchDir("my-folder", (event) => void events.push(event));
  await sandbox.files.write("my-folder/my-file", "hello");
  await until(() => events.some((event) => event.type === FilesystemEventType.WRITE && event.name === "my-file"));
  await handle.stop();
});

withSandbox("Watch a directory and all below it", async (sandbox) => {
  await sandbox.files.makeDir("my-folder");
  const names = [];
  const handle = await sandbox.files.watchDir("my-folder", (event) => void names.push(event.name), { recursive: true });
  await sandbox.files.write("my-folder/deep/my-file", "hello");
  await until(() => names.includes("deep/my-file"));
  await handle.stop();
});

withSandbox("Upload a file", async (sandbox) => {
  await sandbox.files.write("/home/user/my-file", new Blob([new Uint8Array([0, 1])]));
  assert.deepEqual([...(await sandbox.files.read("my-file", { format: "bytes" }))], [0, 1]);
});

withSandbox("Upload a directory", async (sandbox) => {
  await sandbox.files.write(["one", "two"].map((name) => ({ path: name, data: name })));
  assert.equal(await sandbox.files.read("two"), "two");
});

withSandbox("Upload with a signed URL", async (sandbox) => {
  const form = new FormData();
  form.append("file", new Blob(["hello"]));
  const url = await sandbox.uploadUrl("demo.txt", { useSignatureExpiration: 10_000 });
  assert.equal((await fetch(url, { method: "POST", body: form })).status, 200);
  assert.equal(await sandbox.files.read("demo.txt"), "hello");
});

withSandbox("Download a file", async (sandbox) => {
  await sandbox.files.write("my-file", "content");
  assert.equal(await (await sandbox.files.read("my-file", { format: "blob" })).text(), "content");
});

withSandbox("Download with a signed URL", async (sandbox) => {
  await sandbox.files.write("my-file", "content");
  const url = await sandbox.downloadUrl("my-file", { useSignatureExpiration: 10_000 });
  assert.equal(await (await fetch(url)).text(), "content");
});

await main();
