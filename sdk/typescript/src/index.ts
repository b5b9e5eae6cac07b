/**
 * The SDK of Dormouse, a sandbox server for AI agents. Start with {@link Dormouse}.
 *
 * Names follow those of the API in camel case. Durations are milliseconds and end in `Ms`, sizes are bytes and end in
 * `Bytes`, times are RFC 3339 strings in UTC.
 */

export { Keys, type ListOptions, Projects, Secrets, Webhooks } from "./access.js";
export { Builds } from "./builds.js";
export type { Data } from "./bytes.js";
export { Dormouse, type DormouseOptions } from "./client.js";
export { type Ensured, type EnsureEvent, type EnsureOptions, SetupError } from "./ensure.js";
export { Environments } from "./environments.js";
export * from "./errors.js";
export { EventLog, type ListEvents } from "./events.js";
export { type Command, CommandError, type ExecOptions, ExecResult } from "./exec.js";
export {
  type ByteRange,
  Files,
  type FindOptions,
  type GrepOptions,
  type ReadOptions,
  type SearchOptions,
  type WriteOptions,
} from "./files.js";
export type * from "./generated/types.js";
export { Images, type ProgressOptions } from "./images.js";
export { Maintenance } from "./maintenance.js";
export { OperationLog } from "./operations.js";
export type { OutputEnd, OutputEvent, OutputGap, OutputPiece, OutputPosition } from "./output.js";
export { type Page, Pages } from "./pages.js";
export { Pools } from "./pools.js";
export { Port, Ports } from "./ports.js";
export { type OutputOptions, Process, Processes, type Signal, SIGNALS, type StartOptions } from "./processes.js";
export { Pty, type PtyOptions } from "./pty.js";
export { Run, type RunOptions } from "./run.js";
export { type ForkOptions, type ForkResult, Sandbox } from "./sandbox.js";
export { type CreateOptions, type ListSandboxes, Sandboxes } from "./sandboxes.js";
export { type ServiceOptions, Services } from "./services.js";
export { Snapshots } from "./snapshots.js";
export { Templates } from "./templates.js";
export type { CallOptions, ChangeOptions, InsideOptions, MakeOptions } from "./transport.js";
export { Volumes } from "./volumes.js";
export { Watchers } from "./watchers.js";
