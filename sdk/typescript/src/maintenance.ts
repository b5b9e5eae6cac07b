/** Maintenance of the daemon and its storage. Only with a key of its own project. */

import { readAll, toText } from "./bytes.js";
import type { CollectorItem, Quarantine, Stored, Verified } from "./generated/types.js";
import { type CallOptions, split, type Transport } from "./transport.js";

/** Maintenance of the daemon. */
export class Maintenance {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Returns the metrics of the daemon in the Prometheus text format. */
  async metrics(options: CallOptions = {}): Promise<string> {
    return toText(await readAll(await this.#transport.download("getMetrics", {}, options)));
  }

  /** Lists what is on disk, what of it garbage collection would delete, and why. */
  async previewGarbageCollection(options: CallOptions = {}): Promise<CollectorItem[]> {
    return (await this.#transport.call("previewGarbageCollection", {}, options)).items;
  }

  /** Deletes what records mark for deletion, and with `runs` ends runs that no record names. */
  async collectGarbage(options: { runs?: boolean | undefined } & CallOptions = {}): Promise<CollectorItem[]> {
    const { call, fields } = split(options);
    return (await this.#transport.call("collectGarbage", fields, call)).items;
  }

  /** Returns files and records that are damaged and were set aside. */
  async quarantine(options: CallOptions = {}): Promise<Quarantine> {
    return await this.#transport.call("getQuarantine", {}, options);
  }

  /** Lists the images, image layers and saved states on disk. */
  async stored(options: CallOptions = {}): Promise<Stored[]> {
    return (await this.#transport.call("listStoredObjects", {}, options)).stored;
  }

  /** Reads an object on disk, and compares it with what was written. */
  async verify(object: Stored, options: CallOptions = {}): Promise<Verified> {
    return await this.#transport.call("verifyStoredObject", {}, { body: object, ...options });
  }
}
