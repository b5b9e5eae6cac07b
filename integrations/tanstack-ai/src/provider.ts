/** The provider: creates, finds, restores and destroys sandboxes for TanStack AI. */

import {
  Dormouse,
  type DormouseOptions,
  type Egress,
  GoneError,
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
import { destroy, unlessGone } from "./environment.js";
import { DormouseHandle, type HandleSettings } from "./handle.js";
import { PROVIDER } from "./names.js";
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
   * suspended and kept for seven days, and a fresh one is created. Default: any age. See the README.
   */
  maxAgeMs?: number;
}

/** A provider whose handles are {@link DormouseHandle}s. */
export interface DormouseProvider extends SandboxProvider {
  capabilities(): Capabilities;
  create(input: SandboxCreateInput): Promise<DormouseHandle>;
  resume(input: SandboxResumeInput): Promise<DormouseHandle | null>;
  restoreSnapshot(input: SandboxRestoreInput): Promise<DormouseHandle>;
}

/** What sandboxes start from. */
type Source = NonNullable<DormouseSandboxOptions["source"]>;

const IDLE_TIMEOUT_MS = 1_800_000;
/** How often a sandbox is asked for that others destroy meanwhile. */
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
    this.#settings = { dormouse: this.#dormouse, paths: new WorkspacePaths(workspaceRoot), shell, user, snapshotKind };
  }

  capabilities(): Capabilities {
    return { ...CAPABILITIES };
  }

  /**
   * Creates the sandbox of an id, or joins it if it exists. The daemon has one environment for each id, so any number of
   * callers with one id get one sandbox, also from several processes.
   */
  async create(input: SandboxCreateInput): Promise<DormouseHandle> {
    const { source = { image: "base" } } = this.#options;
    const key = input.id ?? crypto.randomUUID();
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#handle(await this.#ensure(key, source, input), input);
      } catch (error) {
        // Another caller may have destroyed the sandbox that this one has joined.
        if (!(error instanceof GoneError) || attempt === ATTEMPTS_MAX) throw error;
      }
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
    const key = labels[PROVIDER] ?? id;
    if (await this.#canRestore(key, id, input.signal)) {
      const restored = await this.#ensure(key, { snapshot: id }, input);
      if (restored.info.snapshot === id) return await this.#handle(restored, input);
    }
    // The id has another sandbox, which lives.
    return await this.#handle(await this.#ensure(crypto.randomUUID(), { snapshot: id }, input), input);
  }

  /** Terminates a sandbox. It is no error if it is gone. */
  async destroy({ id }: SandboxDestroyInput): Promise<void> {
    // The layer of 0.2.4 destroys the sandbox of an aborted run with the signal of that run, so it is not heeded.
    const sandbox = await this.#living(id);
    if (sandbox !== undefined) await destroy(this.#dormouse, sandbox);
  }

  async #ensure(key: string, source: Source, input: SandboxCreateInput): Promise<Sandbox> {
    const { resources, user, labels, idleTimeoutMs: keepAliveMs = IDLE_TIMEOUT_MS, maxAgeMs } = this.#options;
    const { adapterName } = input as { adapterName?: string };
    const { sandbox } = await this.#dormouse.environments.ensure({
      ...source,
      ...{ key, resources, user, directory: this.#settings.paths.root, signal: input.signal },
      // The layer has secrets here, and nothing else.
      secretValues: input.env,
      egress: this.#egress(input.policy),
      labels: { ...labels, [PROVIDER]: "tanstack-ai", ...(adapterName === undefined ? {} : { adapter: adapterName }) },
      // The layer does the setup, and takes the snapshots.
      lifecycle: { snapshot: "none", onDrift: "keep", keepAliveMs, sandboxMaxAgeMs: maxAgeMs },
    });
    return sandbox;
  }

  /** Whether the environment with a key has no sandbox, or one that was restored from this snapshot. */
  async #canRestore(key: string, snapshot: string, signal: AbortSignal | undefined): Promise<boolean> {
    const environment = await unlessGone(this.#dormouse.environments.get(key, { signal }));
    const sandbox = environment?.sandbox && (await this.#living(environment.sandbox, signal));
    return !sandbox || sandbox.info.snapshot === snapshot;
  }

  /** The sandbox with an id, unless it is gone or about to be. */
  async #living(id: string, signal?: AbortSignal | undefined): Promise<Sandbox | undefined> {
    const sandbox = await unlessGone(this.#dormouse.sandboxes.connect(id, { signal }));
    if (sandbox?.state === "terminating") await unlessGone(sandbox.terminate({ signal }));
    return sandbox?.state === "terminated" ? undefined : sandbox;
  }

  /** The handle of a sandbox, which may have been made with other options or for another policy. */
  async #handle(sandbox: Sandbox, input: SandboxCreateInput): Promise<DormouseHandle> {
    const { user, portAccess = "private" } = this.#options;
    const { signal } = input;
    const egress = this.#egress(input.policy);
    if (JSON.stringify(sandbox.info.egress) !== JSON.stringify(egress)) await sandbox.setEgress(egress, { signal });
    if (sandbox.info.portAccess !== portAccess) await sandbox.update({ portAccess }, { signal });
    const handle = new DormouseHandle(sandbox, this.#settings, input.env);
    await sandbox.files.mkdir(handle.workspaceRoot, { user });
    return handle;
  }

  #egress(policy: SandboxPolicy | undefined): Egress {
    return policy?.capabilities?.network === "deny" ? "closed" : (this.#options.egress ?? "public");
  }
}
