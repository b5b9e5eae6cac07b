/** Commands and processes of a sandbox, as TanStack AI sees them. */

import { ApiError, DormouseError, type ExitStatus, type Process, type Sandbox, SIGNALS } from "@dormouse/sdk";
import type { ProcessOptions, SandboxProcess, SpawnHandle } from "@tanstack/ai-sandbox";

import type { WorkspacePaths } from "./paths.js";

/** How commands run. */
export interface ProcessSettings {
  /** The shell that runs a command line. */
  shell: string;
  /** The user to run as. Undefined for the user of the image. */
  user: string | undefined;
  /** Variables of this handle, which go before those of the sandbox. */
  env: Record<string, string>;
}

/** How much output is kept for a reader that does not follow yet. */
const KEPT_BYTES = 8 << 20;

export function createProcess(sandbox: Sandbox, paths: WorkspacePaths, settings: ProcessSettings): SandboxProcess {
  const prepare = (options: ProcessOptions = {}) => ({
    cwd: options.cwd === undefined ? paths.root : paths.toReal(options.cwd),
    env: { ...settings.env, ...options.env },
    user: settings.user,
  });
  const commandLine = (command: string): string[] => [settings.shell, "-c", command];

  return {
    async exec(command, options) {
      const call = { ...prepare(options), signal: options?.signal, killOnAbort: true };
      const result = await sandbox.exec(commandLine(command), call);
      if (result.lostBytes > 0) throw new DormouseError(`${result.lostBytes} bytes of output were lost`);
      return { stdout: result.stdout, stderr: result.stderr, exitCode: exitCode(result) };
    },
    async spawn(command, options) {
      options?.signal?.throwIfAborted();
      const start = { ...prepare(options), stdin: "pipe", outputKeptBytes: KEPT_BYTES } as const;
      const process = await sandbox.processes.start(commandLine(command), start);
      return new Spawned(process, options?.signal);
    },
  };
}

/** A process that runs in the background. It can be read by one reader for each output. */
class Spawned implements SpawnHandle {
  readonly pid: number;
  readonly stdout: AsyncIterable<string>;
  readonly stderr: AsyncIterable<string>;
  readonly stdin: { write: (data: string) => Promise<void>; end: () => Promise<void> };
  readonly #process: Process;
  #written: Promise<void> = Promise.resolve();
  #exit: Promise<number> | undefined;

  constructor(process: Process, signal: AbortSignal | undefined) {
    this.#process = process;
    this.pid = process.pid;
    this.stdout = { [Symbol.asyncIterator]: () => this.#read("stdout") };
    this.stderr = { [Symbol.asyncIterator]: () => this.#read("stderr") };
    this.stdin = {
      write: (data) => this.#next(() => process.write(data)),
      end: () => this.#next(() => unlessEnded(process.closeStdin())),
    };
    const abort = (): void => void this.kill().catch(() => undefined);
    signal?.addEventListener("abort", abort, { once: true });
    // It may have been aborted while the process was started.
    if (signal?.aborted) abort();
  }

  wait(): Promise<number> {
    this.#exit ??= this.#process.wait().then(exitCode);
    return this.#exit;
  }

  async kill(signal: NodeJS.Signals | number = "SIGKILL"): Promise<void> {
    if (signal === "SIGKILL" || signal === SIGNALS.SIGKILL) {
      // With all descendants, also those that have left its group.
      await unlessEnded(this.#process.kill());
      return;
    }
    const number = typeof signal === "number" ? signal : SIGNALS[signal as keyof typeof SIGNALS];
    if (number === undefined) throw new TypeError(`the signal ${signal} is not supported`);
    await unlessEnded(this.#process.signal(number, { target: "group" }));
  }

  /** Runs after what was written before, so that writes that are not awaited keep their order. */
  #next(write: () => Promise<void>): Promise<void> {
    const done = this.#written.then(write);
    this.#written = done.catch(() => undefined);
    return done;
  }

  async *#read(stream: "stdout" | "stderr"): AsyncGenerator<string, void, undefined> {
    for await (const event of this.#process.output()) {
      if (event.type === stream && event.text !== "") yield event.text;
      if (event.type === "lost" && event.stream === stream) {
        throw new DormouseError(`${event.lostBytes} bytes of ${stream} were lost`);
      }
    }
  }
}

/** The exit code as a shell reports it: 128 and the signal for a process that a signal has ended. */
function exitCode({ exitCode, signal }: ExitStatus): number {
  return exitCode ?? 128 + (signal ?? 0);
}

/** It is no error to end what has ended. */
async function unlessEnded(call: Promise<unknown>): Promise<void> {
  try {
    await call;
  } catch (error) {
    if (!(error instanceof ApiError) || !["not_found", "conflict", "gone"].includes(error.code)) throw error;
  }
}
