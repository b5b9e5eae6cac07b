/** One sandbox. */

import { apiError, type ApiError } from "./errors.js";
import { EventLog } from "./events.js";
import { type Command, exec, type ExecOptions, type ExecResult } from "./exec.js";
import { Files } from "./files.js";
import type {
  AttachVolume,
  CheckpointRequest,
  CloneRequest,
  Diff,
  DiffOrder,
  Egress,
  ForkChild,
  ForkRequest,
  Hold,
  HoldRequest,
  IfBusy,
  PromoteRequest,
  ResizeRequest,
  Restarted,
  ResumeRequest,
  RewindRequest,
  SandboxInfo,
  SetCheckpoints,
  SetRetention,
  SetTimeouts,
  Snapshot,
  State,
  SuspendRequest,
  Time,
  TreeNode,
  UpdateSandbox,
  Usage,
  UsageHistory,
  Why,
} from "./generated/types.js";
import { Ports } from "./ports.js";
import { Processes } from "./processes.js";
import { Pty, type PtyOptions } from "./pty.js";
import { Services } from "./services.js";
import { type CallOptions, type ChangeOptions, type MakeOptions, split, type Transport } from "./transport.js";
import { Watchers } from "./watchers.js";

/** The result for one child of {@link Sandbox.tryFork}: exactly one of the two is set. */
export interface ForkResult {
  sandbox?: Sandbox;
  error?: ApiError;
}

/** How a fork treats the volumes of its source. */
export type ForkOptions = Pick<ForkRequest, "volumes"> & MakeOptions;

/**
 * A sandbox: an isolated Linux computer that can be suspended, resumed, snapshotted, copied and rewound.
 *
 * Methods address it by its id. `info`, `state` and `name` are as of the last call that returned them; `refresh`
 * reads them again.
 *
 * `await using` terminates the sandbox at the end of the block:
 *
 * ```ts
 * await using sandbox = await dormouse.sandboxes.create({ image: "base" });
 * ```
 */
export class Sandbox implements AsyncDisposable {
  /** ID of the sandbox. It never changes and is never reused. */
  readonly id: string;
  /** Its files. */
  readonly files: Files;
  /** Its processes that were started through the API. */
  readonly processes: Processes;
  /** Its ports. */
  readonly ports: Ports;
  /** Its services: commands that it starts again when they end. */
  readonly services: Services;
  /** Its watchers, which keep changes of files. */
  readonly watchers: Watchers;
  /** What happened to it. */
  readonly events: EventLog;
  readonly #transport: Transport;
  #info: SandboxInfo;

  /** @internal */
  constructor(transport: Transport, info: SandboxInfo) {
    this.#transport = transport;
    this.#info = info;
    this.id = info.id;
    this.files = new Files(transport, info.id);
    this.processes = new Processes(transport, info.id);
    this.ports = new Ports(transport, info.id);
    this.services = new Services(transport, info.id);
    this.watchers = new Watchers(transport, info.id);
    this.events = new EventLog(transport, info.id);
  }

  /** Everything about the sandbox, as of the last call that returned it. */
  get info(): SandboxInfo {
    return this.#info;
  }

  /** Its name, if it has one. */
  get name(): string | undefined {
    return this.#info.name ?? undefined;
  }

  /** Its state, as of the last call that returned it. */
  get state(): State {
    return this.#info.state;
  }

  /** Reads `info` again. */
  async refresh(options: CallOptions = {}): Promise<this> {
    return this.#now(await this.#transport.call("getSandbox", { id: this.id }, options));
  }

  // Commands

  /**
   * Runs a command to its end: a line for `/bin/sh -c`, or a program with its arguments. A code other than 0 is a
   * result, unless `check` is set. The output has no limit, so bound what you do not trust. The command continues
   * if the call is aborted, unless `killOnAbort` is set.
   */
  async exec(command: Command, options: ExecOptions = {}): Promise<ExecResult> {
    return await exec(this.#transport, this.id, command, options);
  }

  /** Opens a terminal. Not in browsers, whose WebSockets cannot send an API key. */
  async pty(options: PtyOptions = {}): Promise<Pty> {
    return await Pty.open(this.#transport, this.id, options);
  }

  // Lifecycle

  /** Suspends the sandbox: its memory, processes and files are saved, or with `keep: "files"` its files only. */
  async suspend(options: SuspendRequest & ChangeOptions = {}): Promise<this> {
    const { call, fields } = split(options);
    return this.#now(await this.#transport.call("suspendSandbox", { id: this.id }, { body: fields, ...call }));
  }

  /** Resumes the sandbox. It is no error if it runs. */
  async resume(options: ResumeRequest & ChangeOptions = {}): Promise<this> {
    const { call, fields } = split(options);
    return this.#now(await this.#transport.call("resumeSandbox", { id: this.id }, { body: fields, ...call }));
  }

  /** Terminates the sandbox, for ever. It is no error if it is terminated. */
  async terminate(
    options: { ifBusy?: IfBusy | undefined; wait?: boolean | undefined } & ChangeOptions = {},
  ): Promise<this> {
    const { call, fields } = split(options);
    return this.#now(await this.#transport.call("terminateSandbox", { id: this.id }, { body: fields, ...call }));
  }

  /** Frees the memory that the suspended sandbox still holds. */
  async evict(options: ChangeOptions = {}): Promise<this> {
    return this.#now(await this.#transport.call("evictSandbox", { id: this.id }, options));
  }

  /** Creates a new sandbox from the newest snapshot of this terminated one. */
  async restart(options: { name?: string | undefined } & MakeOptions = {}): Promise<Sandbox> {
    const { call, fields } = split(options);
    const restarted: Restarted = await this.#transport.call(
      "restartSandbox",
      { id: this.id },
      { body: fields, ...call },
    );
    return new Sandbox(this.#transport, restarted.sandbox);
  }

  /** Terminates the sandbox at the end of an `await using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.terminate();
  }

  // Snapshots and copies

  /** Takes a snapshot: of the files, or with `kind: "memory"` also of memory and processes. */
  async checkpoint(options: CheckpointRequest & MakeOptions & ChangeOptions = {}): Promise<Snapshot> {
    const { call, fields } = split(options);
    return await this.#transport.call("checkpointSandbox", { id: this.id }, { body: fields, ...call });
  }

  /** Sets or ends automatic checkpoints. */
  async setCheckpointPolicy(policy: SetCheckpoints, options: ChangeOptions = {}): Promise<this> {
    return this.#now(await this.#transport.call("setCheckpointPolicy", { id: this.id }, { body: policy, ...options }));
  }

  /** Copies the sandbox through a memory snapshot, which stays. */
  async clone(options: CloneRequest & MakeOptions = {}): Promise<{ sandbox: Sandbox; snapshot: Snapshot }> {
    const { call, fields } = split(options);
    const cloned = await this.#transport.call("cloneSandbox", { id: this.id }, { body: fields, ...call });
    return { sandbox: new Sandbox(this.#transport, cloned.sandbox), snapshot: cloned.snapshot };
  }

  /**
   * Creates sandboxes that continue from this moment with the same memory and processes: a number of equal ones, or
   * one for each of the given settings. Either all are created or none.
   */
  async fork(children: number | readonly ForkChild[] = 1, options: ForkOptions = {}): Promise<Sandbox[]> {
    return (await this.#fork(children, "roll_back", options)).map(({ sandbox, error }) => {
      if (sandbox === undefined)
        throw error ?? new Error("unreachable: a fork that is not rolled back has all children");
      return sandbox;
    });
  }

  /** As {@link fork}, but keeps the children that could be created, and returns an error for each of the others. */
  async tryFork(children: number | readonly ForkChild[], options: ForkOptions = {}): Promise<ForkResult[]> {
    return await this.#fork(children, "keep", options);
  }

  /** Returns the sandbox to a snapshot. Its current state is kept as the snapshot `future`, by default for 7 days. */
  async rewind(
    to: string,
    options: Omit<RewindRequest, "to"> & MakeOptions & ChangeOptions = {},
  ): Promise<{ future: string | undefined }> {
    const { call, fields } = split(options);
    const rewound = await this.#transport.call("rewindSandbox", { id: this.id }, { body: { to, ...fields }, ...call });
    this.#now(rewound.sandbox);
    return { future: rewound.future ?? undefined };
  }

  /**
   * Replaces the parent of this fork with it: the parent continues with the memory and files of the fork, and the fork
   * ends. Returns the parent, and the snapshot of its previous state, by default kept for 7 days.
   */
  async promote(options: PromoteRequest & MakeOptions = {}): Promise<{ parent: Sandbox; future: string | undefined }> {
    const { call, fields } = split(options);
    const promoted = await this.#transport.call("promoteSandbox", { id: this.id }, { body: fields, ...call });
    return { parent: new Sandbox(this.#transport, promoted.sandbox), future: promoted.future ?? undefined };
  }

  /** Compares the files of this sandbox with those of a snapshot or another sandbox, from the older to the newer. */
  async diff(other: string, options: { order?: DiffOrder | undefined } & CallOptions = {}): Promise<Diff> {
    const { call, fields } = split(options);
    return await this.#transport.call("diffFiles", { from: other, to: this.id, ...fields }, call);
  }

  /** Returns the family tree that contains this sandbox, from its root. */
  async tree(options: { all?: boolean | undefined } & CallOptions = {}): Promise<TreeNode[]> {
    const { call, fields } = split(options);
    return (await this.#transport.call("getTree", { sandbox: this.id, ...fields }, call)).nodes;
  }

  // Settings

  /** Changes name, labels, annotations, limits, access to ports, and the action at a deadline. */
  async update(changes: UpdateSandbox, options: ChangeOptions = {}): Promise<this> {
    return this.#now(await this.#transport.call("updateSandbox", { id: this.id }, { body: changes, ...options }));
  }

  /** Changes the limits of CPU and memory, at once if the sandbox runs. */
  async resize(resources: ResizeRequest, options: ChangeOptions = {}): Promise<this> {
    return await this.update({ resources }, options);
  }

  /** Postpones the deadline that `timeoutMs` of the sandbox sets, to at least this long from now. */
  async extend(timeoutMs: number, options: ChangeOptions = {}): Promise<this> {
    return this.#now(await this.#transport.call("extendSandbox", { id: this.id }, { body: { timeoutMs }, ...options }));
  }

  /** Replaces all time limits. One that is left out is removed. */
  async setTimeouts(limits: SetTimeouts, options: ChangeOptions = {}): Promise<this> {
    return this.#now(await this.#transport.call("setTimeouts", { id: this.id }, { body: limits, ...options }));
  }

  /** Replaces the egress policy, which says where the sandbox may connect to. */
  async setEgress(egress: Egress, options: ChangeOptions = {}): Promise<this> {
    return this.#now(await this.#transport.call("setEgress", { id: this.id }, { body: { egress }, ...options }));
  }

  /** Sets how many sleep images are kept, and what happens if none can be restored. */
  async setRetention(retention: SetRetention, options: ChangeOptions = {}): Promise<this> {
    return this.#now(await this.#transport.call("setRetention", { id: this.id }, { body: retention, ...options }));
  }

  /** Keeps the sandbox awake for a time, whatever its time limits. */
  async hold(request: HoldRequest, options: MakeOptions & ChangeOptions = {}): Promise<Hold> {
    return await this.#transport.call("createHold", { id: this.id }, { body: request, ...options });
  }

  /** Ends a hold. */
  async release(hold: string, options: ChangeOptions = {}): Promise<this> {
    return this.#now(await this.#transport.call("deleteHold", { id: this.id, hold }, options));
  }

  /** Attaches a volume, also while the sandbox runs. */
  async attach(volume: AttachVolume, options: ChangeOptions = {}): Promise<this> {
    return this.#now(await this.#transport.call("attachVolume", { id: this.id }, { body: volume, ...options }));
  }

  /** Detaches the volume at a path. */
  async detach(path: string, options: ChangeOptions = {}): Promise<this> {
    return this.#now(await this.#transport.call("detachVolume", { id: this.id, path }, options));
  }

  // Inspection

  /** Explains why the sandbox runs or sleeps, what comes next, and what is on disk. */
  async why(options: CallOptions = {}): Promise<Why> {
    return await this.#transport.call("explainSandbox", { id: this.id }, options);
  }

  /** Returns what the sandbox uses now. */
  async usage(options: CallOptions = {}): Promise<Usage> {
    return await this.#transport.call("getSandboxUsage", { id: this.id }, options);
  }

  /** Returns samples of what the sandbox used. */
  async metrics(
    options: { since?: Time | undefined; until?: Time | undefined } & CallOptions = {},
  ): Promise<UsageHistory> {
    const { call, fields } = split(options);
    return await this.#transport.call("getSandboxMetrics", { id: this.id, ...fields }, call);
  }

  async #fork(
    children: number | readonly ForkChild[],
    onPartialFailure: "keep" | "roll_back",
    options: ForkOptions,
  ): Promise<ForkResult[]> {
    const { call, fields } = split(options);
    const wanted = typeof children === "number" ? { count: children } : { children: [...children] };
    const body = { ...wanted, onPartialFailure, ...fields };
    const forked = await this.#transport.call("forkSandbox", { id: this.id }, { body, ...call });
    return forked.children.map(({ sandbox, error }) => ({
      ...(sandbox && { sandbox: new Sandbox(this.#transport, sandbox) }),
      ...(error && { error: apiError({ ...error, next_step: error.nextStep }) }),
    }));
  }

  #now(info: SandboxInfo): this {
    this.#info = info;
    return this;
  }
}
