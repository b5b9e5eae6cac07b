/** Events: what happened, and what caused it. */

import { TransportError } from "./errors.js";
import type { Event } from "./generated/types.js";
import { Pages } from "./pages.js";
import { type CallOptions, data, sleep, type Transport } from "./transport.js";

/** Options of {@link EventLog.list}. */
export interface ListEvents extends CallOptions {
  /** Only events with a higher number. Default: from the oldest one that is kept. */
  after?: number | undefined;
  /** Only this many of the newest events, 1 to 1000. */
  newest?: number | undefined;
  /** Size of a page, 1 to 1000. Default 1000. */
  limit?: number | undefined;
}

const RECONNECTS_MAX = 5;
const RECONNECT_DELAY_MS = 200;

/** The events of a project, or of one sandbox. */
export class EventLog {
  readonly #transport: Transport;
  readonly #sandbox: string | undefined;

  /** @internal */
  constructor(transport: Transport, sandbox?: string) {
    this.#transport = transport;
    this.#sandbox = sandbox;
  }

  /** Lists the events until now, oldest first. */
  list(options: ListEvents = {}): Pages<Event> {
    const { signal, after: first, newest, limit } = options;
    return new Pages(async (after) => {
      const params = { sandbox: this.#sandbox, after: after === undefined ? first : Number(after), newest, limit };
      const { events, next } = await this.#transport.call("listEvents", params, { signal });
      // The daemon always has a next page, because events keep coming.
      const isLast = events.length === 0 || newest !== undefined;
      return { items: events, next: isLast ? null : String(next) };
    });
  }

  /** Yields events as they happen, from `after` on. A lost connection is continued without a gap. */
  async *follow(options: { after?: number | undefined } & CallOptions = {}): AsyncGenerator<Event, void, undefined> {
    const { signal } = options;
    let { after } = options;
    for (let attempts = 0; ; attempts++) {
      try {
        for await (const event of this.#transport.events("listEvents", { sandbox: this.#sandbox, after }, { signal })) {
          attempts = 0;
          const happened = data<Event>(event);
          after = happened.number;
          yield happened;
        }
      } catch (error) {
        if (!(error instanceof TransportError) || attempts >= RECONNECTS_MAX) throw error;
      }
      if (attempts >= RECONNECTS_MAX) throw new TransportError("the stream of events ends again and again");
      await sleep(RECONNECT_DELAY_MS * 2 ** attempts, signal);
    }
  }
}
