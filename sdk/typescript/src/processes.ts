/** Processes that continue without a caller. */

import { type Data, toBody } from "./bytes.js";
import { DormouseError } from "./errors.js";
import { type Command, commandFields } from "./exec.js";
import type { ExitStatus, ProcessInfo, SignalTarget, StartProcess } from "./generated/types.js";
import { followOutput, type OutputEvent, type OutputPosition } from "./output.js";
import { Pages } from "./pages.js";
import { type InsideOptions, split, type Transport } from "./transport.js";

/** Options of {@link Processes.start}. */
export interface StartOptions extends Omit<StartProcess, "argv" | "shell">, InsideOptions {}

/** Options of {@link Process.output}. */
export interface OutputOptions extends InsideOptions {
  /** Where to begin, such as the `position` of the last event received. Default: the beginning. */
  from?: OutputPosition | undefined;
  /** Continue to the end of the process. If false, only output that exists now is read. Default: true. */
  follow?: boolean | undefined;
}

/** Linux signals by name, as far as they are the same on every architecture. */
export const SIGNALS = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGUSR2: 12,
  SIGPIPE: 13,
  SIGALRM: 14,
  SIGTERM: 15,
  SIGCHLD: 17,
  SIGCONT: 18,
  SIGSTOP: 19,
  SIGTSTP: 20,
  SIGWINCH: 28,
} as const;

/** A signal: its name, or its number on Linux. */
export type Signal = keyof typeof SIGNALS | (number & {});

/** A wait is divided into requests of this length, because HTTP clients give up on a silent response. */
const WAIT_MS_MAX = 60_000;

/** The processes of a sandbox that were started through the API. */
export class Processes {
  readonly #transport: Transport;
  readonly #sandbox: string;

  /** @internal */
  constructor(transport: Transport, sandbox: string) {
    this.#transport = transport;
    this.#sandbox = sandbox;
  }

  /** Starts a process. It continues when the client disconnects, and across a suspend and a resume. */
  async start(command: Command, options: StartOptions = {}): Promise<Process> {
    const { call, fields } = split(options);
    const body = { ...commandFields(command), ...fields };
    const { process, pid } = await this.#transport.call("startProcess", { id: this.#sandbox }, { body, ...call });
    return new Process(this.#transport, this.#sandbox, process, pid);
  }

  /** Lists running processes, and ended ones that are still remembered, oldest first. */
  list(options: { label?: string | undefined; pid?: number | undefined } & InsideOptions = {}): Pages<ProcessInfo> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const params = { id: this.#sandbox, ...fields, after: after === undefined ? undefined : Number(after) };
      const page = await this.#transport.call("listProcesses", params, call);
      return { items: page.processes, next: page.next };
    });
  }

  /** Returns a process by its handle. */
  async get(process: number, options: InsideOptions = {}): Promise<Process> {
    const info = await this.#transport.call("getProcess", { id: this.#sandbox, process }, options);
    return new Process(this.#transport, this.#sandbox, info.process, info.pid);
  }
}

/** A process in a sandbox. Iterating over it yields its output from the beginning. */
export class Process implements AsyncIterable<OutputEvent> {
  /** Handle of the process, for {@link Processes.get}. */
  readonly id: number;
  /** Process ID inside the sandbox. */
  readonly pid: number;
  readonly #transport: Transport;
  readonly #params: { id: string; process: number };

  /** @internal */
  constructor(transport: Transport, sandbox: string, id: number, pid: number) {
    this.id = id;
    this.pid = pid;
    this.#transport = transport;
    this.#params = { id: sandbox, process: id };
  }

  /** Returns its command, environment and state. */
  async info(options: InsideOptions = {}): Promise<ProcessInfo> {
    return await this.#transport.call("getProcess", this.#params, options);
  }

  /**
   * Yields its output in the order in which it was written, and its exit last. A lost connection is continued
   * without a gap. After a suspend, call it again with the `position` of the last event.
   */
  output(options: OutputOptions = {}): AsyncGenerator<OutputEvent, void, undefined> {
    const { wake, signal, follow, from } = options;
    const open = (at: OutputPosition) =>
      this.#transport.events("streamProcessOutput", { ...this.#params, ...at, follow }, { wake, signal });
    return followOutput({ open, canReopen: () => true }, { from, follow, signal });
  }

  /** Yields its output from the beginning. */
  [Symbol.asyncIterator](): AsyncIterator<OutputEvent> {
    return this.output();
  }

  /** Waits for its end. */
  async wait(options: InsideOptions = {}): Promise<ExitStatus> {
    for (;;) {
      const slice = AbortSignal.timeout(WAIT_MS_MAX);
      const signal = options.signal ? AbortSignal.any([options.signal, slice]) : slice;
      try {
        return await this.#transport.call("waitForProcess", this.#params, { ...options, signal });
      } catch (error) {
        if (!slice.aborted || options.signal?.aborted || error instanceof DormouseError) throw error;
      }
    }
  }

  /** Writes to its standard input. Returns when the sandbox has accepted all of it. */
  async write(data: Data, options: InsideOptions = {}): Promise<void> {
    await this.#transport.call("writeProcessStdin", this.#params, { body: toBody(data), ...options });
  }

  /** Closes its standard input. In a terminal, this sends the end-of-file character. */
  async closeStdin(options: InsideOptions = {}): Promise<void> {
    await this.#transport.call("closeProcessStdin", this.#params, options);
  }

  /** Sends a signal to the process, or to its process group. Default: `SIGTERM` to the process. */
  async signal(
    signal: Signal = "SIGTERM",
    options: { target?: SignalTarget | undefined } & InsideOptions = {},
  ): Promise<void> {
    const { call, fields } = split(options);
    const number = typeof signal === "number" ? signal : SIGNALS[signal];
    await this.#transport.call("signalProcess", this.#params, { body: { signal: number, ...fields }, ...call });
  }

  /** Kills the process and all its descendants. Returns how many were killed. */
  async kill(options: InsideOptions = {}): Promise<number> {
    return (await this.#transport.call("killProcess", this.#params, options)).killed;
  }

  /** Changes the size of its terminal. */
  async resize(cols: number, rows: number, options: InsideOptions = {}): Promise<void> {
    await this.#transport.call("resizeProcessTerminal", this.#params, { body: { cols, rows }, ...options });
  }
}
