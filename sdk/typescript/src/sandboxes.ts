/** The sandboxes of a project. */

import type { CreateSandbox, SandboxInfo, State } from "./generated/types.js";
import { Pages } from "./pages.js";
import { Sandbox } from "./sandbox.js";
import { type CallOptions, type ChangeOptions, type MakeOptions, type Transport } from "./transport.js";

/** Options of {@link Sandboxes.create}. Exactly one of `image`, `snapshot` and `template` is required. */
export interface CreateOptions extends CreateSandbox, MakeOptions {}

/** Options of {@link Sandboxes.list}. */
export interface ListSandboxes extends CallOptions {
  /** Only sandboxes in one of these states. Default: every state, including `terminated`. */
  state?: State | readonly State[] | undefined;
  /** Only sandboxes with this name. */
  name?: string | undefined;
  /** Only sandboxes with all of these labels. */
  labels?: Record<string, string> | undefined;
  /** Order of the list. Default `id`. */
  sort?: "id" | "created" | "started" | undefined;
  /** Earliest first (`asc`, the default) or last. Not for the order of ids. */
  order?: "asc" | "desc" | undefined;
  /** Size of a page, 1 to 1000. Default 100. */
  limit?: number | undefined;
}

/** The sandboxes of a project. */
export class Sandboxes {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Creates a sandbox, and returns when it runs. One with a `name` can be suspended, and is suspended when its time is
   * over; one without is terminated then. A name that a living sandbox has is a {@link ConflictError}.
   */
  async create(options: CreateOptions): Promise<Sandbox> {
    const { signal, idempotencyKey, ...body } = options;
    return new Sandbox(
      this.#transport,
      await this.#transport.call("createSandbox", {}, { body, signal, idempotencyKey }),
    );
  }

  /** Returns a sandbox by its id, or a living one by its name. It is not resumed. */
  async connect(idOrName: string, options: CallOptions = {}): Promise<Sandbox> {
    return new Sandbox(this.#transport, await this.#transport.call("getSandbox", { id: idOrName }, options));
  }

  /** Lists sandboxes. */
  list(options: ListSandboxes = {}): Pages<SandboxInfo> {
    const { signal, state, labels, ...rest } = options;
    const label = labels && Object.entries(labels).map(([key, value]) => `${key}=${value}`);
    return new Pages(async (after) => {
      const params = { ...rest, label, state: state && [state].flat().join(","), after };
      const page = await this.#transport.call("listSandboxes", params, { signal });
      return { items: page.sandboxes, next: page.next };
    });
  }

  /** Terminates a sandbox by its id or name. */
  async delete(idOrName: string, options: ChangeOptions = {}): Promise<SandboxInfo> {
    return await this.#transport.call("deleteSandbox", { id: idOrName }, options);
  }
}
