/** Environments: sandboxes that are asked for by a key, whatever state they are in. */

import { type Ensured, type EnsureEvent, ensureEvents, type EnsureOptions, logLines } from "./ensure.js";
import type {
  EnsureExplanation,
  EnsureRequest,
  Environment,
  EnvironmentLease,
  EnvironmentLogLine,
  ReleaseEnvironment,
} from "./generated/types.js";
import { Pages } from "./pages.js";
import { Run, type RunOptions } from "./run.js";
import { type CallOptions, split, type Transport } from "./transport.js";

/** How long a lease lasts, unless a run says otherwise. */
const LEASE_MS = 600_000;

/**
 * The environments of a project. An environment is found again by its `key`, or by the `thread` of an agent, and has
 * one sandbox, however many callers ask for it. Methods that take an `environment` want its id or its key.
 */
export class Environments {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Returns the sandbox of an environment, which runs: the one that runs already, or else the suspended one, resumed; one
   * restored from a snapshot; or a new one that is set up. Callers that ask at the same time get the same sandbox.
   *
   * The work goes on if the connection is lost or the daemon restarts, and the call asks again. A setup that fails is a
   * {@link SetupError}. With `signal`, `onLeave: "cancel"` ends work that nobody waits for any more.
   */
  async ensure(options: EnsureOptions): Promise<Ensured> {
    const { onEvent, ...request } = options;
    for await (const event of this.follow(request)) {
      onEvent?.(event);
      if (event.type === "ensured") return event.ensured;
    }
    throw new Error("unreachable: the last event is 'ensured'");
  }

  /** As {@link ensure}, but yields what happens. The last event is `ensured`; a failure is thrown. */
  follow(request: EnsureRequest & CallOptions): AsyncGenerator<EnsureEvent, void, undefined> {
    return ensureEvents(this.#transport, request);
  }

  /**
   * Starts a run: as {@link ensure}, but the run has a lease, which is renewed in the background until it ends. When the
   * last run of an environment ends, its `lifecycle` says what follows.
   *
   * ```ts
   * await using run = await dormouse.environments.run({ key: "thread-7", image: "base" });
   * await run.sandbox.exec("make");
   * ```
   */
  async run(options: RunOptions): Promise<Run> {
    const leaseMs = options.leaseMs ?? LEASE_MS;
    return new Run(this, await this.ensure({ ...options, leaseMs }), leaseMs);
  }

  /** Returns which way {@link ensure} would take, and why, and changes nothing. */
  async explain(request: EnsureRequest & CallOptions): Promise<EnsureExplanation> {
    const { signal, ...body } = request;
    return await this.#transport.call("explainEnsure", {}, { body, signal, isRepeatable: true });
  }

  /** Lists environments, oldest first. */
  list(options: { limit?: number | undefined } & CallOptions = {}): Pages<Environment> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listEnvironments", { ...fields, after }, call);
      return { items: page.environments, next: page.next };
    });
  }

  /** Returns an environment. */
  async get(environment: string, options: CallOptions = {}): Promise<Environment> {
    return await this.#transport.call("getEnvironment", { environment }, options);
  }

  /**
   * Yields the log of the latest attempt to make the sandbox, to the end of the attempt. With `follow: false`, only what
   * exists now.
   */
  logs(
    environment: string,
    options: { offset?: number | undefined; follow?: boolean | undefined } & CallOptions = {},
  ): AsyncGenerator<EnvironmentLogLine, void, undefined> {
    return logLines(this.#transport, environment, options);
  }

  /** Cancels the attempt in progress to make the sandbox, if there is one. Every caller that waits gets an error. */
  async cancel(environment: string, options: CallOptions = {}): Promise<Environment> {
    return await this.#transport.call("cancelEnvironment", { environment }, { isRepeatable: true, ...options });
  }

  /** Ends the run that a lease is for, and returns when what follows is done. A lease that is over is no error. */
  async release(environment: string, options: ReleaseEnvironment & CallOptions = {}): Promise<Environment> {
    const { signal, ...body } = options;
    // A lease ends once. Without one, every request ends a run.
    const isRepeatable = typeof body.lease === "string";
    return await this.#transport.call("releaseEnvironment", { environment }, { body, signal, isRepeatable });
  }

  /** Renews a lease: it lasts for `leaseMs` from now, at most 24 hours. */
  async renewLease(
    environment: string,
    lease: string,
    leaseMs: number,
    options: CallOptions = {},
  ): Promise<EnvironmentLease> {
    const input = { body: { leaseMs }, isRepeatable: true, ...options };
    return await this.#transport.call("renewEnvironmentLease", { environment, lease }, input);
  }

  /** Removes an environment with its sandboxes and its snapshots. Snapshots that others share stay. */
  async remove(environment: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("removeEnvironment", { environment }, options);
  }
}
