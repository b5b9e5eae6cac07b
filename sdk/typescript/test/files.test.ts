import { beforeAll, describe, expect, test } from "vitest";

import {
  ApiError,
  ConflictError,
  InvalidArgumentError,
  NotFoundError,
  type Sandbox,
  type WatchEvent,
} from "@dormouse/sdk";
import { download, upload } from "@dormouse/sdk/node";

import { createSandbox, dormouse, failure, unique, until } from "./support.js";

let sandbox: Sandbox;

beforeAll(async () => {
  sandbox = await createSandbox({ name: unique("files") });
});

const everyByte = Uint8Array.from({ length: 256 }, (_, at) => at);

describe("contents", () => {
  test("are text", async () => {
    const written = await sandbox.files.write("/work/a/text", "Grüße 🐭\n");
    expect(written).toMatchObject({ path: "/work/a/text", kind: "file", sizeBytes: 13, mode: "0644", owner: "root" });
    expect(await sandbox.files.readText("/work/a/text")).toBe("Grüße 🐭\n");
  });

  test("are bytes", async () => {
    await sandbox.files.write("/work/bytes", everyByte);
    expect(await sandbox.files.read("/work/bytes")).toEqual(everyByte);
  });

  test("may be empty", async () => {
    await sandbox.files.write("/work/empty", "");
    expect(await sandbox.files.read("/work/empty")).toHaveLength(0);
  });

  test.each([
    ["an ArrayBuffer", () => everyByte.buffer],
    ["a Blob", () => new Blob([everyByte])],
    ["a stream", () => new Blob([everyByte]).stream()],
    ["an async iterable", () => pieces()],
  ])("are sent from %s", async (_, data) => {
    await sandbox.files.write("/work/sent", data());
    expect(await sandbox.files.read("/work/sent")).toEqual(everyByte);
  });

  test("of ten megabytes are streamed both ways", async () => {
    const part = new Uint8Array(1 << 20).fill(3);
    async function* parts(): AsyncGenerator<Uint8Array> {
      for (let n = 0; n < 10; n++) yield part;
    }
    expect((await sandbox.files.write("/work/big", parts())).sizeBytes).toBe(10 << 20);
    let length = 0;
    for await (const piece of await sandbox.files.readStream("/work/big")) length += piece.length;
    expect(length).toBe(10 << 20);
  });

  test.each([
    [{ start: 250 }, [250, 251, 252, 253, 254, 255]],
    [{ end: 2 }, [0, 1]],
    [{ start: 5, end: 6 }, [5]],
    [{ start: 255, end: 9999 }, [255]],
  ])("are read in part: %j", async (range, expected) => {
    await sandbox.files.write("/work/range", everyByte);
    expect([...(await sandbox.files.read("/work/range", range))]).toEqual(expected);
  });

  test("have no part past their end", async () => {
    await sandbox.files.write("/work/range", everyByte);
    expect((await failure(sandbox.files.read("/work/range", { start: 256 }), InvalidArgumentError)).status).toBe(416);
  });

  test("are appended, and written at an offset", async () => {
    await sandbox.files.write("/work/parts", "hello");
    await sandbox.files.write("/work/parts", " world", { append: true });
    await sandbox.files.write("/work/parts", "J", { offset: 0 });
    expect(await sandbox.files.readText("/work/parts")).toBe("Jello world");
  });

  test("replace a file, or are written in place", async () => {
    const inode = async (): Promise<string> => (await sandbox.exec("stat -c %i /work/place")).stdout;
    await sandbox.files.write("/work/place", "one");
    const first = await inode();
    await sandbox.files.write("/work/place", "two", { inPlace: true });
    expect(await inode()).toBe(first);
    await sandbox.files.write("/work/place", "three");
    expect(await inode()).not.toBe(first);
  });

  test("have mode and owner", async () => {
    const stat = await sandbox.files.write("/work/script", "#!/bin/sh\necho ran\n", { mode: "755", user: "nobody" });
    expect(stat).toMatchObject({ mode: "0755", owner: "nobody" });
    expect((await sandbox.exec("/work/script")).stdout).toBe("ran\n");
  });

  test("a write without parents fails if they are missing", async () => {
    await failure(sandbox.files.write("/work/missing/file", "x", { parents: false }), NotFoundError);
  });

  test("an upload that breaks off changes nothing", async () => {
    await sandbox.files.write("/work/kept", "old");
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield new Uint8Array(100_000);
      throw new Error("the source failed");
    }
    await expect(sandbox.files.write("/work/kept", broken())).rejects.toThrow();
    expect(await sandbox.files.readText("/work/kept")).toBe("old");
  });
});

describe("directories", () => {
  test("are created with parents, listed in order and to a depth", async () => {
    await sandbox.files.mkdir("/tree/b/c");
    await sandbox.files.write("/tree/a", "1");
    await sandbox.files.write("/tree/b/c/d", "2");
    const paths = async (depth?: number): Promise<string[]> => {
      const entries = await sandbox.files.list("/tree", depth === undefined ? {} : { depth }).toArray();
      return entries.map(({ path, kind }) => `${kind} ${path}`);
    };
    expect(await paths()).toEqual(["file /tree/a", "directory /tree/b"]);
    expect(await paths(3)).toEqual(["file /tree/a", "directory /tree/b", "directory /tree/b/c", "file /tree/b/c/d"]);
  });

  test("of many entries are listed in pages", async () => {
    await sandbox.exec("mkdir -p /many && cd /many && seq -w 1 2500 | xargs touch", { check: true });
    const pages: number[] = [];
    for await (const page of sandbox.files.list("/many").pages()) pages.push(page.length);
    expect(pages.length).toBeGreaterThan(1);
    expect(pages.reduce((total, length) => total + length, 0)).toBe(2500);
  });

  test("may exist, unless they should not", async () => {
    await sandbox.files.mkdir("/work/dir");
    await sandbox.files.mkdir("/work/dir");
    await failure(sandbox.files.mkdir("/work/dir", { exclusive: true }), ConflictError);
  });

  test("are moved and removed", async () => {
    await sandbox.files.write("/work/from/x", "1");
    const moved = await sandbox.files.move("/work/from", "/work/new/to", { parents: true });
    expect(moved.path).toBe("/work/new/to");
    await failure(sandbox.files.remove("/work/new/to"), ConflictError);
    await sandbox.files.remove("/work/new/to", { recursive: true });
    expect(await sandbox.files.exists("/work/new/to")).toBe(false);
    expect(await sandbox.files.exists("/work/new")).toBe(true);
  });

  test("are archived and extracted", async () => {
    await sandbox.files.write("/archive/from/x", "1");
    await sandbox.files.write("/archive/from/sub/y", everyByte);
    await sandbox.files.writeArchive("/archive/to", sandbox.files.readArchive("/archive/from"));
    expect(await sandbox.files.readText("/archive/to/x")).toBe("1");
    expect(await sandbox.files.read("/archive/to/sub/y")).toEqual(everyByte);
    const read = async (): Promise<void> => {
      for await (const _ of sandbox.files.readArchive("/no/such/directory")) void _;
    };
    await expect(read()).rejects.toThrow("cannot archive /no/such/directory");
  });

  test("are copied from and to this host", async () => {
    const { mkdtemp, readFile, rm, writeFile, mkdir } = await import("node:fs/promises");
    const { join } = await import("node:path");
    const { tmpdir } = await import("node:os");
    const here = await mkdtemp(join(tmpdir(), "dormouse-sdk-"));
    try {
      await mkdir(join(here, "project/sub"), { recursive: true });
      await writeFile(join(here, "project/sub/file"), "contents");
      await upload(sandbox, join(here, "project"), "/copied");
      expect(await sandbox.files.readText("/copied/sub/file")).toBe("contents");
      await download(sandbox, "/copied", join(here, "back"));
      expect(await readFile(join(here, "back/sub/file"), "utf8")).toBe("contents");
      await upload(sandbox, join(here, "project/sub/file"), "/copied-file");
      await download(sandbox, "/copied-file", join(here, "one"));
      expect(await readFile(join(here, "one"), "utf8")).toBe("contents");
    } finally {
      await rm(here, { recursive: true });
    }
  });
});

describe("paths", () => {
  test("of symbolic links are not followed by stat", async () => {
    await sandbox.exec("ln -sf /etc/hostname /work/link", { check: true });
    expect(await sandbox.files.stat("/work/link")).toMatchObject({ kind: "link", link: "/etc/hostname" });
  });

  test("that are not UTF-8 have their bytes beside the text", async () => {
    await sandbox.exec("mkdir -p /odd && touch \"/odd/$(printf 'a\\377')\"", { check: true });
    const [entry] = await sandbox.files.list("/odd").toArray();
    expect(entry?.path).toBe("/odd/a\ufffd");
    const bytes = entry?.pathBytes;
    expect(bytes?.at(-1)).toBe(0xff);
    await sandbox.files.move(bytes!, "/odd/b");
    expect(await sandbox.files.exists("/odd/b")).toBe(true);
  });

  test("may have any character", async () => {
    const path = "/work/a b&c=d?e#f%20g+ü🐭";
    await sandbox.files.write(path, "x");
    expect(await sandbox.files.readText(path)).toBe("x");
  });

  test.each(["relative", "", "/a\0b"])("'%s' is refused", async (path) => {
    await failure(sandbox.files.read(path), InvalidArgumentError);
  });

  test("that do not exist are not found", async () => {
    await failure(sandbox.files.read("/nowhere"), NotFoundError);
    await failure(sandbox.files.stat("/nowhere"), NotFoundError);
    await failure(sandbox.files.list("/nowhere").toArray(), NotFoundError);
    await failure(sandbox.files.remove("/nowhere"), NotFoundError);
    expect(await sandbox.files.exists("/nowhere")).toBe(false);
  });

  test("a directory is no file, and a file no directory", async () => {
    await failure(sandbox.files.read("/etc"), ApiError);
    await failure(sandbox.files.list("/etc/hostname").toArray(), ApiError);
  });

  test("a missing sandbox is not a missing file", async () => {
    const ended = await dormouse.sandboxes.create({ image: "base" });
    await ended.terminate();
    await failure(ended.files.exists("/etc"), ApiError);
  });
});

describe("searches", () => {
  beforeAll(async () => {
    await sandbox.files.write("/search/one.py", "import os\nprint('needle')\n");
    await sandbox.files.write("/search/sub/two.txt", "a NEEDLE\n");
  });

  test("find files by name and kind", async () => {
    const { files, search } = await sandbox.files.find("/search", { name: "*.py" });
    expect(files.map(({ path }) => path)).toEqual(["/search/one.py"]);
    expect(search.truncatedBy).toBeNull();
    expect((await sandbox.files.find("/search", { kind: "directory" })).files.map(({ path }) => path)).toEqual([
      "/search/sub",
    ]);
  });

  test("find lines by a pattern", async () => {
    const { lines } = await sandbox.files.grep("/search", "need(le)", { ignoreCase: true });
    expect(lines.map(({ path, line, text }) => [path, line, text])).toEqual([
      ["/search/one.py", 2, "print('needle')"],
      ["/search/sub/two.txt", 1, "a NEEDLE"],
    ]);
  });

  test("find text as it is", async () => {
    expect((await sandbox.files.grep("/search", "('needle')", { literal: true })).lines).toHaveLength(1);
    await failure(sandbox.files.grep("/search", "(", {}), InvalidArgumentError);
  });

  test("end at a limit, and say so", async () => {
    const { files, search } = await sandbox.files.find("/usr", { limit: 3 });
    expect(files).toHaveLength(3);
    expect(search.truncatedBy).toBe("results");
  });
});

describe("attributes", () => {
  test("are set, read and removed", async () => {
    await sandbox.files.write("/work/attributes", "x");
    const set = await sandbox.files.setAttributes("/work/attributes", {
      "user.a": "text",
      "user.b": Uint8Array.of(255),
    });
    expect([...set.keys()].sort()).toEqual(["user.a", "user.b"]);
    await sandbox.files.setAttributes("/work/attributes", { "user.a": null });
    expect(await sandbox.files.attributes("/work/attributes")).toEqual(new Map([["user.b", Uint8Array.of(255)]]));
    await failure(sandbox.files.setAttributes("/work/attributes", { "system.x": "y" }), ApiError);
  });
});

describe("watches", () => {
  test("yield changes that happen after they have begun", async () => {
    await sandbox.files.mkdir("/watched/sub");
    const changes = await sandbox.files.watch("/watched", { recursive: true });
    await sandbox.files.write("/watched/sub/new", "x");
    const seen: WatchEvent[] = [];
    for await (const change of changes) {
      seen.push(change);
      if (change.path === "/watched/sub/new") break;
    }
    expect(seen.at(-1)?.path).toBe("/watched/sub/new");
  });

  test("of a missing directory fail at once", async () => {
    await failure(sandbox.files.watch("/nowhere"), NotFoundError);
  });

  test("a watcher keeps changes, also across a suspend", async () => {
    await sandbox.files.mkdir("/kept");
    const { watcher } = await sandbox.watchers.create("/kept");
    expect((await sandbox.watchers.list()).map((it) => it.watcher)).toContain(watcher);
    await sandbox.files.write("/kept/one", "x");
    await sandbox.suspend();
    await sandbox.resume();
    await sandbox.files.remove("/kept/one");
    const { events, next } = await sandbox.watchers.events(watcher);
    expect(events.map(({ kind, path }) => `${kind} ${path}`)).toContain("removed /kept/one");
    expect(events.some(({ path }) => path === "/kept/one")).toBe(true);
    expect((await sandbox.watchers.events(watcher, { after: next })).events).toEqual([]);
    await sandbox.watchers.remove(watcher);
    await failure(sandbox.watchers.events(watcher), NotFoundError);
  });
});

test("a suspended sandbox is woken only if the call says so", async () => {
  await sandbox.suspend();
  await failure(sandbox.files.stat("/etc"), ConflictError);
  await sandbox.files.stat("/etc", { wake: "any" });
  await until("it runs", async () => (await sandbox.refresh()).state === "running");
});

async function* pieces(): AsyncGenerator<Uint8Array> {
  yield everyByte.subarray(0, 100);
  yield everyByte.subarray(100);
}
