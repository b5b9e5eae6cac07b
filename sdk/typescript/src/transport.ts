/**
 * Requests to the daemon: authentication, conversion of bodies, errors, and retries.
 *
 * A request is repeated only if that is safe: if it is a GET, a POST with an idempotency key, or one that finds what
 * the first has made.
 */

import { apiError, DormouseError, isProblem, TransportError, UnexpectedResponseError } from "./errors.js";
import { type Operations, routes } from "./generated/operations.js";
import { parseEvents, type ServerEvent } from "./sse.js";
import { fromWire, toQuery, toWire } from "./wire.js";

/** Options of every call. */
export interface CallOptions {
  /** Aborts the call. Aborting does not undo what the daemon has begun. */
  signal?: AbortSignal | undefined;
}

/** Options of calls that act inside a sandbox. */
export interface InsideOptions extends CallOptions {
  /**
   * Whether the call resumes a suspended sandbox: `any` resumes it, `never` gives a {@link ConflictError}.
   * Default: the `wake` policy of the sandbox.
   */
  wake?: "any" | "never" | undefined;
}

/** Options of calls that change a sandbox. */
export interface ChangeOptions extends CallOptions {
  /** Fail with a {@link ConflictError} unless the sandbox has this `revision`. Default: change any. */
  ifRevision?: number | undefined;
}

/** Options of calls that make something. */
export interface MakeOptions extends CallOptions {
  /**
   * Identifies the request: another one with the same key makes nothing and returns what the first has made.
   * Default: a random key for each call, so that the SDK can retry.
   */
  idempotencyKey?: string | undefined;
}

/** Name of an operation of the API. */
export type OperationId = keyof Operations;

/** How to reach a daemon. */
export interface TransportOptions {
  /** Address of the daemon. */
  server: string;
  /** API key. */
  apiKey: string | undefined;
  /** Project of all requests. */
  project: string | undefined;
  /** How often a request is repeated. */
  maxRetries: number;
  /** Sends requests. */
  fetch: typeof fetch;
}

interface Input<Op extends OperationId> extends InsideOptions, ChangeOptions, MakeOptions {
  body?: Operations[Op]["body"];
  headers?: Record<string, string> | undefined;
  /** Whether a POST can be repeated, although it has no idempotency key. */
  isRepeatable?: boolean | undefined;
}

interface Route {
  method: string;
  path: string;
  body?: string | undefined;
  idempotent?: boolean | undefined;
}

const RETRY_DELAY_MS = 100;
const RETRY_DELAY_MS_MAX = 5_000;
/** A longer `Retry-After` is left to the caller. */
const RETRY_AFTER_MS_MAX = 60_000;

type AllCallOptions = InsideOptions & ChangeOptions & MakeOptions;

/** Separates the options of a call from the fields of its request. */
export function split<T extends AllCallOptions>(
  options: T,
): { call: AllCallOptions; fields: Omit<T, keyof AllCallOptions> } {
  const { signal, wake, ifRevision, idempotencyKey, ...fields } = options;
  return { call: { signal, wake, ifRevision, idempotencyKey }, fields };
}

/** Sends requests to one daemon. */
export class Transport {
  /** Address of the daemon, without a slash at its end. */
  readonly server: string;
  readonly #options: TransportOptions;

  constructor(options: TransportOptions) {
    this.server = options.server.replace(/\/+$/, "");
    this.#options = options;
  }

  /** Carries out an operation, and returns the result. */
  async call<Op extends OperationId>(
    operation: Op,
    params: Operations[Op]["params"],
    input: Input<Op> = {},
  ): Promise<Operations[Op]["result"]> {
    return await this.#repeat(operation, input, async (headers) => {
      const response = await this.#send(operation, params, { ...input, headers });
      const body = await this.#read(response, input.signal);
      return (body === "" ? undefined : fromWire(parse(body, response.status))) as Operations[Op]["result"];
    });
  }

  async #open<Op extends OperationId>(
    operation: Op,
    params: Operations[Op]["params"],
    input: Input<Op> = {},
  ): Promise<Response> {
    return await this.#repeat(operation, input, (headers) => this.#send(operation, params, { ...input, headers }));
  }

  /** Carries out an operation whose response is bytes, and returns them as they arrive. */
  async download<Op extends OperationId>(
    operation: Op,
    params: Operations[Op]["params"],
    input: Input<Op> = {},
  ): Promise<ReadableStream<Uint8Array>> {
    const { body } = await this.#open(operation, params, input);
    const reader = (body ?? new ReadableStream<Uint8Array>({ start: (controller) => controller.close() })).getReader();
    const read = async () => {
      try {
        return await reader.read();
      } catch (error) {
        throw this.#broken(error, input.signal);
      }
    };
    return new ReadableStream({
      async pull(controller) {
        const { done, value } = await read();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: (reason) => reader.cancel(reason),
    });
  }

  /** Carries out an operation whose response is a stream of events. An `error` event is thrown. */
  async *events<Op extends OperationId>(
    operation: Op,
    params: Operations[Op]["params"],
    input: Input<Op> = {},
  ): AsyncGenerator<ServerEvent, void, undefined> {
    yield* await this.listen(operation, params, input);
  }

  /** As {@link events}, but returns when the stream has begun. */
  async listen<Op extends OperationId>(
    operation: Op,
    params: Operations[Op]["params"],
    input: Input<Op> = {},
  ): Promise<AsyncGenerator<ServerEvent, void, undefined>> {
    const headers = { ...input.headers, accept: "text/event-stream" };
    return this.#events(await this.#open(operation, params, { ...input, headers }), input.signal);
  }

  async *#events(response: Response, signal: AbortSignal | undefined): AsyncGenerator<ServerEvent, void, undefined> {
    try {
      for await (const event of parseEvents(response.body!)) {
        if (event.kind === "error") throw apiError(parse(event.data, response.status));
        yield event;
      }
    } catch (error) {
      throw this.#broken(error, signal);
    }
  }

  /** Carries out an operation that reports its progress, and returns the result. */
  async finish<Op extends OperationId, Progress>(
    operation: Op,
    params: Operations[Op]["params"],
    input: Input<Op>,
    onProgress: ((progress: Progress) => void) | undefined,
  ): Promise<NonNullable<Operations[Op]["result"]>> {
    for await (const event of this.events(operation, params, input)) {
      if (event.kind === "progress") onProgress?.(data<Progress>(event));
      if (event.kind === "done") return data<NonNullable<Operations[Op]["result"]>>(event);
    }
    throw new TransportError(`${this.server} ended the stream early`);
  }

  /** The URL of an operation. */
  url<Op extends OperationId>(operation: Op, params: Operations[Op]["params"]): URL {
    const rest: Record<string, unknown> = { ...params };
    const path = routes[operation].path.replace(/\{(\w+)\}/g, (_, name: string) => {
      const value = String(rest[name]);
      delete rest[name];
      // A URL would lose a segment of dots, and the request would be another one.
      if (/^\.{0,2}$/.test(value)) throw new TypeError(`'${value}' is not a valid ${name}`);
      return encodeURIComponent(value);
    });
    const url = new URL(this.server + path);
    for (const [name, value] of toQuery(rest)) url.searchParams.append(name, value);
    return url;
  }

  /** The headers that every request to the daemon has. */
  credentials(): Record<string, string> {
    const { apiKey, project } = this.#options;
    return {
      ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
      ...(project === undefined ? {} : { "x-dormouse-project": project }),
    };
  }

  /** Sends a request that is not an operation, such as one to a port of a sandbox. */
  async fetch(url: URL, init: RequestInit): Promise<Response> {
    try {
      return await this.#options.fetch(url, init);
    } catch (error) {
      throw this.#broken(error, init.signal);
    }
  }

  async #repeat<Op extends OperationId, T>(
    operation: Op,
    input: Input<Op>,
    attempt: (headers: Record<string, string>) => Promise<T>,
  ): Promise<T> {
    const { method, idempotent } = routes[operation] as Route;
    const headers = { ...input.headers };
    if (idempotent) headers["idempotency-key"] = input.idempotencyKey ?? crypto.randomUUID();
    // A stream cannot be sent again.
    const canBeSentAgain = !((input.body as unknown) instanceof ReadableStream);
    const isSafe = method === "GET" || input.isRepeatable === true || (idempotent === true && canBeSentAgain);
    for (let retries = isSafe ? this.#options.maxRetries : 0, delay = RETRY_DELAY_MS; ; retries--) {
      try {
        return await attempt(headers);
      } catch (error) {
        const pause = retries > 0 ? pauseAfter(error, delay) : undefined;
        if (pause === undefined) throw error;
        await sleep(pause, input.signal);
        delay = Math.min(delay * 2, RETRY_DELAY_MS_MAX);
      }
    }
  }

  async #send<Op extends OperationId>(
    operation: Op,
    params: Operations[Op]["params"],
    input: Input<Op>,
  ): Promise<Response> {
    const { method, body: contentType } = routes[operation] as Route;
    const headers: Record<string, string> = { ...this.credentials(), ...input.headers };
    if (input.wake !== undefined) headers["x-dormouse-wake"] = input.wake;
    if (input.ifRevision !== undefined) headers["if-match"] = `"${input.ifRevision}"`;
    const init: RequestInit & { duplex?: "half" } = { method, headers, signal: input.signal ?? null };
    if (input.body !== undefined && contentType !== undefined) {
      headers["content-type"] = contentType;
      init.body = contentType === "application/json" ? JSON.stringify(toWire(input.body)) : (input.body as BodyInit);
      if (init.body instanceof ReadableStream) init.duplex = "half";
    }
    const response = await this.fetch(this.url(operation, params), init);
    if (response.ok) return response;
    throw problemOf(await this.#read(response, input.signal), response);
  }

  async #read(response: Response, signal: AbortSignal | undefined): Promise<string> {
    try {
      return await response.text();
    } catch (error) {
      throw this.#broken(error, signal);
    }
  }

  /** The error of the SDK for one of `fetch` or of a body. */
  #broken(error: unknown, signal: AbortSignal | null | undefined): unknown {
    if (error instanceof DormouseError || signal?.aborted) return error;
    // A source of the body failed with an error of the SDK.
    if (error instanceof Error && error.cause instanceof DormouseError) return error.cause;
    return new TransportError(`the connection to ${this.server} failed: ${reason(error)}`, { cause: error });
  }
}

/** The data of an event. */
export function data<T>(event: ServerEvent): T {
  return fromWire(parse(event.data, 200)) as T;
}

/** Waits. Throws the reason of the signal if it is aborted. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done, { once: true });
    function done(): void {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    }
  });
  signal?.throwIfAborted();
}

/** How long to wait before the next attempt; undefined if another attempt would not help. */
function pauseAfter(error: unknown, delay: number): number | undefined {
  const jittered = delay * (0.5 + Math.random() / 2);
  if (error instanceof TransportError) return jittered;
  const after = (error as { retryAfterMs?: number | undefined }).retryAfterMs;
  if (after !== undefined) return after <= RETRY_AFTER_MS_MAX ? after : undefined;
  return (error as { code?: string | undefined }).code === "unavailable" ? jittered : undefined;
}

function problemOf(body: string, response: Response): DormouseError {
  const after = Number(response.headers.get("retry-after") ?? NaN);
  const retryAfterMs = Number.isFinite(after) ? after * 1000 : undefined;
  try {
    const problem: unknown = JSON.parse(body);
    if (isProblem(problem)) return apiError(problem, retryAfterMs);
  } catch {
    // Not an answer of a daemon.
  }
  const message = `${response.url} answered with status ${response.status}, but not as a Dormouse daemon does`;
  return new UnexpectedResponseError(message, response.status);
}

function parse<T>(text: string, status: number): T {
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw new UnexpectedResponseError("the response is not JSON", status, { cause });
  }
}

function reason(error: unknown): string {
  const { message, cause } = error as { message?: string | undefined; cause?: { message?: string | undefined } };
  return cause?.message || message || String(error);
}
