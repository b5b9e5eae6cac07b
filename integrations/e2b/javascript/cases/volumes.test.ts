import { describe, expect, onTestFinished, test } from "vitest";
import {
  Volume,
  VolumeError,
  VolumeFileType,
  VolumeNotFoundError,
  VolumePathNotFoundError,
  isOlder,
} from "../support/client.ts";
import { create, failure, output, unique, variable } from "../support/guest.ts";

async function volume(): Promise<Volume> {
  const made = await Volume.create(unique());
  onTestFinished(async () => void (await Volume.destroy(made.volumeId)));
  return made;
}

describe("a volume", () => {
  test("has a name, an id and a token, and is listed", async () => {
    const { volumeId, name, token } = await volume();
    expect(token).toBeTruthy();
    expect(await Volume.list()).toContainEqual({ volumeId, name });
    expect(await Volume.getInfo(volumeId)).toMatchObject({ volumeId, name });
  });

  test("can be connected to", async () => {
    const made = await volume();
    await made.writeFile("/note", "text");
    expect(await (await Volume.connect(made.volumeId)).readFile("/note")).toBe("text");
  });

  test("that is destroyed is gone", async () => {
    const made = await Volume.create(unique());
    expect(await Volume.destroy(made.volumeId)).toBe(true);
    expect(await Volume.destroy(made.volumeId)).toBe(false);
    expect(await failure(Volume.getInfo(made.volumeId))).toBeInstanceOf(VolumeNotFoundError);
    expect(await failure(Volume.connect(made.volumeId))).toBeInstanceOf(VolumeNotFoundError);
  });

  test.each(["", "with space", "a/b", "../x", "ü"])("cannot have the name '%s'", async (name) => {
    expect(await failure(Volume.create(name))).toBeInstanceOf(VolumeError);
  });

  test("is a directory of a sandbox, outlives it, and stays mounted after a pause", async () => {
    const made = await volume();
    await made.writeFile("/note", "from outside");
    const sandbox = await create({ volumeMounts: { "/mnt/data": made } });
    expect(await sandbox.files.read("/mnt/data/note")).toBe("from outside");
    await output(sandbox, "echo from inside > /mnt/data/answer", { user: "root" });
    expect((await sandbox.getInfo()).volumeMounts).toEqual([{ name: made.name, path: "/mnt/data" }]);
    await sandbox.pause();
    await sandbox.connect();
    expect(await sandbox.files.read("/mnt/data/answer")).toBe("from inside\n");
    await sandbox.kill();
    expect(await made.readFile("/answer")).toBe("from inside\n");
    const other = await create({ volumeMounts: { "/mnt/data": made.name } });
    expect(await other.files.read("/mnt/data/answer")).toBe("from inside\n");
  });
});

describe("a file of a volume", () => {
  test("is read as it was written in every format", async () => {
    const made = await volume();
    const data = Uint8Array.from({ length: 100_000 }, (_, n) => n % 251);
    const stream = new Blob([data]).stream();
    for (const from of [data.buffer, new Blob([data]), stream]) {
      expect((await made.writeFile("/dir/file", from, { force: true })).size).toBe(data.length);
      expect(Buffer.from(await made.readFile("/dir/file", { format: "bytes" })).equals(Buffer.from(data))).toBe(true);
    }
    expect((await made.readFile("/dir/file", { format: "blob" })).size).toBe(data.length);
    const chunks: Uint8Array[] = [];
    const read = await made.readFile("/dir/file", { format: "stream", streamIdleTimeoutMs: 30_000 });
    for await (const chunk of read) chunks.push(chunk);
    expect(Buffer.concat(chunks).length).toBe(data.length);
    await made.writeFile("/note", "text");
    expect(await made.readFile("/note", { format: "text" })).toBe("text");
  });

  test("has the owner and mode that are chosen", async () => {
    const made = await volume();
    const stat = await made.writeFile("/note", "text", { uid: 1234, gid: 2345, mode: 0o640 });
    expect([stat.uid, stat.gid, stat.mode & 0o7777]).toEqual([1234, 2345, 0o640]);
    const changed = await made.updateMetadata("/note", { uid: 1, gid: 2, mode: 0o600 });
    expect([changed.uid, changed.gid, changed.mode & 0o7777]).toEqual([1, 2, 0o600]);
  });

  test("is found, listed and removed", async () => {
    const made = await volume();
    await made.makeDir("/one/two", { force: true, uid: 1, gid: 1, mode: 0o755 });
    await made.writeFile("/one/note", "12345");
    expect(await made.getInfo("/one/note")).toMatchObject({ name: "note", type: VolumeFileType.FILE, size: 5 });
    expect((await made.list("/")).map((entry) => entry.path)).toEqual(["/one"]);
    expect((await made.list("/", { depth: 2 })).map((entry) => entry.path).sort()).toEqual([
      "/one",
      "/one/note",
      "/one/two",
    ]);
    expect(await made.exists("/one/note")).toBe(true);
    await made.remove("/one");
    expect(await made.exists("/one/note")).toBe(false);
  });

  test("that is missing is named", async () => {
    const made = await volume();
    const calls = [
      () => made.readFile("/none"),
      () => made.getInfo("/none"),
      () => made.list("/none"),
      () => made.remove("/none"),
      () => made.updateMetadata("/none", { mode: 0o600 }),
    ];
    for (const call of calls) expect(await failure(call())).toBeInstanceOf(VolumePathNotFoundError);
  });

  test("can be had with other options of the connection", async () => {
    const made = await volume();
    const opts = { token: made.token, apiUrl: variable("E2B_VOLUME_API_URL"), domain: "example.com", debug: false };
    const more = {
      requestTimeoutMs: 30_000,
      headers: { "X-Case": "one" },
      // With a logger, the older client refuses every answer that it gets in Node.js 24.
      ...(isOlder ? {} : { logger: {} }),
      signal: new AbortController().signal,
    };
    await made.writeFile("/note", "text", { ...opts, ...more });
    expect(await made.readFile("/note", { ...opts, ...more })).toBe("text");
    expect(await failure(made.getInfo("/note", { token: "wrong" }))).toBeInstanceOf(Error);
  });
});
