/**
 * Copies between this host and a sandbox, for Node, Deno and Bun. Directories are copied with `tar`, which the host and
 * the image need.
 */

import { spawn } from "node:child_process";
import { createReadStream, createWriteStream } from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

import { DormouseError } from "./errors.js";
import type { Sandbox } from "./sandbox.js";
import type { InsideOptions } from "./transport.js";

/** Copies a file, or the contents of a directory, of this host to a path of a sandbox. Parents are created. */
export async function upload(sandbox: Sandbox, from: string, to: string, options: InsideOptions = {}): Promise<void> {
  const source = await stat(from);
  if (!source.isDirectory()) {
    const mode = (source.mode & 0o777).toString(8);
    await sandbox.files.write(to, createReadStream(from), { mode, ...options });
    return;
  }
  await sandbox.files.writeArchive(to, archiveOf(from), options);
}

/** Copies a file, or the contents of a directory, of a sandbox to a path of this host. Parents are created. */
export async function download(sandbox: Sandbox, from: string, to: string, options: InsideOptions = {}): Promise<void> {
  const { kind } = await sandbox.files.stat(from, options);
  if (kind !== "directory") {
    await mkdir(dirname(to), { recursive: true });
    const contents = await sandbox.files.readStream(from, options);
    await pipeline(contents as AsyncIterable<Uint8Array>, createWriteStream(to));
    return;
  }
  await mkdir(to, { recursive: true });
  const tar = spawn("tar", ["-C", to, "--no-same-owner", "-xf", "-"], { stdio: ["pipe", "ignore", "pipe"] });
  const archive = Readable.from(sandbox.files.readArchive(from, options));
  const [sent, ended] = await Promise.allSettled([pipeline(archive, tar.stdin), exitOf(tar)]);
  // tar closes its input at the end of the archive, before the padding behind it. That is no failure.
  if (sent.status === "rejected" && sent.reason instanceof DormouseError) throw sent.reason;
  if (ended.status === "rejected") throw ended.reason;
}

/** A directory of this host as a tar archive. */
async function* archiveOf(directory: string): AsyncGenerator<Uint8Array, void, undefined> {
  const tar = spawn("tar", ["-C", directory, "-cf", "-", "."], { stdio: ["ignore", "pipe", "pipe"] });
  const ended = exitOf(tar);
  ended.catch(() => undefined);
  yield* tar.stdout;
  await ended;
}

/** Waits for the end of `tar`. Throws unless it succeeds. */
function exitOf(tar: ReturnType<typeof spawn>): Promise<void> {
  let complaint = "";
  tar.stderr?.on("data", (piece: Buffer) => (complaint += piece.toString()));
  return new Promise((resolve, reject) => {
    tar.on("error", (cause) => reject(new DormouseError(`cannot run tar: ${cause.message}`, { cause })));
    tar.on("close", (code) => (code === 0 ? resolve() : reject(new DormouseError(`tar failed: ${complaint.trim()}`))));
  });
}
