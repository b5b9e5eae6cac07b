/** Files of a running sandbox. */

import { type Data, readAll, toBody, toBytes, toText } from "./bytes.js";
import { DormouseError, NotFoundError } from "./errors.js";
import { exec } from "./exec.js";
import type {
  FileAttributes,
  FileKind,
  FileStat,
  FoundFiles,
  FoundLines,
  Text,
  WatchEvent,
} from "./generated/types.js";
import { Pages } from "./pages.js";
import { Processes } from "./processes.js";
import type { ServerEvent } from "./sse.js";
import { data, type InsideOptions, split, type Transport } from "./transport.js";

/** A part of a file, in bytes. */
export interface ByteRange {
  /** The first byte. Default 0. */
  start?: number | undefined;
  /** The byte after the last one. Default: the end of the file. */
  end?: number | undefined;
}

/** Options of calls that read a file. */
export interface ReadOptions extends ByteRange, InsideOptions {}

/** Options of {@link Files.write}. By default the file is replaced as a whole. */
export interface WriteOptions extends InsideOptions {
  /** Permission bits in octal, such as `755`. Default: those of the file it replaces, or 644. */
  mode?: string | undefined;
  /** Owner: a name, a number, or `UID:GID`. Default: that of the file it replaces, or root. */
  user?: string | undefined;
  /** Create missing parent directories. Default: true. */
  parents?: boolean | undefined;
  /** Keep the file and replace its contents, so that links and attributes stay. Default: false. */
  inPlace?: boolean | undefined;
  /** Append. Default: false. */
  append?: boolean | undefined;
  /** Write from this byte on, and keep the rest. */
  offset?: number | undefined;
}

/** Limits of a search. It ends at the first one that it reaches, as `search.truncatedBy` of the result says. */
export interface SearchOptions extends InsideOptions {
  /** Ignore upper and lower case. Default: false. */
  ignoreCase?: boolean | undefined;
  /** How deep to search, 1 for the directory itself. Default: no limit. */
  depth?: number | undefined;
  /** Largest number of results, at most 10,000. Default 1,000. */
  limit?: number | undefined;
  /** Largest number of directory entries to read. Default 1,000,000. */
  maxEntries?: number | undefined;
  /** Longest time in milliseconds. Default 30,000. */
  timeoutMs?: number | undefined;
}

/** Options of {@link Files.find}. */
export interface FindOptions extends SearchOptions {
  /** Glob for the name of the file, such as `*.rs`. */
  name?: string | undefined;
  /** Type of the file. */
  kind?: FileKind | undefined;
}

/** Options of {@link Files.grep}. */
export interface GrepOptions extends SearchOptions {
  /** Search for the pattern as it is, not as a regular expression. Default: false. */
  literal?: boolean | undefined;
  /** Glob for the names of the files to search. */
  name?: string | undefined;
  /** Search binary files, too. Default: false. */
  binary?: boolean | undefined;
  /** Largest number of bytes to read. Default 1 GiB. */
  maxBytes?: number | undefined;
}

/** How much of an archive is kept for a reader that is interrupted. */
const ARCHIVE_KEPT_BYTES = 8 << 20;

/** The files of a sandbox. Paths are absolute. */
export class Files {
  readonly #transport: Transport;
  readonly #id: string;

  /** @internal */
  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.#id = id;
  }

  /** Reads a file, or a part of it. */
  async read(path: string, options: ReadOptions = {}): Promise<Uint8Array> {
    return await readAll(await this.readStream(path, options));
  }

  /** Reads a file as UTF-8 text. */
  async readText(path: string, options: ReadOptions = {}): Promise<string> {
    return toText(await this.read(path, options));
  }

  /** Reads a file as a stream, so that memory use does not depend on its size. */
  async readStream(path: string, options: ReadOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const { start, end, ...call } = options;
    const isPart = start !== undefined || end !== undefined;
    const headers = isPart ? { range: `bytes=${start ?? 0}-${end === undefined ? "" : end - 1}` } : {};
    return await this.#transport.download("readFile", { id: this.#id, path }, { ...call, headers });
  }

  /**
   * Writes a file. Readers see the old or the new contents, and a call that breaks off changes nothing, unless
   * `inPlace`, `append` or `offset` is set.
   */
  async write(path: string, contents: Data, options: WriteOptions = {}): Promise<FileStat> {
    const { call, fields } = split(options);
    return await this.#transport.call(
      "writeFile",
      { id: this.#id, path, ...fields },
      { body: toBody(contents), ...call },
    );
  }

  /** Lists a directory, `depth` levels deep. Default: one level. */
  list(path: string, options: { depth?: number | undefined } & InsideOptions = {}): Pages<FileStat> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listFiles", { id: this.#id, path, after, ...fields }, call);
      return { items: page.entries, next: page.next };
    });
  }

  /** Returns kind, size, owner and mode of a file. A symbolic link is not followed. */
  async stat(path: string, options: InsideOptions = {}): Promise<FileStat> {
    return await this.#transport.call("statFile", { id: this.#id, path }, options);
  }

  /** Whether a file of any kind exists at a path. */
  async exists(path: string, options: InsideOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
      // The sandbox itself may be what does not exist. Then this throws.
      await this.#transport.call("getSandbox", { id: this.#id }, options);
      return false;
    }
  }

  /** Creates a directory with missing parents. It may exist, unless `exclusive`. */
  async mkdir(
    path: Text,
    options: {
      exclusive?: boolean | undefined;
      parents?: boolean | undefined;
      user?: string | undefined;
    } & InsideOptions = {},
  ): Promise<FileStat> {
    const { call, fields } = split(options);
    const body = { path, parents: true, ...fields };
    return await this.#transport.call("createDirectory", { id: this.#id }, { body, ...call });
  }

  /** Moves a file or directory, and replaces a file at the new path. */
  async move(
    from: Text,
    to: Text,
    options: { parents?: boolean | undefined; user?: string | undefined } & InsideOptions = {},
  ): Promise<FileStat> {
    const { call, fields } = split(options);
    return await this.#transport.call("renameFile", { id: this.#id }, { body: { from, to, ...fields }, ...call });
  }

  /** Removes a file or an empty directory; with `recursive`, also everything in it. */
  async remove(path: string, options: { recursive?: boolean | undefined } & InsideOptions = {}): Promise<void> {
    const { call, fields } = split(options);
    await this.#transport.call("deleteFile", { id: this.#id, path, ...fields }, call);
  }

  /** Finds files below a directory, by name and kind. */
  async find(path: string, options: FindOptions = {}): Promise<FoundFiles> {
    const { call, fields } = split(options);
    return await this.#transport.call("findFiles", { id: this.#id, path, ...fields }, call);
  }

  /** Finds lines that match a regular expression in the files below a directory. */
  async grep(path: string, pattern: string, options: GrepOptions = {}): Promise<FoundLines> {
    const { call, fields } = split(options);
    return await this.#transport.call("findLines", { id: this.#id, path, pattern, ...fields }, call);
  }

  /** Returns the extended attributes of a file whose names begin with `user.`. */
  async attributes(path: string, options: InsideOptions = {}): Promise<Map<string, Uint8Array>> {
    return byName(await this.#transport.call("getFileAttributes", { id: this.#id, path }, options));
  }

  /** Sets extended attributes of a file, removes those that are null, and returns all that it has then. */
  async setAttributes(
    path: Text,
    changes: Record<string, Text | null>,
    options: InsideOptions = {},
  ): Promise<Map<string, Uint8Array>> {
    const entries = Object.entries(changes);
    const set = entries.flatMap(([name, value]) => (value === null ? [] : [{ name, value }]));
    const remove = entries.flatMap(([name, value]) => (value === null ? [name] : []));
    const body = { path, set, remove };
    return byName(await this.#transport.call("setFileAttributes", { id: this.#id }, { body, ...options }));
  }

  /**
   * Watches a directory. The result yields every change that happens after this call has returned, while the
   * connection lasts. For changes that are kept beyond that, use {@link Watchers}.
   */
  async watch(
    path: string,
    options: { recursive?: boolean | undefined } & InsideOptions = {},
  ): Promise<AsyncGenerator<WatchEvent, void, undefined>> {
    const { call, fields } = split(options);
    return changes(await this.#transport.listen("watchFiles", { id: this.#id, path, ...fields }, call));
  }

  /** Reads a directory as a tar archive. The image needs `tar`. */
  async *readArchive(path: string, options: InsideOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const processes = new Processes(this.#transport, this.#id);
    const command = ["tar", "-C", path, "-cf", "-", "."];
    const tar = await processes.start(command, { outputKeptBytes: ARCHIVE_KEPT_BYTES, ...options });
    let complaint = "";
    try {
      for await (const event of tar.output(options)) {
        if (event.type === "stdout") yield event.bytes;
        else if (event.type === "stderr") complaint += event.text;
        else if (event.type === "lost") throw new DormouseError(`${event.lostBytes} bytes of the archive were lost`);
        else if (event.exitCode !== 0) throw new DormouseError(`cannot archive ${path}: ${complaint.trim()}`);
      }
    } finally {
      await tar.kill().catch(() => undefined);
    }
  }

  /** Extracts a tar archive into a directory, which is created. The image needs `tar`. */
  async writeArchive(path: string, archive: Data, options: InsideOptions = {}): Promise<void> {
    await this.mkdir(path, options);
    await exec(this.#transport, this.#id, ["tar", "-C", path, "-xf", "-"], { ...options, stdin: archive, check: true });
  }
}

async function* changes(events: AsyncIterable<ServerEvent>): AsyncGenerator<WatchEvent, void, undefined> {
  for await (const event of events) {
    if (event.kind === "change") yield data<WatchEvent>(event);
  }
}

function byName({ attributes }: FileAttributes): Map<string, Uint8Array> {
  return new Map(
    attributes.map(({ name, nameBytes, value, valueBytes }) => [
      toText(nameBytes ?? toBytes(name)),
      valueBytes ?? toBytes(value),
    ]),
  );
}
