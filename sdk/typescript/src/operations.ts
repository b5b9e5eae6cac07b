/** Operations: records of commands in progress, which outlive the daemon. */

import type { Operation } from "./generated/types.js";
import { Pages } from "./pages.js";
import { type CallOptions, split, type Transport } from "./transport.js";

/** How long one request of a wait lasts. HTTP clients give up on a silent response after some minutes. */
const WAIT_MS_MAX = 60_000;

/** The operations of a project. */
export class OperationLog {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists operations, newest first, all or those of a sandbox. */
  list(options: { sandbox?: string | undefined; limit?: number | undefined } & CallOptions = {}): Pages<Operation> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listOperations", { ...fields, after }, call);
      return { items: page.operations, next: page.next };
    });
  }

  /** Returns an operation. With `waitMs`, waits that long for its end, at most 600,000. */
  async get(id: string, options: { waitMs?: number | undefined } & CallOptions = {}): Promise<Operation> {
    const { call, fields } = split(options);
    return await this.#transport.call("getOperation", { id, ...fields }, call);
  }

  /** Waits for the end of an operation, and returns it. A failed one is a result: see its `status` and `reason`. */
  async wait(id: string, options: CallOptions = {}): Promise<Operation> {
    for (;;) {
      const now = await this.get(id, { waitMs: WAIT_MS_MAX, ...options });
      if (now.status !== "in_progress") return now;
    }
  }
}
