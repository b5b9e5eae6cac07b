/** Volumes: storage that outlives sandboxes. */

import { type Data, readAll, toBody } from "./bytes.js";
import type { CreateVolume, Volume, VolumeFile } from "./generated/types.js";
import { Pages } from "./pages.js";
import { type CallOptions, type MakeOptions, split, type Transport } from "./transport.js";

/** The volumes of a project. */
export class Volumes {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a volume. */
  async create(request: CreateVolume, options: MakeOptions = {}): Promise<Volume> {
    return await this.#transport.call("createVolume", {}, { body: request, ...options });
  }

  /** Lists volumes. */
  list(options: { limit?: number | undefined } & CallOptions = {}): Pages<Volume> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listVolumes", { ...fields, after }, call);
      return { items: page.volumes, next: page.next };
    });
  }

  /** Returns a volume by its id or name. */
  async get(volume: string, options: CallOptions = {}): Promise<Volume> {
    return await this.#transport.call("getVolume", { volume }, options);
  }

  /** Deletes a volume that no sandbox has. */
  async delete(volume: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("deleteVolume", { volume }, options);
  }

  /** Reads a file of a volume, without a sandbox. */
  async read(volume: string, path: string, options: CallOptions = {}): Promise<Uint8Array> {
    return await readAll(await this.#transport.download("readVolumeFile", { volume, path }, options));
  }

  /** Writes a file of a volume, without a sandbox. */
  async write(volume: string, path: string, contents: Data, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("writeVolumeFile", { volume, path }, { body: toBody(contents), ...options });
  }

  /** Lists a directory of a volume, without a sandbox. */
  async files(volume: string, path: string, options: CallOptions = {}): Promise<VolumeFile[]> {
    return (await this.#transport.call("listVolumeFiles", { volume, path }, options)).entries;
  }
}
