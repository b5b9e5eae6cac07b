/** Snapshots, from which any number of sandboxes can be created. */

import { type Data, toBody } from "./bytes.js";
import type { PullSnapshot, PushedSnapshot, PushSnapshot, Snapshot } from "./generated/types.js";
import type { ProgressOptions } from "./images.js";
import { Pages } from "./pages.js";
import { type CallOptions, type MakeOptions, split, type Transport } from "./transport.js";

/** The snapshots of a project. */
export class Snapshots {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists snapshots, all or those of the sandbox `source`. */
  list(
    options: { source?: string | undefined; name?: string | undefined; limit?: number | undefined } & CallOptions = {},
  ): Pages<Snapshot> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listSnapshots", { ...fields, after }, call);
      return { items: page.snapshots, next: page.next };
    });
  }

  /** Returns a snapshot by its id or name. */
  async get(id: string, options: CallOptions = {}): Promise<Snapshot> {
    return await this.#transport.call("getSnapshot", { id }, options);
  }

  /** Deletes a snapshot. One in use is refused, or with `whenFree` deleted as soon as nothing is based on it. */
  async delete(id: string, options: { whenFree?: boolean | undefined } & CallOptions = {}): Promise<void> {
    const { call, fields } = split(options);
    await this.#transport.call("deleteSnapshot", { id, ...fields }, call);
  }

  /** Creates a filesystem snapshot from the files of a memory snapshot, which stays. */
  async extractFiles(id: string, options: MakeOptions = {}): Promise<Snapshot> {
    return await this.#transport.call("extractSnapshotFiles", { id }, options);
  }

  /** Returns a snapshot as an archive, for {@link import} on a host that has its image. */
  async export(id: string, options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    return await this.#transport.download("exportSnapshot", { id }, options);
  }

  /** Imports a snapshot from an archive. It gets a new id. */
  async import(
    archive: Data,
    options: { labels?: Record<string, string> | undefined; expiresMs?: number | undefined } & MakeOptions = {},
  ): Promise<Snapshot> {
    const { call, fields } = split(options);
    const params = { expiresMs: fields.expiresMs, labels: fields.labels && JSON.stringify(fields.labels) };
    return await this.#transport.call("importSnapshot", params, { body: toBody(archive), ...call });
  }

  /** Sends a snapshot to a registry. */
  async push(
    id: string,
    reference: string,
    options: Omit<PushSnapshot, "reference"> & ProgressOptions = {},
  ): Promise<PushedSnapshot> {
    const { signal, onProgress, ...fields } = options;
    return await this.#transport.finish("pushSnapshot", { id }, { body: { reference, ...fields }, signal }, onProgress);
  }

  /** Imports a snapshot from a registry. */
  async pull(
    reference: string,
    options: Omit<PullSnapshot, "reference"> & ProgressOptions & MakeOptions = {},
  ): Promise<Snapshot> {
    const { onProgress, ...rest } = options;
    const { call, fields } = split(rest);
    return await this.#transport.finish("pullSnapshot", {}, { body: { reference, ...fields }, ...call }, onProgress);
  }
}
