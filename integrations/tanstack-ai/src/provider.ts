/** The provider: creates, finds, restores and destroys sandboxes for TanStack AI. */

import {
  ConflictError,
  type CreateOptions,
  Dormouse,
  type DormouseOptions,
  type Egress,
  GoneError,
  NotFoundError,
  type PortAccess,
  type ResourcesRequest,
  type Sandbox,
  type SnapshotKind,
} from "@dormouse/sdk";
import type {
  SandboxCreateInput,
  SandboxDestroyInput,
  SandboxPolicy,
  SandboxProvider,
  SandboxRestoreInput,
  SandboxResumeInput,
} from "@tanstack/ai-sandbox";

import { CAPABILITIES, type Capabilities } from "./capabilities.js";
import { DormouseHandle, type HandleSettings } from "./handle.js";
import { PROVIDER, relatedName, sandboxName } from "./names.js";
import { WorkspacePaths } from "./paths.js";

/** Options of {@link dormouseSandbox}. */
export interface DormouseSandboxOptions {
  /** The client, or its options. Default: `DORM_SERVER` and `DORM_KEY` of the environment. */
  client?: Dormouse | DormouseOptions;
  /** What sandboxes start from. Default: `{ image: "base" }`. */
  source?: { image: string } | { snapshot: string } | { template: string };
  /** Directory that the virtual root `/workspace` stands for. It is created. Default `/workspace`. */
  workspaceRoot?: string;
  /** Shell that runs commands. Default `sh`. */
  shell?: string;
  /** User that runs commands: a name, a number, or `UID:GID`. Default: the user of the image, or root. */
  user?: string;
  /** Start of the names of sandboxes. Default `tanstack`. */
  namePrefix?: string;
  /** CPU, memory, disk and processes. Default: those of the daemon. */
  resources?: ResourcesRequest;
  /** Where sandboxes may connect to, unless the policy of a definition denies the network. Default `public`. */
  egress?: Egress;
  /** Who can reach the ports of sandboxes. Default `private`: `ports.connect` returns a token. */
  portAccess?: PortAccess;
  /** Labels of sandboxes. */
  labels?: Record<string, string>;
  /** Suspend a sandbox that was not used for so long, in milliseconds. Null for never. Default 1,800,000. */
  idleTimeoutMs?: number | null;
  /** What a snapshot holds: files, or also memory and processes. Default `filesystem`. */
  snapshotKind?: SnapshotKind;
  /**
   * How old the sandbox of an id may be, in milliseconds, so that `create` with this id joins it. An older one is
   * retired, and a fresh one is created. Default: any age. See the README.
   */
  maxAgeMs?: number;
  /** How a sandbox is retired: it is renamed and suspended, or terminated. Default `rename`. */
  retire?: "rename" | "terminate";
}

/** A provider whose handles are {@link DormouseHandle}s. */
export interface DormouseProvider extends SandboxProvider {
  capabilities(): Capabilities;
  create(input: SandboxCreateInput): Promise<DormouseHandle>;
  resume(input: SandboxResumeInput): Promise<DormouseHandle | null>;
  restoreSnapshot(input: SandboxRestoreInput): Promise<DormouseHandle>;
}

const IDLE_TIMEOUT_MS = 1_800_000;
/** How often a name is tried that others take and free meanwhile. */
const ATTEMPTS_MAX = 10;

/** Creates a provider of Dormouse sandboxes. */
export function dormouseSandbox(options: DormouseSandboxOptions = {}): DormouseProvider {
  return new Provider(options);
}

class Provider implements DormouseProvider {
  readonly name = PROVIDER;
  readonly #dormouse: Dormouse;
  readonly #options: DormouseSandboxOptions;
  readonly #settings: HandleSettings;

  constructor(options: DormouseSandboxOptions) {
    const { client, workspaceRoot, shell = "sh", user, snapshotKind = "filesystem" } = options;
    this.#dormouse = client instanceof Dormouse ? client : new Dormouse(client);
    this.#options = options;
    this.#settings = { paths: new WorkspacePaths(workspaceRoot), shell, user, snapshotKind };
  }

  capabilities(): Capabilities {
    return { ...CAPABILITIES };
  }

  /**
   * Creates the sandbox of an id, or joins it if it exists. So any number of callers with one id get one sandbox, also
   * from several processes.
   */
  async create(input: SandboxCreateInput): Promise<DormouseHandle> {
    const { namePrefix = "tanstack", source = { image: "base" } } = this.#options;
    const name = sandboxName(namePrefix, input.id ?? crypto.randomUUID());
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#start({ ...source, name }, input);
      } catch (error) {
        if (!(error instanceof ConflictError) || attempt === ATTEMPTS_MAX) throw error;
      }
      const existing = await this.#join(name, input);
      if (existing !== undefined) return await this.#handle(existing, input);
    }
  }

  /** Returns the sandbox, and wakes it if it is suspended. Null only if it is gone. */
  async resume({ id, signal }: SandboxResumeInput): Promise<DormouseHandle | null> {
    const sandbox = await this.#living(id, signal);
    if (sandbox === undefined) return null;
    const resumed = await unlessGone(sandbox.resume({ signal }));
    return resumed === undefined ? null : new DormouseHandle(resumed, this.#settings);
  }

  /** Creates a sandbox from a snapshot, with the policy and the variables of now. */
  async restoreSnapshot(input: SandboxRestoreInput): Promise<DormouseHandle> {
    const { id, labels } = await this.#dormouse.snapshots.get(input.snapshotId, { signal: input.signal });
    const original = labels[PROVIDER] ?? `${PROVIDER}-${id}`;
    try {
      return await this.#start({ snapshot: id, name: original }, input);
    } catch (error) {
      if (!(error instanceof ConflictError)) throw error;
    }
    const existing = await this.#living(original, input.signal);
    // Another caller may have restored it at the same time.
    if (existing?.info.snapshot === id) {
      return await this.#handle(await existing.resume({ signal: input.signal }), input);
    }
    return await this.#start({ snapshot: id, name: relatedName(original, "restored") }, input);
  }

  /** Terminates a sandbox. It is no error if it is gone. */
  async destroy({ id }: SandboxDestroyInput): Promise<void> {
    // The layer of 0.2.4 destroys the sandbox of an aborted run with the signal of that run, so it is not heeded.
    const sandbox = await this.#living(id);
    if (sandbox !== undefined) await unlessGone(sandbox.terminate());
  }

  async #start(source: CreateOptions, input: SandboxCreateInput): Promise<DormouseHandle> {
    const { resources, portAccess = "private", labels, idleTimeoutMs = IDLE_TIMEOUT_MS } = this.#options;
    const { adapterName } = input as { adapterName?: string };
    const sandbox = await this.#dormouse.sandboxes.create({
      ...source,
      ...{ resources, portAccess, idleTimeoutMs },
      egress: this.#egress(input.policy),
      labels: { ...labels, [PROVIDER]: "tanstack-ai", ...(adapterName === undefined ? {} : { adapter: adapterName }) },
      // Secrets are encrypted in records, and in no snapshot of files. Every process has them as variables.
      secrets: input.env ?? {},
      onTimeout: "suspend",
      wake: "any",
      signal: input.signal,
    });
    try {
      return await this.#prepare(new DormouseHandle(sandbox, this.#settings, input.env));
    } catch (error) {
      await sandbox.terminate().catch(() => undefined);
      throw error;
    }
  }

  /** The sandbox that has a name; undefined if the name is free now. */
  async #join(name: string, { signal }: SandboxCreateInput): Promise<Sandbox | undefined> {
    const { maxAgeMs = Infinity } = this.#options;
    const sandbox = await this.#living(name, signal);
    if (sandbox === undefined) return undefined;
    const ageMs = Date.now() - Date.parse(sandbox.info.createdAt);
    if (ageMs <= maxAgeMs) return await unlessGone(sandbox.resume({ signal }));
    await this.#retire(sandbox, name);
    return undefined;
  }

  async #retire(sandbox: Sandbox, name: string): Promise<void> {
    if (this.#options.retire === "terminate") {
      await unlessGone(sandbox.terminate());
      return;
    }
    // Of several callers that retire it at the same time, one does.
    const { revision: ifRevision } = sandbox.info;
    try {
      await sandbox.update({ name: relatedName(name, "retired") }, { ifRevision });
    } catch (error) {
      if (error instanceof ConflictError || error instanceof GoneError) return;
      throw error;
    }
    // If this fails, its idle timeout suspends it.
    await sandbox.suspend().catch(() => undefined);
  }

  /** The sandbox with an id or name, unless it is gone or about to be. */
  async #living(idOrName: string, signal?: AbortSignal | undefined): Promise<Sandbox | undefined> {
    const sandbox = await unlessGone(this.#dormouse.sandboxes.connect(idOrName, { signal }));
    if (sandbox?.state === "terminating") await unlessGone(sandbox.terminate({ signal }));
    return sandbox?.state === "terminated" ? undefined : sandbox;
  }

  async #handle(sandbox: Sandbox, input: SandboxCreateInput): Promise<DormouseHandle> {
    const egress = this.#egress(input.policy);
    if (JSON.stringify(sandbox.info.egress) !== JSON.stringify(egress)) {
      await sandbox.setEgress(egress, { signal: input.signal });
    }
    return await this.#prepare(new DormouseHandle(sandbox, this.#settings, input.env));
  }

  async #prepare(handle: DormouseHandle): Promise<DormouseHandle> {
    await handle.sandbox.files.mkdir(handle.workspaceRoot, { user: this.#options.user });
    return handle;
  }

  #egress(policy: SandboxPolicy | undefined): Egress {
    return policy?.capabilities?.network === "deny" ? "closed" : (this.#options.egress ?? "public");
  }
}

/** The result of a call, or undefined if what it is for is gone. Every other failure is thrown. */
async function unlessGone<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof NotFoundError || error instanceof GoneError) return undefined;
    throw error;
  }
}
