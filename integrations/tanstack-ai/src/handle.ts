/** A sandbox, as TanStack AI sees it. */

import { type Dormouse, DormouseError, type Sandbox, type SnapshotKind } from "@dormouse/sdk";
import {
  createExecBackedGit,
  type SandboxChannel,
  type SandboxEnv,
  type SandboxGit,
  type SandboxHandle,
  type SandboxPorts,
  type SandboxProcess,
  type SnapshotRef,
} from "@tanstack/ai-sandbox";

import { CAPABILITIES, type Capabilities } from "./capabilities.js";
import { destroy, environmentOf } from "./environment.js";
import { createFs, type Fs } from "./fs.js";
import { forkName, PROVIDER } from "./names.js";
import type { WorkspacePaths } from "./paths.js";
import { createProcess } from "./process.js";

/** What handles have in common. */
export interface HandleSettings {
  dormouse: Dormouse;
  paths: WorkspacePaths;
  shell: string;
  user: string | undefined;
  snapshotKind: SnapshotKind;
}

/** A handle of a Dormouse sandbox. Everything that a call needs wakes the sandbox if it is suspended. */
export class DormouseHandle implements SandboxHandle {
  readonly id: string;
  readonly provider = PROVIDER;
  readonly workspaceRoot: string;
  readonly capabilities: Capabilities = CAPABILITIES;
  readonly fs: Fs;
  readonly process: SandboxProcess;
  readonly git: SandboxGit;
  readonly ports: SandboxPorts;
  readonly env: SandboxEnv;
  /** The sandbox, with all that Dormouse can do. */
  readonly sandbox: Sandbox;
  readonly #settings: HandleSettings;
  readonly #env: Record<string, string>;

  /** @internal */
  constructor(sandbox: Sandbox, settings: HandleSettings, env: Record<string, string> = {}) {
    this.sandbox = sandbox;
    this.#settings = settings;
    this.#env = { ...env };
    this.id = sandbox.id;
    this.workspaceRoot = settings.paths.root;
    this.fs = createFs(sandbox, settings.paths);
    this.process = createProcess(sandbox, settings.paths, { ...settings, env: this.#env });
    this.git = createExecBackedGit(checked(this.process), settings.paths.root);
    this.ports = { connect: (port) => this.#connect(port) };
    this.env = { set: async (vars) => void Object.assign(this.#env, vars) };
  }

  /** Takes a snapshot, which stays when the sandbox is destroyed. */
  async snapshot(label?: string): Promise<SnapshotRef> {
    const environment = await environmentOf(this.#settings.dormouse, this.sandbox);
    const labels = { [PROVIDER]: environment?.key ?? this.id, ...(label === undefined ? {} : { label }) };
    const { id } = await this.sandbox.checkpoint({ kind: this.#settings.snapshotKind, labels });
    return label === undefined ? { id } : { id, label };
  }

  /** Creates a sandbox that continues from this moment, with memory, processes and variables. */
  async fork(): Promise<DormouseHandle> {
    const { secrets = [] } = (await this.sandbox.refresh()).info;
    // Dormouse gives a fork no secrets but those that are named: all, because it works for the same user.
    const child = { name: forkName(), secrets: Object.fromEntries(secrets.map((secret) => [secret, null])) };
    const [fork] = await this.sandbox.fork([child]);
    return new DormouseHandle(fork!, this.#settings, this.#env);
  }

  /** Terminates the sandbox. It is no error if it is gone. */
  async destroy(): Promise<void> {
    await destroy(this.#settings.dormouse, this.sandbox);
  }

  async #connect(number: number): Promise<SandboxChannel> {
    const port = await this.sandbox.ports.get(number);
    const isBelowDomain = !new URL(port.url).hostname.endsWith(".localhost");
    // HTTP clients do not all resolve *.localhost. The headers choose the port as well.
    return isBelowDomain ? { url: port.url, headers: { "x-dormouse-token": port.token } } : port.endpoint;
  }
}

/** Commands that throw if they fail. The layer ignores the exit code of a clone, and would go on without the files. */
function checked(process: SandboxProcess): SandboxProcess {
  return {
    ...process,
    async exec(command, options) {
      const result = await process.exec(command, options);
      if (result.exitCode !== 0) throw new DormouseError(`git failed: ${result.stderr.trim()}`);
      return result;
    },
  };
}
