/** The client that the cases use: what its package exports, wrapped so that its use is recorded. */
import * as e2b from "client";
import { recorded, wrapClass, wrapPrototype } from "./recording.ts";

for (const [name, owner] of Object.entries({
  Sandbox: e2b.Sandbox,
  Volume: e2b.Volume,
  Secret: e2b.Secret,
  TemplateBase: e2b.TemplateBase,
  ReadyCmd: e2b.ReadyCmd,
  ConnectionConfig: e2b.ConnectionConfig,
  LogEntry: e2b.LogEntry,
})) {
  wrapClass(name, owner);
}
// Their classes are not exported: an object that never asks the server has them.
const offline = new e2b.Sandbox({ sandboxId: "i", envdVersion: "0.6.13", apiKey: "e2b_0" });
for (const [name, of] of [
  ["Filesystem", offline.files],
  ["Commands", offline.commands],
  ["Pty", offline.pty],
  ["Git", offline.git],
] as const) {
  wrapPrototype(name, Object.getPrototypeOf(of));
}

export const waitForPort = recorded("waitForPort", e2b.waitForPort);
export const waitForURL = recorded("waitForURL", e2b.waitForURL);
export const waitForProcess = recorded("waitForProcess", e2b.waitForProcess);
export const waitForFile = recorded("waitForFile", e2b.waitForFile);
export const waitForTimeout = recorded("waitForTimeout", e2b.waitForTimeout);
export const getSignature = recorded("getSignature", e2b.getSignature);
export const defaultBuildLogger = recorded("defaultBuildLogger", e2b.defaultBuildLogger);
export const {
  ALL_TRAFFIC,
  AuthenticationError,
  BuildError,
  CommandExitError,
  ConnectionConfig,
  E2B,
  FileNotFoundError,
  FileType,
  GitAuthError,
  GitUpstreamError,
  InvalidArgumentError,
  LogEntry,
  NotFoundError,
  Sandbox,
  SandboxError,
  SandboxNotFoundError,
  Secret,
  SecretError,
  Template,
  TemplateBase,
  TemplateError,
  TimeoutError,
  Volume,
  VolumeError,
  VolumeFileType,
  VolumeNotFoundError,
  VolumePathNotFoundError,
} = e2b;
export type {
  CommandHandle,
  EntryInfo,
  FilesystemEvent,
  SandboxInfo,
  SandboxListOpts,
  SandboxOpts,
  WatchHandle,
} from "client";
export type Sandbox = e2b.Sandbox;
export type Volume = e2b.Volume;
export type LogEntry = e2b.LogEntry;

/** Whether the client is an older one, without some options. */
export const isOlder = process.env["E2B_CLIENT"] !== undefined;
