import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import {
  AuthenticationError,
  FileNotFoundError,
  FileType,
  type FilesystemEvent,
  InvalidArgumentError,
  NotFoundError,
  SandboxError,
} from "../support/client.ts";
import { BOOT_ID, eventually, failure, output, shared, unique } from "../support/guest.ts";

const common = shared();
const files = () => common.sandbox.files;
const NAMES = [
  "plain",
  "with space",
  "ü漢😀",
  "a'b\"c",
  "dollar$HOME",
  "percent%2F%00",
  "semi;colon",
  "-rf",
  "plus+and&",
  ".hidden",
  "a?b#c",
];

function stream(data: Uint8Array): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      for (let at = 0; at < data.length; at += 10_000) controller.enqueue(data.subarray(at, at + 10_000));
      controller.close();
    },
  });
}

const buffer = (data: Uint8Array): ArrayBuffer => Uint8Array.from(data).buffer;

describe("a file", () => {
  test.each(["text", "", "ünï — 漢字 😀", "line\r\nline\n", "\0null", "'\"$`\\"])(
    "with the text '%s' is read as written",
    async (text) => {
      const path = `${await common.home()}/note`;
      expect(await files().write(path, text)).toMatchObject({ name: "note", path, type: FileType.FILE });
      expect(await files().read(path)).toBe(text);
    },
  );

  test.each(NAMES)("can have the name '%s'", async (name) => {
    const home = await common.home();
    expect((await files().write(`${home}/${name}`, "text")).path).toBe(`${home}/${name}`);
    expect(await files().read(`${home}/${name}`)).toBe("text");
    expect((await files().list(home)).map((entry) => entry.name)).toEqual([name]);
    await files().remove(`${home}/${name}`);
    expect(await files().exists(`${home}/${name}`)).toBe(false);
  });

  test("is read in every format", async () => {
    const path = `${await common.home()}/data`;
    const data = randomBytes(300_000);
    await files().write(path, buffer(data));
    expect(Buffer.from(await files().read(path, { format: "bytes" })).equals(data)).toBe(true);
    expect(Buffer.from(await (await files().read(path, { format: "blob" })).arrayBuffer()).equals(data)).toBe(true);
    const chunks: Uint8Array[] = [];
    for await (const chunk of await files().read(path, { format: "stream", streamIdleTimeoutMs: 30_000 }))
      chunks.push(chunk);
    expect(Buffer.concat(chunks).equals(data)).toBe(true);
    await files().write(path, "text");
    expect(await files().read(path, { format: "text", requestTimeoutMs: 30_000 })).toBe("text");
  });

  test.each(["text", "bytes", "blob", "stream"] as const)("that is empty is empty as %s", async (format) => {
    const path = `${await common.home()}/empty`;
    await files().write(path, "");
    const found: any = await files().read(path, { format: format as "text" });
    if (format === "stream") {
      for await (const chunk of found) expect(chunk.length).toBe(0);
    } else expect(found.length ?? found.size).toBe(0);
  });

  test("is written from every kind of data", async () => {
    const home = await common.home();
    const data = randomBytes(200_000);
    for (const [name, from] of Object.entries({
      buffer: buffer(data),
      blob: new Blob([buffer(data)]),
      stream: stream(data),
    })) {
      await files().write(`${home}/${name}`, from);
      expect(Buffer.from(await files().read(`${home}/${name}`, { format: "bytes" })).equals(data), name).toBe(true);
    }
  });

  test("can have forty megabytes", async () => {
    const path = `${await common.home()}/large`;
    const data = Buffer.concat(Array.from({ length: 40 }, () => randomBytes(1 << 20)));
    await files().write(path, buffer(data));
    expect(Buffer.from(await files().read(path, { format: "bytes" })).equals(data)).toBe(true);
  });

  test.each([true, false])("is uploaded as octets or as a form: %s", async (useOctetStream) => {
    const home = await common.home();
    await files().write(`${home}/note`, "text", { useOctetStream });
    const entries = ["a", "b"].map((name) => ({ path: `${home}/deep/${name}`, data: name }));
    expect((await files().writeFiles(entries, { useOctetStream })).map((one) => one.path)).toEqual(
      entries.map((one) => one.path),
    );
    expect(await files().read(`${home}/deep/b`)).toBe("b");
  });

  test("is transferred compressed", async () => {
    const home = await common.home();
    const text = "compressible ".repeat(100_000);
    await files().write(`${home}/note`, text, { gzip: true });
    expect(await files().read(`${home}/note`, { gzip: true })).toBe(text);
  });

  test("is replaced in place", async () => {
    const path = `${await common.home()}/note`;
    await files().write(path, "long content");
    const inode = await output(common.sandbox, `stat -c %i ${path}`);
    await files().write(path, "short");
    expect(await files().read(path)).toBe("short");
    expect(await output(common.sandbox, `stat -c %i ${path}`)).toBe(inode);
  });

  test("creates the directories above, and belongs to the user", async () => {
    const home = await common.home();
    await files().write(`${home}/a/b/note`, "deep");
    expect(await files().getInfo(`${home}/a/b/note`)).toMatchObject({
      owner: "user",
      group: "user",
      mode: 0o644,
      permissions: "-rw-r--r--",
      size: 4,
    });
    expect(await files().getInfo(`${home}/a`)).toMatchObject({ type: FileType.DIR, mode: 0o755, owner: "user" });
  });

  test("can be written and read as root", async () => {
    const path = `/root/${unique()}`;
    await files().write(path, "of root", { user: "root", requestTimeoutMs: 30_000 });
    expect(await files().read(path, { user: "root" })).toBe("of root");
    expect((await files().getInfo(path, { user: "root" })).owner).toBe("root");
  });

  test("has a path that starts at the home of the user", async () => {
    const name = unique();
    expect((await files().write(name, "relative")).path).toBe(`/home/user/${name}`);
    expect(await files().read(`~/${name}`)).toBe("relative");
  });

  test.each([BOOT_ID, "/proc/version", "/proc/self/status"])("of the kernel is read to its end: %s", async (path) => {
    expect((await files().read(path)).length).toBeGreaterThan(10);
  });

  test("keeps its metadata until it is written again", async () => {
    const path = `${await common.home()}/note`;
    const metadata = { author: "one", purpose: "a b c = &" };
    expect((await files().write(path, "text", { metadata })).metadata).toEqual(metadata);
    expect((await files().getInfo(path)).metadata).toEqual(metadata);
    await files().write(path, "text");
    expect((await files().getInfo(path)).metadata).toBeUndefined();
  });
});

test("several files are written at once", async () => {
  const home = await common.home();
  const entries = Array.from({ length: 10 }, (_, n) => ({ path: `${home}/dir ${n}/note`, data: `text ${n}` }));
  expect((await files().write(entries)).map((one) => one.path)).toEqual(entries.map((one) => one.path));
  expect(await files().read(`${home}/dir 7/note`)).toBe("text 7");
  expect(await files().write([])).toEqual([]);
});

describe("refused is", () => {
  test("reading what does not exist", async () => {
    const error = await failure(files().read("/no/such"));
    expect(error).toBeInstanceOf(FileNotFoundError);
    expect(error.message).toContain("path '/no/such' does not exist");
  });

  test("reading or writing a directory", async () => {
    const home = await common.home();
    expect(await failure(files().read(home))).toBeInstanceOf(InvalidArgumentError);
    expect(await failure(files().write(home, "text"))).toBeInstanceOf(InvalidArgumentError);
  });

  test("the same path twice", async () => {
    const path = `${await common.home()}/same`;
    const twice = [
      { path, data: "one" },
      { path, data: "two" },
    ];
    expect(await failure(files().write(twice))).toBeInstanceOf(InvalidArgumentError);
  });

  test("an unknown user", async () => {
    expect(await failure(files().read("note", { user: "nobody-here" }))).toBeInstanceOf(AuthenticationError);
    expect(await failure(files().list("/", { user: "nobody-here" }))).toBeInstanceOf(AuthenticationError);
  });

  test.each(["a\0b", "x".repeat(5000)])("a path that cannot exist", async (path) => {
    await failure(files().write(path, "text"));
    await failure(files().read(path));
  });
});

describe("a directory", () => {
  test("is listed in order and as deep as told", async () => {
    const home = await common.home();
    for (const name of ["c", "a", "b/deep/er"]) await files().write(`${home}/${name}`, name);
    expect((await files().list(home)).map((one) => one.name)).toEqual(["a", "b", "c"]);
    expect((await files().list(home, { depth: 2, user: "user", requestTimeoutMs: 30_000 })).length).toBe(4);
    expect((await files().list(home, { depth: 9 })).length).toBe(5);
    expect(await failure(files().list(home, { depth: 0 }))).toBeInstanceOf(InvalidArgumentError);
  });

  test("that does not exist or is a file is refused", async () => {
    const home = await common.home();
    await files().write(`${home}/note`, "text");
    expect(await failure(files().list(`${home}/note`))).toBeInstanceOf(InvalidArgumentError);
    expect(await failure(files().list(`${home}/none`))).toBeInstanceOf(NotFoundError);
  });

  test("is made with those above, once", async () => {
    const home = await common.home();
    expect(await files().makeDir(`${home}/a/b`, { user: "user", requestTimeoutMs: 30_000 })).toBe(true);
    expect(await files().makeDir(`${home}/a/b`)).toBe(false);
    await files().write(`${home}/note`, "text");
    expect(await failure(files().makeDir(`${home}/note`))).toBeInstanceOf(InvalidArgumentError);
  });

  test("is renamed and removed with all in it", async () => {
    const home = await common.home();
    await files().write(`${home}/dir/note`, "text");
    expect(
      (await files().rename(`${home}/dir`, `${home}/new/dir`, { user: "user", requestTimeoutMs: 30_000 })).type,
    ).toBe(FileType.DIR);
    expect(await files().read(`${home}/new/dir/note`)).toBe("text");
    await files().remove(`${home}/new`, { user: "user", requestTimeoutMs: 30_000 });
    expect(await files().exists(`${home}/new`, { user: "user", requestTimeoutMs: 30_000 })).toBe(false);
    await files().remove(`${home}/new`);
    expect(await failure(files().rename(`${home}/none`, `${home}/other`))).toBeInstanceOf(NotFoundError);
  });

  test("shows links by their targets", async () => {
    const home = await common.home();
    await files().write(`${home}/note`, "text");
    await output(common.sandbox, `ln -s ${home}/note ${home}/link`);
    expect(await files().getInfo(`${home}/link`)).toMatchObject({ type: FileType.FILE, symlinkTarget: `${home}/note` });
    const time = (await files().getInfo(`${home}/note`)).modifiedTime!;
    expect(Math.abs(Date.now() - time.getTime())).toBeLessThan(120_000);
  });
});

describe("a watch", () => {
  async function watched(path: string, opts: { [key: string]: unknown } = {}) {
    const events: FilesystemEvent[] = [];
    const handle = await files().watchDir(path, (event) => void events.push(event), opts);
    const one = (name: string, type: string) =>
      eventually(
        () => events.find((event) => event.name === name && String(event.type) === type),
        () => JSON.stringify(events),
      );
    return { events, handle, one };
  }

  test("sees an upload as three events", async () => {
    const home = await common.home();
    const watch = await watched(home);
    await files().write(`${home}/note`, "text");
    await eventually(() => watch.events.length >= 3);
    expect(watch.events.map((event) => [event.name, String(event.type)])).toEqual([
      ["note", "create"],
      ["note", "chmod"],
      ["note", "write"],
    ]);
    await watch.handle.stop();
  });

  test("sees renaming and removing", async () => {
    const home = await common.home();
    await files().write(`${home}/old`, "text");
    const watch = await watched(home, { user: "user", requestTimeoutMs: 30_000 });
    await files().rename(`${home}/old`, `${home}/new`);
    await watch.one("old", "rename");
    await watch.one("new", "create");
    await files().remove(`${home}/new`);
    await watch.one("new", "remove");
    await watch.handle.stop();
  });

  test("that is recursive sees directories that are made later", async () => {
    const home = await common.home();
    const watch = await watched(home, { recursive: true });
    await files().makeDir(`${home}/later`);
    await watch.one("later", "create");
    await files().write(`${home}/later/note`, "text");
    await watch.one("later/note", "write");
    await watch.handle.stop();
  });

  test("has information on entries if told", async () => {
    const home = await common.home();
    const watch = await watched(home, { includeEntry: true, allowNetworkMounts: true });
    await files().write(`${home}/note`, "12345");
    expect((await watch.one("note", "write"))!.entry).toMatchObject({ path: `${home}/note`, size: 5 });
    await watch.handle.stop();
  });

  test("tells of its end", async () => {
    const ends: unknown[] = [];
    const watch = await watched(await common.home(), {
      timeoutMs: 60_000,
      onExit: (error?: Error) => void ends.push(error),
    });
    await watch.handle.stop();
    await eventually(() => ends.length === 1);
  });

  test("of what is no directory is refused", async () => {
    const home = await common.home();
    await files().write(`${home}/note`, "text");
    expect(await failure(watched(`${home}/note`))).toBeInstanceOf(InvalidArgumentError);
    expect(await failure(watched(`${home}/none`))).toBeInstanceOf(NotFoundError);
  });
});
