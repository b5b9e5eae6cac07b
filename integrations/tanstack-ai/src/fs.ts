/** Files of a sandbox, as TanStack AI sees them. */

import { ApiError, NotFoundError, type Sandbox } from "@dormouse/sdk";
import type { SandboxFs } from "@tanstack/ai-sandbox";

import type { WorkspacePaths } from "./paths.js";

/** What `lstat` of 0.5 and later returns. `mode` has the bits of the type. */
export type FileInfo =
  { type: "file"; mode: number; size: number } | { type: "dir" | "symlink" | "other"; mode: number };

/** The files of every version of the contract. `lstat` is of 0.5 and later. */
export type Fs = Required<SandboxFs> & { lstat(path: string): Promise<FileInfo | undefined> };

const DIRECTORY_BITS = 0o040000;
const FILE_BITS = 0o100000;
const LINK_BITS = 0o120000;

/** Changes that alter what a file contains or whether it exists. */
const RELEVANT = new Set(["created", "modified", "removed", "moved_from", "moved_to"]);
const REOPEN_DELAY_MS = 500;

export function createFs(sandbox: Sandbox, paths: WorkspacePaths): Fs {
  const { files } = sandbox;
  const real = (path: string): string => paths.toReal(path);

  async function lstat(path: string): Promise<FileInfo | undefined> {
    try {
      const { kind, mode: permissions, sizeBytes } = await files.stat(real(path));
      const mode = parseInt(permissions, 8);
      switch (kind) {
        case "file":
          return { type: "file", mode: mode | FILE_BITS, size: sizeBytes };
        case "directory":
          return { type: "dir", mode: mode | DIRECTORY_BITS };
        case "link":
          return { type: "symlink", mode: mode | LINK_BITS };
        case "other":
          return { type: "other", mode: await rawMode(sandbox, real(path)) };
      }
    } catch (error) {
      if (error instanceof NotFoundError && !(await files.exists(real(path)))) return undefined;
      throw error;
    }
  }

  return {
    lstat,
    read: (path) => files.readText(real(path)),
    readBytes: (path) => files.read(real(path)),
    write: async (path, data) => void (await files.write(real(path), data)),
    mkdir: async (path) => void (await files.mkdir(real(path))),
    rename: async (from, to) => void (await files.move(real(from), real(to))),
    exists: (path) => files.exists(real(path)),
    async list(path) {
      const entries = await files.list(real(path)).toArray();
      return entries.map((entry) => ({
        name: entry.path.slice(entry.path.lastIndexOf("/") + 1),
        path: paths.toVirtual(entry.path, path),
        type: entry.kind === "directory" ? "dir" : "file",
      }));
    },
    async remove(path) {
      try {
        await files.remove(real(path), { recursive: true });
      } catch (error) {
        if (!(error instanceof NotFoundError) || (await files.exists(real(path)))) throw error;
      }
    },
    async watch(path, onEvent) {
      const controller = new AbortController();
      const watch = new Watch(sandbox, real(path), controller.signal);
      await watch.open();
      const ended = watch.follow(async (changed, type) => {
        // The contract speaks of files. What no longer exists may have been one.
        const isDirectory = (await lstat(changed).catch(() => undefined))?.type === "dir";
        if (!isDirectory) onEvent({ type, path: paths.toVirtual(changed, path) });
      });
      return {
        async stop() {
          controller.abort();
          await ended;
        },
      };
    },
  };
}

/** A watch that is opened again after its connection was lost, or while the sandbox sleeps. */
class Watch {
  readonly #sandbox: Sandbox;
  readonly #path: string;
  readonly #signal: AbortSignal;
  #changes: AsyncIterable<{ kind: string; path: string }> | undefined;

  constructor(sandbox: Sandbox, path: string, signal: AbortSignal) {
    this.#sandbox = sandbox;
    this.#path = path;
    this.#signal = signal;
  }

  async open(): Promise<void> {
    this.#changes = await this.#sandbox.files.watch(this.#path, { recursive: true, signal: this.#signal });
  }

  /** Reports changes until the watch is stopped or the sandbox is gone. */
  async follow(onChange: (path: string, kind: string) => Promise<void>): Promise<void> {
    while (!this.#signal.aborted) {
      try {
        if (this.#changes === undefined) await this.#reopen();
        for await (const { kind, path } of this.#changes ?? []) {
          if (RELEVANT.has(kind)) await onChange(path, kind);
        }
      } catch (error) {
        if (error instanceof ApiError && (error.code === "gone" || error.code === "not_found")) return;
      }
      this.#changes = undefined;
    }
  }

  async #reopen(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, REOPEN_DELAY_MS));
    // A watch must not keep a sandbox awake that was suspended.
    const options = { recursive: true, signal: this.#signal, wake: "never" } as const;
    this.#changes = await this.#sandbox.files.watch(this.#path, options);
  }
}

/** The mode of a file that is neither file, directory nor link, with the bits of its type. */
async function rawMode(sandbox: Sandbox, path: string): Promise<number> {
  const { stdout } = await sandbox.exec(["stat", "-c", "%f", "--", path], { check: true });
  return parseInt(stdout, 16);
}
