/** Terminals, over a WebSocket. */

import { toBytes } from "./bytes.js";
import { apiError, DormouseError, isProblem, TransportError, UnexpectedResponseError } from "./errors.js";
import type { ExitStatus, TerminalMessage } from "./generated/types.js";
import { type InsideOptions, split, type Transport } from "./transport.js";
import { fromWire } from "./wire.js";

/** Options of {@link Sandbox.pty}. */
export interface PtyOptions extends InsideOptions {
  /** Command line for `/bin/sh -c`. Default: the login shell of the user. */
  cmd?: string | undefined;
  /** Number of rows. Default 24. */
  rows?: number | undefined;
  /** Number of columns. Default 80. */
  cols?: number | undefined;
  /** User to run as: a name, a number, or `UID:GID`. Default: the user of the image, or root. */
  user?: string | undefined;
  /** Working directory. Default: that of the image, or the home directory of the user. */
  cwd?: string | undefined;
  /** Value of `TERM`. Default `xterm-256color`. */
  term?: string | undefined;
  /** Attach to the terminal of this process instead of starting one: `process` of an earlier terminal. */
  attach?: number | undefined;
  /** With `attach`: start at this byte of the output. Default 0. */
  offset?: number | undefined;
}

type Socket = import("ws").WebSocket;

/**
 * A terminal. Iterating over it yields the bytes that it shows, until its process has ended or {@link close} was
 * called. The process continues when the connection ends, and can be attached to again.
 */
export class Pty implements AsyncIterable<Uint8Array> {
  /** Handle of the process, for `attach`. */
  readonly process: number;
  /** Process ID inside the sandbox. */
  readonly pid: number;
  /** Position in the output after the last piece that was read, for `offset`. */
  offset: number;
  /** How the process ended. Undefined until it has, and its output was read. */
  exit: ExitStatus | undefined;
  readonly #socket: Socket;
  readonly #frames: Frames;

  private constructor(socket: Socket, frames: Frames, started: { process: number; pid: number }, offset: number) {
    this.#socket = socket;
    this.#frames = frames;
    this.process = started.process;
    this.pid = started.pid;
    this.offset = offset;
  }

  /** @internal */
  static async open(transport: Transport, id: string, options: PtyOptions): Promise<Pty> {
    const { call, fields } = split(options);
    call.signal?.throwIfAborted();
    const url = transport.url("openTerminal", { id, ...fields });
    url.protocol = url.protocol.replace("http", "ws");
    const headers = { ...transport.credentials(), ...(call.wake && { "x-dormouse-wake": call.wake }) };
    const { WebSocket } = (await import("ws")) as Partial<typeof import("ws")>;
    // In browsers, the package is empty.
    if (WebSocket === undefined) throw new DormouseError("a terminal needs Node, Deno or Bun");
    const socket = new WebSocket(url, { headers });
    const frames = new Frames(socket);
    call.signal?.addEventListener("abort", () => socket.terminate(), { once: true });
    const first = await frames.next();
    call.signal?.throwIfAborted();
    if (first.done || first.value instanceof Uint8Array || first.value.type !== "started") {
      throw new TransportError("the terminal did not start");
    }
    return new Pty(socket, frames, first.value, fields.offset ?? 0);
  }

  /** Types into the terminal. */
  write(input: string | Uint8Array): void {
    this.#socket.send(toBytes(input));
  }

  /** Changes the size of the terminal. */
  resize(cols: number, rows: number): void {
    this.#socket.send(JSON.stringify({ type: "resize", cols, rows }));
  }

  /** Sends the end-of-file character. */
  end(): void {
    this.#socket.send(JSON.stringify({ type: "eof" }));
  }

  /** Closes the connection. The process continues. */
  close(): void {
    this.#socket.close();
  }

  /** Yields what the terminal shows. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const frame of this.#frames) {
      if (frame instanceof Uint8Array) {
        this.offset += frame.length;
        yield frame;
      } else if (frame.type === "lost") {
        this.offset = frame.offset + frame.bytes;
      } else if (frame.type === "exit") {
        this.exit = { exitCode: frame.exitCode ?? null, signal: frame.signal ?? null, timedOut: false };
      }
    }
  }

  /** Reads to the end of the process, and returns how it ended. What it shows meanwhile is dropped. */
  async wait(): Promise<ExitStatus> {
    if (this.exit === undefined) {
      for await (const _ of this) void _;
    }
    if (this.exit === undefined) throw new TransportError("the connection to the terminal ended early");
    return this.exit;
  }

  /** Closes the connection. */
  [Symbol.dispose](): void {
    this.close();
  }
}

type Frame = Uint8Array | TerminalMessage;

/** The frames of a WebSocket, in their order. */
class Frames implements AsyncIterableIterator<Frame> {
  readonly #ready: Frame[] = [];
  #waiting: (() => void) | undefined;
  #error: Error | undefined;
  #isOver = false;

  constructor(socket: Socket) {
    socket.on("message", (message: Buffer, isBinary: boolean) => {
      if (isBinary) this.#push(new Uint8Array(message));
      else this.#take(fromWire(JSON.parse(message.toString())) as TerminalMessage);
    });
    socket.on("unexpected-response", (_, response) => {
      let body = "";
      response.on("data", (piece: Buffer) => (body += piece.toString()));
      response.on("end", () => this.#fail(refusal(body, response.statusCode ?? 0)));
    });
    socket.on("error", (cause) => this.#fail(new TransportError(`the connection failed: ${cause.message}`, { cause })));
    socket.on("close", () => this.#finish());
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Frame, undefined>> {
    while (this.#ready.length === 0 && !this.#isOver) {
      await new Promise<void>((resolve) => (this.#waiting = resolve));
    }
    const value = this.#ready.shift();
    if (value !== undefined) return { done: false, value };
    if (this.#error !== undefined) throw this.#error;
    return { done: true, value: undefined };
  }

  #take(message: TerminalMessage): void {
    if (message.type !== "error") return this.#push(message);
    this.#fail(apiError({ ...message, next_step: message.nextStep }));
  }

  #push(frame: Frame): void {
    this.#ready.push(frame);
    this.#waiting?.();
  }

  #fail(error: Error): void {
    this.#error ??= error;
    this.#finish();
  }

  #finish(): void {
    this.#isOver = true;
    this.#waiting?.();
  }
}

function refusal(body: string, status: number): Error {
  try {
    const problem: unknown = JSON.parse(body);
    if (isProblem(problem)) return apiError(problem);
  } catch {
    // Not an answer of a daemon.
  }
  return new UnexpectedResponseError(`the terminal was refused with status ${status}`, status);
}
