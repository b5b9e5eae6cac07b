/** Runs: uses of an environment, each with a lease. */

import type { Ensured, EnsureOptions } from "./ensure.js";
import type { Environments } from "./environments.js";
import { ApiError, DormouseError } from "./errors.js";
import type { Environment, EnvironmentLease, RunOutcome } from "./generated/types.js";
import type { Sandbox } from "./sandbox.js";
import type { CallOptions } from "./transport.js";

/** Options of {@link Environments.run}. */
export interface RunOptions extends EnsureOptions {
  /**
   * How long the lease lasts if it is not renewed, because this program has died. At most 24 hours. Default 600,000.
   */
  leaseMs?: number | null | undefined;
}

/** How often the lease is renewed while it lasts. */
const RENEWALS = 3;

/**
 * The use of an environment by one run, with a lease that is renewed in the background.
 *
 * `await using` ends it at the end of the block, as completed unless {@link fail} was called.
 */
export class Run implements AsyncDisposable {
  /** The sandbox, and how it was had. */
  readonly ensured: Ensured;
  readonly #environments: Environments;
  readonly #leaseMs: number;
  readonly #lost = new AbortController();
  #lease: EnvironmentLease;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #outcome: RunOutcome = "completed";
  #ending: Promise<Environment> | undefined;

  /** @internal */
  constructor(environments: Environments, ensured: Ensured, leaseMs: number) {
    if (!ensured.lease) throw new DormouseError("the daemon gave no lease");
    this.ensured = ensured;
    this.#environments = environments;
    this.#lease = ensured.lease;
    this.#leaseMs = leaseMs;
    this.#schedule();
  }

  /** The sandbox. */
  get sandbox(): Sandbox {
    return this.ensured.sandbox;
  }

  /** The lease, as of its last renewal. */
  get lease(): EnvironmentLease {
    return this.#lease;
  }

  /** Is aborted if the lease is lost: it has expired, or its environment was removed. The run should stop then. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Marks the run as failed, so that no snapshot is taken when it ends. */
  fail(): void {
    this.#outcome = "failed";
  }

  /** Renews the lease now. */
  async renew(options: CallOptions = {}): Promise<EnvironmentLease> {
    const { environment } = this.ensured;
    this.#lease = await this.#environments.renewLease(environment.id, this.#lease.id, this.#leaseMs, options);
    return this.#lease;
  }

  /**
   * Ends the run, and returns the environment when what follows is done. When it was the last run of its environment,
   * the `lifecycle` says what follows: a snapshot is taken, or the sandbox is terminated.
   */
  async end(): Promise<Environment> {
    clearTimeout(this.#timer);
    const { environment } = this.ensured;
    this.#ending ??= this.#environments.release(environment.id, { lease: this.#lease.id, outcome: this.#outcome });
    return await this.#ending;
  }

  /** Ends the run. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }

  #schedule(): void {
    this.#timer = setTimeout(() => void this.#keep(), this.#leaseMs / RENEWALS);
    // The lease alone does not keep the program from ending.
    (this.#timer as { unref?: () => void }).unref?.();
  }

  async #keep(): Promise<void> {
    try {
      await this.renew();
    } catch (error) {
      // A daemon that cannot be reached is asked again while the lease may last.
      const isLost = error instanceof ApiError && error.status < 500;
      if (isLost && this.#ending === undefined) this.#lost.abort(error);
      if (isLost) return;
    }
    if (this.#ending === undefined) this.#schedule();
  }
}
