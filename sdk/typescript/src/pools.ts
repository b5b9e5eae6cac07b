/** Pools of sandboxes that were made in advance. */

import type { ClaimRequest, CreatePool, Pool, ResizePool } from "./generated/types.js";
import { Pages } from "./pages.js";
import { Sandbox } from "./sandbox.js";
import { type CallOptions, type MakeOptions, split, type Transport } from "./transport.js";

/** The sandbox pools of a project. */
export class Pools {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a pool. */
  async create(request: CreatePool, options: MakeOptions = {}): Promise<Pool> {
    return await this.#transport.call("createPool", {}, { body: request, ...options });
  }

  /** Lists pools. */
  list(options: { limit?: number | undefined } & CallOptions = {}): Pages<Pool> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listPools", { ...fields, after }, call);
      return { items: page.pools, next: page.next };
    });
  }

  /** Returns a pool by its id or name. */
  async get(pool: string, options: CallOptions = {}): Promise<Pool> {
    return await this.#transport.call("getPool", { pool }, options);
  }

  /** Claims a sandbox of a pool, and wakes it with these settings. */
  async claim(pool: string, options: ClaimRequest & MakeOptions = {}): Promise<Sandbox> {
    const { signal, idempotencyKey, ...body } = options;
    const info = await this.#transport.call("claimSandbox", { pool }, { body, signal, idempotencyKey });
    return new Sandbox(this.#transport, info);
  }

  /** Changes how many sandboxes wait, and how many exist at most. */
  async resize(pool: string, size: ResizePool, options: CallOptions = {}): Promise<Pool> {
    return await this.#transport.call("resizePool", { pool }, { body: size, ...options });
  }

  /** Deletes a pool with the sandboxes that wait in it. Claimed ones stay. */
  async delete(pool: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("deletePool", { pool }, options);
  }
}
