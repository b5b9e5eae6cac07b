/** Watchers, which keep the changes of files until they are taken. */

import type { Text, Watcher, WatcherEvents } from "./generated/types.js";
import { type InsideOptions, split, type Transport } from "./transport.js";

/**
 * The watchers of a sandbox. A watcher is part of the memory of the sandbox: it continues across a suspend and in
 * the children of a fork, and is gone after a boot from files.
 */
export class Watchers {
  readonly #transport: Transport;
  readonly #id: string;

  /** @internal */
  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.#id = id;
  }

  /** Begins to keep the changes below a directory. */
  async create(path: Text, options: { recursive?: boolean | undefined } & InsideOptions = {}): Promise<Watcher> {
    const { call, fields } = split(options);
    return await this.#transport.call("createWatcher", { id: this.#id }, { body: { path, ...fields }, ...call });
  }

  /** Lists the watchers. */
  async list(options: InsideOptions = {}): Promise<Watcher[]> {
    return (await this.#transport.call("listWatchers", { id: this.#id }, options)).watchers;
  }

  /**
   * Returns the changes after a cursor, which is `next` of the previous result, and forgets those before it. Every
   * change that happened before the call is among them, or follows if `more` is set.
   */
  async events(
    watcher: number,
    options: { after?: string | undefined; limit?: number | undefined } & InsideOptions = {},
  ): Promise<WatcherEvents> {
    const { call, fields } = split(options);
    const { after, limit } = fields;
    const params = { id: this.#id, watcher, limit, after: after === undefined ? undefined : Number(after) };
    return await this.#transport.call("takeWatcherEvents", params, call);
  }

  /** Removes a watcher. */
  async remove(watcher: number, options: InsideOptions = {}): Promise<void> {
    await this.#transport.call("removeWatcher", { id: this.#id, watcher }, options);
  }
}
