/** Commands that are waited for. */

import { concat, type Data, toBody, toText } from "./bytes.js";
import { ApiError, DormouseError } from "./errors.js";
import type { CheckpointTaken, ExitStatus, ProcessStarted, SnapshotKind } from "./generated/types.js";
import { followOutput, type OutputEvent, type OutputPosition, type OutputSource } from "./output.js";
import type { ServerEvent } from "./sse.js";
import { data, type InsideOptions, type Transport } from "./transport.js";

/** A command: a line for `/bin/sh -c`, or a program with its arguments. */
export type Command = string | readonly string[];

/** Options of {@link Sandbox.exec}. */
export interface ExecOptions extends InsideOptions {
  /** Working directory. Default: that of the image, or the home directory of `user`. */
  cwd?: string | undefined;
  /** Environment variables in addition to those of the sandbox. */
  env?: Record<string, string> | undefined;
  /** User to run as: a name, a number, or `UID:GID`. Default: the user of the image, or root. */
  user?: string | undefined;
  /** Standard input. Default: empty. */
  stdin?: Data | undefined;
  /**
   * Time limit in milliseconds, after which the command and its process group are killed. Time during which the
   * sandbox is suspended does not count. Default: none.
   */
  timeoutMs?: number | undefined;
  /** Take a snapshot of this kind first. If that fails, the command does not run. Default: none. */
  checkpoint?: SnapshotKind | undefined;
  /** Receives output as it arrives. */
  onOutput?: ((event: OutputEvent) => void) | undefined;
  /** Throw a {@link CommandError} unless the exit code is 0. Default: false. */
  check?: boolean | undefined;
  /** Kill the command with all its descendants if `signal` aborts the call. Default: false, it continues. */
  killOnAbort?: boolean | undefined;
}

/** How a command ended, and what it wrote. */
export class ExecResult implements ExitStatus {
  /** Exit code, 0 to 255. Null if a signal ended the command. */
  readonly exitCode: number | null;
  /** Number of the signal that ended the command. Null if it exited. */
  readonly signal: number | null;
  /** Whether the command was killed at its time limit. */
  readonly timedOut: boolean;
  /** Handle of the process. */
  readonly process: number;
  /** Process ID inside the sandbox. */
  readonly pid: number;
  /** ID of the snapshot that was taken first, if one was requested. */
  readonly checkpoint: string | undefined;
  /** The bytes of standard output. */
  readonly stdoutBytes: Uint8Array;
  /** The bytes of standard error. */
  readonly stderrBytes: Uint8Array;
  /** How many bytes of output were lost, because the connection was interrupted for too long. Usually 0. */
  readonly lostBytes: number;

  /** @internal */
  constructor(parts: ExecParts) {
    this.exitCode = parts.exit.exitCode ?? null;
    this.signal = parts.exit.signal ?? null;
    this.timedOut = parts.exit.timedOut;
    this.process = parts.started.process;
    this.pid = parts.started.pid;
    this.checkpoint = parts.checkpoint;
    this.stdoutBytes = concat(parts.stdout);
    this.stderrBytes = concat(parts.stderr);
    this.lostBytes = parts.lostBytes;
  }

  /** Standard output as text. */
  get stdout(): string {
    return toText(this.stdoutBytes);
  }

  /** Standard error as text. */
  get stderr(): string {
    return toText(this.stderrBytes);
  }

  /** Whether the exit code is 0. */
  get ok(): boolean {
    return this.exitCode === 0;
  }
}

interface ExecParts {
  exit: ExitStatus;
  started: ProcessStarted;
  checkpoint: string | undefined;
  stdout: Uint8Array[];
  stderr: Uint8Array[];
  lostBytes: number;
}

/** A command did not exit with code 0, and `check` was set. */
export class CommandError extends DormouseError {
  /** How the command ended, and what it wrote. */
  readonly result: ExecResult;

  constructor(result: ExecResult) {
    const end = result.timedOut
      ? "exceeded its time limit"
      : result.signal === null
        ? `exited with code ${result.exitCode}`
        : `was ended by signal ${result.signal}`;
    const said = result.stderr.trim() || result.stdout.trim();
    super(`the command ${end}${said === "" ? "" : `: ${said.slice(-1000)}`}`);
    this.result = result;
  }
}

/** Longer input is sent beside the request, whose length is limited. */
const INLINE_STDIN_BYTES_MAX = 256 * 1024;

/** Runs a command to its end. */
export async function exec(
  transport: Transport,
  id: string,
  command: Command,
  options: ExecOptions,
): Promise<ExecResult> {
  const { signal, killOnAbort } = options;
  signal?.throwIfAborted();
  const execution = new Execution(transport, id, command, options);
  const finished = finish(execution, options);
  if (!killOnAbort || signal === undefined) return await finished;
  return await new Promise((resolve, reject) => {
    const abort = (): void => {
      reject(signal.reason as Error);
      execution.kill();
    };
    signal.addEventListener("abort", abort, { once: true });
    finished.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** Reads the output of a command to its end. */
async function finish(execution: Execution, { onOutput, check }: ExecOptions): Promise<ExecResult> {
  const parts: Omit<ExecParts, "exit" | "started"> = { checkpoint: undefined, stdout: [], stderr: [], lostBytes: 0 };
  for await (const event of followOutput(execution, { signal: execution.signal })) {
    onOutput?.(event);
    if (event.type === "exit") {
      await execution.fed;
      execution.signal.throwIfAborted();
      const result = new ExecResult({
        ...parts,
        checkpoint: execution.checkpoint,
        exit: event,
        started: execution.started!,
      });
      if (check && !result.ok) throw new CommandError(result);
      return result;
    }
    if (event.type === "lost") parts.lostBytes += event.lostBytes;
    else parts[event.type].push(event.bytes);
  }
  throw new Error("unreachable: the output of a command has an end");
}

/** The fields of a request that say what to run. */
export function commandFields(command: Command): { shell: string } | { argv: string[] } {
  return typeof command === "string" ? { shell: command } : { argv: [...command] };
}

/** The output of one command: its first connection starts it, others continue. */
class Execution implements OutputSource {
  checkpoint: string | undefined;
  started: ProcessStarted | undefined;
  /** Settles when the whole input was sent. */
  fed: Promise<void> = Promise.resolve();
  /** Aborts the execution: for the caller, or because its input cannot be read. */
  readonly signal: AbortSignal;
  readonly #inputFailed = new AbortController();
  #isUnwanted = false;
  readonly #transport: Transport;
  readonly #id: string;
  readonly #command: Command;
  readonly #options: ExecOptions;

  constructor(transport: Transport, id: string, command: Command, options: ExecOptions) {
    this.#transport = transport;
    this.#id = id;
    this.#command = command;
    this.#options = options;
    // A command that is to be killed is followed until its handle is known.
    const caller = options.signal && !options.killOnAbort ? [options.signal] : [];
    this.signal = AbortSignal.any([this.#inputFailed.signal, ...caller]);
  }

  /** Kills the command, as soon as its handle is known. */
  kill(): void {
    this.#isUnwanted = true;
    if (this.started === undefined) return;
    const params = { id: this.#id, process: this.started.process };
    this.#transport.call("killProcess", params).catch(() => undefined);
  }

  open(at: OutputPosition): AsyncIterable<ServerEvent> {
    const { wake, cwd, env, user, timeoutMs, checkpoint } = this.#options;
    const { signal } = this;
    if (this.started !== undefined) {
      const params = { id: this.#id, process: this.started.process, ...at };
      return this.#transport.events("streamProcessOutput", params, { signal, wake });
    }
    const { inline, isStreamed } = this.#stdin();
    const body = {
      ...commandFields(this.#command),
      ...{ cwd, env, user, timeoutMs, checkpoint },
      ...(isStreamed ? { stdinOpen: true } : { stdin: inline }),
    };
    return this.#transport.events("execCommand", { id: this.#id }, { body, signal, wake });
  }

  canReopen(): boolean {
    return this.started !== undefined;
  }

  onOther(event: ServerEvent): void {
    if (event.kind === "checkpoint") this.checkpoint = data<CheckpointTaken>(event).snapshot;
    if (event.kind === "started") {
      this.started = data<ProcessStarted>(event);
      if (this.#isUnwanted) this.kill();
      else if (this.#stdin().isStreamed) this.fed = this.#feed({ id: this.#id, process: this.started.process });
    }
  }

  /** Sends the input, and closes it. It is no error if the command reads no more. */
  async #feed(params: { id: string; process: number }): Promise<void> {
    const { signal } = this;
    try {
      await this.#transport.call("writeProcessStdin", params, { body: toBody(this.#options.stdin!), signal });
      await this.#transport.call("closeProcessStdin", params, { signal });
    } catch (error) {
      const isOver = error instanceof ApiError && (error.code === "not_found" || error.code === "conflict");
      if (isOver || signal.aborted) return;
      this.#inputFailed.abort(error);
      // The command would wait for the rest for ever.
      await this.#transport.call("killProcess", params).catch(() => undefined);
    }
  }

  #stdin(): { inline: string | Uint8Array | undefined; isStreamed: boolean } {
    const { stdin } = this.#options;
    const isShort =
      (typeof stdin === "string" || stdin instanceof Uint8Array) && stdin.length <= INLINE_STDIN_BYTES_MAX;
    return { inline: isShort ? stdin : undefined, isStreamed: stdin !== undefined && !isShort };
  }
}
