/** What a Dormouse sandbox can do for TanStack AI: everything. */

import type { SandboxCapabilities } from "@tanstack/ai-sandbox";

/** The capabilities of every version of the contract. `killableProcesses` is of 0.5 and later. */
export type Capabilities = SandboxCapabilities & { killableProcesses: boolean };

export const CAPABILITIES: Readonly<Capabilities> = {
  fs: true,
  exec: true,
  env: true,
  ports: true,
  backgroundProcesses: true,
  writableStdin: true,
  killableProcesses: true,
  snapshots: true,
  networkPolicy: true,
  durableFilesystem: true,
  fork: true,
};
