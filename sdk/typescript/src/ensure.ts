/** Asking for the sandbox of an environment, over any number of connections. */

import { ApiError, TransportError, UnavailableError } from "./errors.js";
import type {
  AttemptFailure,
  Considered,
  EnsuredInfo,
  EnsureRequest,
  Environment,
  EnvironmentLogLine,
} from "./generated/types.js";
import { Sandbox } from "./sandbox.js";
import type { ServerEvent } from "./sse.js";
import { type CallOptions, data, sleep, type Transport } from "./transport.js";

/** Options of {@link Environments.ensure}. */
export interface EnsureOptions extends EnsureRequest, CallOptions {
  /** Receives what happens, as it happens. */
  onEvent?: ((event: EnsureEvent) => void) | undefined;
}

/** The sandbox of an environment, and the way on which it was had. */
export interface Ensured extends Omit<EnsuredInfo, "sandbox"> {
  /** Its running sandbox. */
  sandbox: Sandbox;
}

/** What happens while the sandbox of an environment is made. */
export type EnsureEvent =
  /** The ways were considered. */
  | { type: "considered"; considered: Considered[] }
  /** The attempt to make the sandbox has advanced. */
  | { type: "attempt"; environment: Environment }
  /** The attempt has written a line to its log. */
  | { type: "line"; line: EnvironmentLogLine }
  /** The sandbox runs. It is the last event. */
  | { type: "ensured"; ensured: Ensured };

/** A step of the setup of an environment failed. */
export class SetupError extends ApiError {
  /** The environment, after the attempt. */
  readonly environment: Environment;
  /** Position of the step, starting at 0. */
  readonly step: number;
  /** Exit code of its command, if that exited. */
  readonly exitCode: number | undefined;
  /** ID of the sandbox that is kept for inspection, if `keepFailed` is set. */
  readonly kept: string | undefined;

  /** @internal */
  constructor(error: ApiError, environment: Environment, { step, exitCode, kept }: SetupFailure) {
    const { code, status, nextStep } = error;
    super({ code, status, detail: error.message, next_step: nextStep }, error.retryAfterMs);
    this.environment = environment;
    this.step = step;
    this.exitCode = exitCode ?? undefined;
    this.kept = kept ?? undefined;
  }

  /** The command of the step as one line. */
  get title(): string {
    return this.environment.attempt?.steps[this.step]?.title ?? "";
  }
}

type SetupFailure = AttemptFailure & { step: number };

/** How often in a row the daemon is asked again after an interruption, such as its restart. */
const REPEATS_MAX = 60;
const REPEAT_DELAY_MS = 500;

/** How long one request for lines of a log waits. HTTP clients give up on a silent response after some minutes. */
const WAIT_MS_MAX = 60_000;

/** Yields the log of the latest attempt, to its end if `follow`. */
export async function* logLines(
  transport: Transport,
  environment: string,
  options: { offset?: number | undefined; follow?: boolean | undefined } & CallOptions,
): AsyncGenerator<EnvironmentLogLine, void, undefined> {
  const { offset: from = 0, follow = true, signal } = options;
  for (let offset = from; ;) {
    const params = { environment, offset, waitMs: follow ? WAIT_MS_MAX : 0 };
    const page = await transport.call("getEnvironmentLog", params, { signal });
    yield* page.lines;
    if (page.lines.length === 0 && !(follow && page.inProgress)) return;
    offset = page.nextOffset;
  }
}

/** Yields what happens until the sandbox of an environment runs. */
export async function* ensureEvents(
  transport: Transport,
  { signal, ...body }: EnsureRequest & CallOptions,
): AsyncGenerator<EnsureEvent, void, undefined> {
  // One that nothing can be found by again must not be made twice.
  const isRepeatable = body.lifecycle?.reuse !== "none";
  const progress = new Progress(transport);
  let wasInterrupted = false;
  for (let repeats = 0; ; repeats++) {
    try {
      for await (const event of transport.events("ensureEnvironment", {}, { body, signal, isRepeatable })) {
        repeats = 0;
        const told = progress.take(event);
        if (told?.type === "ensured" && wasInterrupted) yield* progress.missed(signal);
        if (told !== undefined) yield told;
        if (told?.type === "ensured") return;
      }
      throw new TransportError("the stream of an environment ended early");
    } catch (error) {
      const mayRepeat = isRepeatable && progress.hasBegun && repeats < REPEATS_MAX;
      if (!mayRepeat || !isInterruption(error)) throw await progress.explained(error, signal);
      wasInterrupted = true;
      await sleep(REPEAT_DELAY_MS, signal);
    }
  }
}

function isInterruption(error: unknown): boolean {
  return error instanceof TransportError || error instanceof UnavailableError;
}

/** What a caller has been told. */
class Progress {
  readonly #transport: Transport;
  /** Whether the daemon has answered. One that never did is not waited for. */
  hasBegun = false;
  #environment: Environment | undefined;
  #nextLine = 0;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** What an event of the daemon says, if that is new. */
  take(event: ServerEvent): EnsureEvent | undefined {
    this.hasBegun = true;
    switch (event.kind) {
      case "considered":
        return { type: "considered", considered: data<Considered[]>(event) };
      case "attempt":
        return this.#advance(data<Environment>(event));
      case "line":
        return this.#line(data<EnvironmentLogLine>(event));
      case "ensured": {
        const { sandbox, ...ensured } = data<EnsuredInfo>(event);
        return { type: "ensured", ensured: { ...ensured, sandbox: new Sandbox(this.#transport, sandbox) } };
      }
      default:
        return undefined;
    }
  }

  /** The error, or if a step of the setup has failed, the one that says so. */
  async explained(error: unknown, signal: AbortSignal | undefined): Promise<unknown> {
    if (!(error instanceof ApiError)) return error;
    const environment = await this.#now(signal).catch(() => undefined);
    const failure = environment?.attempt?.failure;
    return environment !== undefined && isOfStep(failure) ? new SetupError(error, environment, failure) : error;
  }

  /** The lines that the attempt has written while there was no connection. */
  async *missed(signal: AbortSignal | undefined): AsyncGenerator<EnsureEvent, void, undefined> {
    const environment = await this.#now(signal);
    if (environment === undefined) return;
    for await (const line of logLines(this.#transport, environment.id, {
      offset: this.#nextLine,
      follow: false,
      signal,
    })) {
      yield { type: "line", line };
    }
  }

  /** The environment now, unless there is another attempt than the one that was told of. */
  async #now(signal: AbortSignal | undefined): Promise<Environment | undefined> {
    if (this.#environment === undefined) return undefined;
    const { id, attempt } = this.#environment;
    const now = await this.#transport.call("getEnvironment", { environment: id }, { signal });
    return now.attempt?.id === attempt?.id ? now : undefined;
  }

  #advance(environment: Environment): EnsureEvent {
    if (environment.attempt?.id !== this.#environment?.attempt?.id) this.#nextLine = 0;
    this.#environment = environment;
    return { type: "attempt", environment };
  }

  /** A line, unless it was told before: a repeated request gets the log from its beginning. */
  #line(line: EnvironmentLogLine): EnsureEvent | undefined {
    if (line.offset < this.#nextLine) return undefined;
    this.#nextLine = line.offset + 1;
    return { type: "line", line };
  }
}

function isOfStep(failure: AttemptFailure | null | undefined): failure is SetupFailure {
  return typeof failure?.step === "number";
}
