// Generated from docs/reference/openapi.json by scripts/generate.ts; do not edit.

/** Bytes for a sandbox, such as a path: a string, or bytes that need not be UTF-8. */
export type Text = string | Uint8Array;

/** Attaches a volume to a sandbox. */
export interface AttachVolume {
  /** Absolute path in the sandbox at which the volume appears. */
  path: string;
  /** Attach the volume read-only. Default: false. */
  readOnly?: boolean | undefined;
  /**
   * Directory of the volume to attach. It is created if it is missing, unless the volume is
   * attached read-only. Default: the whole volume.
   */
  subpath?: string | null | undefined;
  /** Name or ID of the volume. */
  volume: string;
}

/** A volume that is attached to a sandbox. */
export interface AttachedVolume {
  /** Path in the sandbox at which the volume appears. */
  path: string;
  /** Whether the volume is attached read-only. */
  readOnly: boolean;
  /** Attached directory of the volume. Null for the whole volume. */
  subpath?: string | null;
  /** ID of the volume. */
  volume: string;
}

/** Why an attempt has failed. */
export interface AttemptFailure {
  /** Error code, as in a problem. */
  code: string;
  /** Exit code of its command, if that exited. */
  exitCode?: number | null;
  /** ID of the sandbox that is kept for inspection. */
  kept?: string | null;
  /** The reason. */
  reason: string;
  /** Position of the step that failed, starting at 0; null if it was not a step. */
  step?: number | null;
}

/** Result of an attempt to make a sandbox. */
export type AttemptState = "running" | "ready" | "failed" | "cancelled";

/** Certificate authority of the daemon's own hosts. */
export interface Authority {
  /** Its certificate, in PEM. */
  certificate: string;
  /** Domains that its certificates can be for, with their subdomains. */
  domains: string[];
  /** SHA-256 of the certificate in DER, as hexadecimal digits. */
  sha256: string;
}

/** A build. */
export interface Build {
  /** Digest of the base image, once it is known. */
  base?: string | null;
  /** When it began. */
  beganAt?: Time | null;
  /** Caller that requested it. */
  caller?: Caller | null;
  /** Whether its cancellation was requested. */
  cancelling: boolean;
  /** When it was requested. */
  createdAt: Time;
  /** When it ended. */
  endedAt?: Time | null;
  /** Why it has failed. */
  failure?: BuildFailure | null;
  /** ID. */
  id: string;
  /** Digest of the image. */
  image?: string | null;
  /** Project. */
  project: string;
  /** ID of the memory snapshot that sandboxes of the template start from. */
  snapshot?: string | null;
  /** State. */
  state: BuildState;
  /** Position of the step in progress, starting at 0. */
  step?: number | null;
  /** Steps, once the base image is known. */
  steps: BuildStep[];
  /** Tag for the image. */
  tag?: string | null;
  /** Name of the template that the result becomes. */
  template?: string | null;
  /** Tags of that template that stand for the result. */
  templateTags: string[];
}

/** An uploaded build context. */
export interface BuildContext {
  /** Length of all its files. */
  bytes: number;
  /** How many files, directories and links it has. */
  entries: number;
  /** The hash that its uploader named it by. */
  hash: string;
}

/** Files to copy. */
export interface BuildCopy {
  /** Paths in the context; a directory stands for its content, and `*` for any name. */
  from: string[];
  /**
   * Permission bits of files and directories in octal, such as `0755`. Default those in the
   * context.
   */
  mode?: string | null | undefined;
  /**
   * Owner of what is created: `USER` or `USER:GROUP`, as names that the image lists or as
   * numbers. Default root.
   */
  owner?: string | null | undefined;
  /** Destination. With a trailing slash, or with several sources, it is a directory. */
  to: string;
}

/** Why a build has failed. */
export interface BuildFailure {
  /** Error code, as in a problem. */
  code: string;
  /** Exit code of its command, if that exited. */
  exitCode?: number | null;
  /** The reason. */
  reason: string;
  /** Position of the step that failed, starting at 0; null if it was not a step. */
  step?: number | null;
}

/** A page of builds. */
export interface BuildList {
  /** The builds. */
  builds: Build[];
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
}

/** Lines of the log of a build. */
export interface BuildLog {
  /** The lines, in order. */
  lines: BuildLogLine[];
  /** Offset of the next line: send it as `offset`. */
  nextOffset: number;
  /** State of the build. Nothing is added to the log of one that has ended. */
  state: BuildState;
}

/** A line of the log of a build. */
export interface BuildLogLine {
  /** When it was written. */
  at: Time;
  /** Its offset in the log, starting at 0. */
  offset: number;
  /** Position of the step, starting at 0; null if it concerns no step. */
  step?: number | null;
  /** Its origin. */
  stream: BuildLogStream;
  /** The text, without the end of the line. Bytes that are not UTF-8 are replaced. */
  text: string;
}

/** Origin of a line of a log. */
export type BuildLogStream = "build" | "stdout" | "stderr";

/** State of a build. */
export type BuildState = "reserved" | "queued" | "running" | "succeeded" | "failed" | "cancelled";

/** A step of a build. */
export interface BuildStep {
  /** When it began. */
  beganAt?: Time | null;
  /** When it ended. */
  endedAt?: Time | null;
  /** Key of its result; null if it changes no file. */
  key?: string | null;
  /** Line in the Dockerfile, starting at 1. */
  line?: number | null;
  /** ID of the snapshot with its result. */
  snapshot?: string | null;
  /** State. */
  state: BuildStepState;
  /** The step as one line. */
  title: string;
}

/** A step of a build: exactly one of the fields that name an instruction is set. */
export interface BuildStepRequest {
  /** Run a program. */
  argv?: string[] | null | undefined;
  /** Hash of the uploaded context that this step copies from. Default: that of the build. */
  context?: string | null | undefined;
  /** Copy files from the context. */
  copy?: BuildCopy | null | undefined;
  /** Set variables for later steps and in the image. */
  env?: Record<string, string> | null | undefined;
  /** Run this step and those after it, even if their results are known. */
  force?: boolean | undefined;
  /** Run a line with `/bin/sh`. */
  run?: string | null | undefined;
  /** Run a line with a login shell: `bash`, or `sh` in an image without it. */
  runLogin?: string | null | undefined;
  /** Set the user of later steps and of the image. */
  user?: string | null | undefined;
  /** Set the working directory of later steps and of the image. */
  workdir?: string | null | undefined;
}

/** State of a step. */
export type BuildStepState = "waiting" | "running" | "cached" | "done" | "failed";

/**
 * The template that the result of a build becomes. With a start or ready command, the program is
 * started, and sandboxes of the template have it running.
 */
export interface BuildTemplate {
  /** Environment variables of every process in them. Their values are never returned. */
  env?: Record<string, string> | undefined;
  /** Name, unique in the project. */
  name?: string | undefined;
  /** Resource limits of its sandboxes. */
  resources?: ResourcesRequest | null | undefined;
  /** Tags that stand for the result from the end of the build on. Default `latest`. */
  tags?: string[] | undefined;
}

/**
 * The caller that asked for a change, as it was then. It never changes afterwards: a key that was
 * removed since is still named.
 */
export interface Caller {
  /** Credential that admitted the request. */
  credential: Credential;
  /** API through which the request came: `api` for this one. */
  door: string;
  /** ID of the API key, if the credential is `api_key`. It is not secret. */
  key?: string | null;
  /** Name that the API key had. Empty for a key without a name. */
  keyName?: string | null;
}

/** Why a sandbox was terminated. */
export interface Cause {
  /** Kind of the cause. */
  kind: CauseKind;
  /** Description of the failure, if the kind is `failed`. */
  reason?: string | null;
}

/** Kind of the cause for which a sandbox was terminated. */
export type CauseKind = "requested" | "timeout" | "failed";

/** Takes a snapshot. */
export interface CheckpointRequest {
  /** Delete the snapshot automatically after this many milliseconds. Default: never. */
  expiresMs?: number | null | undefined;
  /** Contents of the snapshot. Default `filesystem`. */
  kind?: SnapshotKind | undefined;
  /** Labels: arbitrary strings by key. */
  labels?: Record<string, string> | undefined;
  /**
   * Name under which the snapshot serves as an image: `NAME` or `NAME:TAG`, unique among the
   * snapshots of the project that can be used. It must not be the name of an image or a
   * template. Deleting the snapshot frees it. Default: none.
   */
  name?: string | null | undefined;
  /**
   * Respond when the snapshot is completed. If false, respond as soon as it is in progress.
   * Default: true.
   */
  wait?: boolean | undefined;
}

/** The snapshot that was taken before a command ran. Data of the server-sent event `checkpoint`. */
export interface CheckpointTaken {
  /** ID of the snapshot. */
  snapshot: string;
}

/**
 * The automatic checkpoint policy of a sandbox. Checkpoints are taken while the sandbox runs, if
 * it was used since the last one.
 */
export interface Checkpoints {
  /** Milliseconds between two checkpoints. */
  everyMs: number;
  /**
   * Retention rule for automatic snapshots. `3,24x1h,7x1d` keeps the newest three, the newest of
   * each of the last 24 hours, and the newest of each of the last 7 days.
   */
  keep: string;
  /** Kind of the snapshots. */
  kind: SnapshotKind;
}

/** An automatic checkpoint policy. */
export interface CheckpointsRequest {
  /** Milliseconds between two checkpoints, 10,000 to 31,536,000,000. Required. */
  everyMs?: number | null | undefined;
  /**
   * Retention rule: a count of the newest snapshots, and counts of intervals with their length.
   * Default `3,24x1h,7x1d`.
   */
  keep?: string | null | undefined;
  /** Kind of the snapshots. Default `filesystem`. */
  kind?: SnapshotKind | null | undefined;
}

/** Claims a sandbox of a pool. */
export interface ClaimRequest {
  /**
   * Environment variables of processes that start from then on, in addition to those of the
   * pool.
   */
  env?: Record<string, string> | undefined;
  /** Milliseconds from the last activity to the deadline. Default: none. */
  idleTimeoutMs?: number | null | undefined;
  /** Labels, in addition to those of the pool. */
  labels?: Record<string, string> | undefined;
  /** Longest time in milliseconds that a run may last. Default: none. */
  maxRunMs?: number | null | undefined;
  /** How many milliseconds to wait until a sandbox is ready. Default 0: the request fails at once. */
  maxWaitMs?: number | null | undefined;
  /** Name, unique among living sandboxes. */
  name?: string | null | undefined;
  /** Action at a deadline. Default: `suspend` for a named sandbox, `terminate` otherwise. */
  onTimeout?: OnTimeout | null | undefined;
  /** Who can reach the ports of the sandbox. Default: as for the pool. */
  portAccess?: PortAccess | null | undefined;
  /** Milliseconds from the start of a run to its deadline. Default: none. */
  timeoutMs?: number | null | undefined;
  /** Calls that resume the sandbox when it is suspended. Default `traffic`. */
  wake?: Wake | null | undefined;
}

/** Clones a sandbox. */
export interface CloneRequest {
  /** Environment variables that override those of the source. */
  env?: Record<string, string> | undefined;
  /** Milliseconds from the last activity to the deadline. Default: as for the source. */
  idleTimeoutMs?: number | null | undefined;
  /** Labels that override those of the source. */
  labels?: Record<string, string> | undefined;
  /** Longest time in milliseconds that a run may last. Default: as for the source. */
  maxRunMs?: number | null | undefined;
  /** Name of the clone. */
  name?: string | null | undefined;
  /**
   * Action at a deadline. Default: as for the source, or for the first in the line with a name,
   * as for a named sandbox.
   */
  onTimeout?: OnTimeout | null | undefined;
  /**
   * Secrets of the clone: null for the value of the source, or another value. Other secrets of
   * the source are not copied.
   */
  secrets?: Record<string, NamedSecret> | undefined;
  /** Milliseconds from the start of a run to its deadline. Default: as for the source. */
  timeoutMs?: number | null | undefined;
  /** How the volumes of the source are attached to the clone. Default `same`. */
  volumes?: FollowingVolumes | undefined;
}

/** A clone and the snapshot it was created from. The snapshot is kept. */
export interface Cloned {
  /** The new sandbox. */
  sandbox: SandboxInfo;
  /** The snapshot. */
  snapshot: Snapshot;
}

/** An object on disk or a run, and what garbage collection does with it. */
export interface CollectorItem {
  /** Size of the object in bytes; 0 if it is not known. */
  bytes: number;
  /** Name of the object. */
  id: string;
  /**
   * `image`, `saved_state` (the saved state of a sleep image or snapshot), `draft` (an
   * incomplete saved state) or `run` (a run on the host that no record of this data directory
   * names).
   */
  kind: string;
  /**
   * `kept`, `freed`, or `unknown` if no record names the object. Unknown objects are never
   * deleted.
   */
  verdict: string;
  /** The reasons, one entry for each record that refers to the object. */
  why: string[];
}

/** Objects on disk. */
export interface CollectorItemList {
  /** The objects. */
  items: CollectorItem[];
}

/** How a command is carried out. */
export interface CommandRequest {
  /** Action while another operation is in progress. Default `wait`. */
  ifBusy?: IfBusy | null | undefined;
  /**
   * Whether the response comes when the command has ended. If false, it comes as soon as the
   * operation is recorded, with status 202, and `operation` of the sandbox names it. Default:
   * true.
   */
  wait?: boolean | null | undefined;
}

/**
 * Creates an image from the files of a filesystem snapshot or another image. Exactly one of
 * `image` and `snapshot` is required.
 */
export interface ComposeImage {
  /**
   * Identifies what the image is built from. If a tagged image with the same value exists, that
   * image also gets this tag and is returned.
   */
  build?: string | null | undefined;
  /** Configuration of the new image. Nothing is inherited from the source. */
  config?: ImageConfig | undefined;
  /**
   * Image whose files to use: a tag, a digest, a digest prefix, or the name of a filesystem
   * snapshot.
   */
  image?: string | null | undefined;
  /** ID of the filesystem snapshot whose files to use. */
  snapshot?: string | null | undefined;
  /** Tag for the image. An image that has this tag loses it. */
  tag?: string | null | undefined;
}

/** A way that was considered. */
export interface Considered {
  /** Why it is not taken. */
  reason?: string | null;
  /** The result. */
  verdict: Verdict;
  /** The way. */
  way: Way;
}

/** Requests a build: exactly one of `dockerfile` and `from` is set. */
export interface CreateBuild {
  /** Values for the `ARG`s of the Dockerfile. */
  arguments?: Record<string, string> | undefined;
  /** Hash of the uploaded context that steps copy files from. */
  context?: string | null | undefined;
  /** Text of the Dockerfile. */
  dockerfile?: string | null | undefined;
  /** Where steps may connect to. Default `public`. */
  egress?: Egress | null | undefined;
  /** Run every step, even those whose results are known. */
  force?: boolean | undefined;
  /** Base image, for a build from `steps`. */
  from?: string | null | undefined;
  /** Line for `/bin/sh` that exits with 0 once the started program is ready. */
  readyCommand?: string | null | undefined;
  /** Resource limits of the sandbox of each step. `processes` cannot be set. */
  resources?: ResourcesRequest | null | undefined;
  /** Line for `/bin/sh` that becomes the entrypoint of the image. */
  startCommand?: string | null | undefined;
  /** Time limit of each step, and of the wait until the program is ready. Default 1,800,000. In milliseconds. */
  stepTimeoutMs?: number | null | undefined;
  /** Steps, in order. */
  steps?: BuildStepRequest[] | undefined;
  /** Tag for the image. An image of the project that has this tag loses it. */
  tag?: string | null | undefined;
  /** Template that the result becomes. */
  template?: BuildTemplate | null | undefined;
}

/** Creates an API key. */
export interface CreateKey {
  /** Form of the key. Default `dormouse`. */
  form?: KeyForm | undefined;
  /** Milliseconds after which the key expires. Default: never. */
  lifetimeMs?: number | null | undefined;
  /** Display name, up to 63 characters. Default: empty. */
  name?: string | undefined;
  /** ID or name of the sandbox. Required if the scope is `sandbox`. */
  sandbox?: string | null | undefined;
  /** Scope of the key. Default `full`. */
  scope?: KeyScope | undefined;
}

/**
 * Creates a pool of sandboxes that are made in advance: exactly one of `image` and `snapshot` is
 * set.
 */
export interface CreatePool {
  /** Where the sandboxes may connect to. Default: as for the snapshot, otherwise `public`. */
  egress?: Egress | null | undefined;
  /** Environment variables of every process. Their values are never returned. */
  env?: Record<string, string> | undefined;
  /** Tag or digest of the image that the sandboxes boot from, or the name of a snapshot. */
  image?: string | null | undefined;
  /** Labels. */
  labels?: Record<string, string> | undefined;
  /** How many sandboxes may exist, waiting and claimed. Default: any number. */
  most?: number | null | undefined;
  /** Name, unique in the project. */
  name?: string | undefined;
  /**
   * Who can reach the ports of the sandboxes. Default: as for the snapshot, otherwise the
   * setting of the daemon.
   */
  portAccess?: PortAccess | null | undefined;
  /** How many sandboxes wait to be claimed, at most 1000. */
  ready?: number | undefined;
  /** Resource limits. */
  resources?: ResourcesRequest | null | undefined;
  /** ID of the snapshot that they start from. */
  snapshot?: string | null | undefined;
  /**
   * Start the image's entrypoint and command in each, and wait for its readiness command.
   * Default: as when a sandbox is created from the image or snapshot.
   */
  start?: boolean | null | undefined;
}

/** Creates a project. */
export interface CreateProject {
  /** Limits. Default: none. */
  budgets?: ProjectBudgets | undefined;
  /**
   * Name: 1 to 63 lower-case letters, digits and hyphens. It is never used again for another
   * project.
   */
  name: string;
}

/**
 * Creates a sandbox. Exactly one of `image`, `snapshot` and `template` is required; every other
 * field has a default.
 */
export interface CreateSandbox {
  /**
   * Annotations: notes of programs that use the sandbox on behalf of others, by the name of the
   * program, then by key. Sandboxes cannot be selected by them. At most 64 KiB in total.
   */
  annotations?: Record<string, Record<string, string>> | undefined;
  /** Automatic checkpoint policy. Default: none. */
  checkpoints?: CheckpointsRequest | null | undefined;
  /** Where the sandbox may connect to. Default: as for the snapshot, otherwise `public`. */
  egress?: Egress | null | undefined;
  /** Environment variables of every process. Their values are never returned. */
  env?: Record<string, string> | undefined;
  /** Milliseconds from the last activity to the deadline. Default: none. */
  idleTimeoutMs?: number | null | undefined;
  /**
   * Image to boot from: a tag, a digest, a digest prefix of at least 8 digits, or the name of an
   * image in a registry. Or the name of a snapshot to start from, as with `snapshot`; a tag of
   * an image goes before it.
   */
  image?: string | null | undefined;
  /**
   * How many sleep images are kept, 1 to 16: the newest, and older ones to fall back to. Default
   * 1.
   */
  keepGenerations?: number | null | undefined;
  /** Labels: arbitrary strings by key. */
  labels?: Record<string, string> | undefined;
  /** Longest time in milliseconds that a run may last, even if it is extended or held. Default: none. */
  maxRunMs?: number | null | undefined;
  /**
   * How many milliseconds to wait for room, in turn with others, if running sandboxes use up a
   * budget. Default 0: the request fails at once.
   */
  maxWaitMs?: number | null | undefined;
  /**
   * Name, unique among living sandboxes: 1 to 63 lower-case letters, digits and hyphens. A
   * sandbox without a name is ephemeral.
   */
  name?: string | null | undefined;
  /** Action if the sandbox cannot be suspended at a deadline. Default `keep`. */
  onSuspendFailure?: OnSuspendFailure | null | undefined;
  /** Action at a deadline. Default: `suspend` for a named sandbox, `terminate` otherwise. */
  onTimeout?: OnTimeout | null | undefined;
  /** Action if no sleep image can be restored. Default `fail`. */
  onUnrestorable?: OnUnrestorable | null | undefined;
  /**
   * Who can reach the ports of the sandbox. Default: as for the snapshot, otherwise the setting
   * of the daemon, which is `public` unless changed.
   */
  portAccess?: PortAccess | null | undefined;
  /**
   * `Host` header that programs behind the ports get, such as `localhost:{port}`, in which
   * `{port}` stands for the number of the port; empty for the host that the client named.
   * Default: as for the snapshot, otherwise empty.
   */
  portHost?: string | null | undefined;
  /**
   * Exceptions for single ports, by the number of the port: at most 64. Default: as for the
   * snapshot, otherwise none.
   */
  portRules?: Record<string, PortRule> | null | undefined;
  /**
   * When to contact the registry for the image. Default `missing`, which contacts only the
   * registry that `image` names. With `always`, `image` is no name of a snapshot.
   */
  pull?: Pull | null | undefined;
  /** Resource limits. */
  resources?: ResourcesRequest | null | undefined;
  /**
   * Secrets that every process gets as environment variables. Their values are never returned,
   * and clones and forks get them only if the request names them.
   */
  secrets?: Record<string, Secret> | undefined;
  /**
   * ID of the snapshot to start from. A memory snapshot continues with its memory, processes,
   * files and limits; a filesystem snapshot boots from its files. `egress`, `portAccess`,
   * `portHost`, `portRules` and `start` are by default those of its `inherited` settings.
   */
  snapshot?: string | null | undefined;
  /**
   * Start the entrypoint and command of the image as a process with the label `start`, and wait
   * until it is ready if the image has a readiness command. If that fails, the sandbox is
   * terminated. Default: as for the template; for a filesystem snapshot, whether its `inherited`
   * settings say so; otherwise false.
   */
  start?: boolean | null | undefined;
  /** Whether the sandbox can be suspended. Default: whether it has a name. */
  suspendable?: boolean | null | undefined;
  /**
   * Template that the sandbox starts from: `NAME` or `NAME:TAG`. Other fields override its
   * settings.
   */
  template?: string | null | undefined;
  /**
   * Milliseconds from the start of a run that a call has woken to its deadline, in place of
   * `timeoutMs`. Default: the same.
   */
  timeoutAfterWakeMs?: number | null | undefined;
  /** Milliseconds from the start of a run to its deadline, independent of activity. Default: none. */
  timeoutMs?: number | null | undefined;
  /** Volumes to attach. */
  volumes?: AttachVolume[] | undefined;
  /**
   * Whether the response comes when the sandbox runs. If false, it comes as soon as the sandbox
   * is recorded, with status 202, and `operation` of the sandbox names its start. Default: true.
   */
  wait?: boolean | null | undefined;
  /** Calls that resume the sandbox when it is suspended. Default `traffic`. */
  wake?: Wake | null | undefined;
}

/** Makes tags of a template stand for an image or a snapshot: exactly one of them is set. */
export interface CreateTemplate {
  /** Environment variables of every process in them. Their values are never returned. */
  env?: Record<string, string> | undefined;
  /** Tag or digest of an image, or the name of a snapshot. */
  image?: string | null | undefined;
  /** Name, unique in the project. The template is created if it is missing. */
  name?: string | undefined;
  /** Resource limits of its sandboxes. Default: those of the snapshot, or the general defaults. */
  resources?: ResourcesRequest | null | undefined;
  /** ID of a snapshot. */
  snapshot?: string | null | undefined;
  /**
   * Start the image's entrypoint and command in each, and wait for its readiness command.
   * Default: as when a sandbox is created from the image or snapshot.
   */
  start?: boolean | null | undefined;
  /** Tags. Default `latest`. They are moved if they exist. */
  tags?: string[] | undefined;
}

/** Creates a volume. */
export interface CreateVolume {
  /** Unique name: 1 to 63 lower-case letters, digits and hyphens. */
  name: string;
  /** Size in bytes. Default 1 GiB. */
  sizeBytes?: number | null | undefined;
  /** How many sandboxes may write to the volume at the same time. Default `one`. */
  writers?: Writers | null | undefined;
}

/** Creates a watcher. */
export interface CreateWatcher {
  /** Absolute path of the directory. */
  path: Text;
  /** Also watch everything below the entries of the directory. Default: false. */
  recursive?: boolean | null | undefined;
}

/** Creates a webhook. */
export interface CreateWebhook {
  /** Start after the event with this number. Default: only events that happen from now on. */
  after?: number | null | undefined;
  /** Kinds of events to send. Empty for all kinds. */
  kinds?: string[] | undefined;
  /**
   * URL that receives the events. It must start with `http://`; use a relay for a receiver that
   * requires TLS.
   */
  url: string;
}

/** A new API key. */
export type CreatedKey = Key & {
  /** The key itself. It is shown only once. */
  key: string;
};

/** Credential that admits a request. */
export type Credential = "owner_socket" | "owner_key" | "api_key" | "port_token" | "port_link";

/** The operation in progress. `GET /v1/operations/{id}` has more about it. */
export interface CurrentOperation {
  /** When the operation is aborted. */
  deadline: Time;
  /** ID of the operation. Its events carry it. */
  id: string;
}

/** A file whose contents are not what was written. */
export interface DamagedFile {
  /** Path relative to the directory of the object. */
  file: string;
  /** The problem with the file, as a phrase with the file as its subject. */
  what: string;
}

/** The paths that differ. */
export interface Diff {
  /** The paths in order. */
  changes: DiffEntry[];
  /** ID of the snapshot or sandbox that the comparison starts from: the first side. */
  from: string;
  /** ID of the snapshot or sandbox that it goes to: the second side. */
  to: string;
}

/** How a path changed. */
export type DiffChange = "added" | "removed" | "modified";

/** A path that differs. */
export interface DiffEntry {
  /** Size on the second side. Only present for a file. */
  afterBytes?: number | null;
  /** Size on the first side. Only present for a file. */
  beforeBytes?: number | null;
  /** How the path changed from the first side to the second. */
  change: DiffChange;
  /** The absolute path. */
  path: string;
  /** The bytes of `path`, set only if they are not valid UTF-8. */
  pathBytes?: Uint8Array;
}

/** The side that a comparison starts from. */
export type DiffOrder = "time" | "given";

/** Disk reads and writes of a sandbox since its current run started, and their limits. */
export interface DiskIo {
  /** Limit of reads per second, and of writes per second. Null for no limit. */
  operationsLimit?: number | null;
  /** Bytes read. */
  readBytes: number;
  /** Read limit in bytes per second. Null for no limit. */
  readLimit?: number | null;
  /** Write limit in bytes per second. Null for no limit. */
  writeLimit?: number | null;
  /** Bytes written. On a host with control groups version 1, delayed writes are not counted. */
  writtenBytes: number;
}

/** Where a sandbox may connect to. */
export type Egress =
  | "public"
  | "closed"
  | "none"
  | {
      /**
       * Only these IPv4 networks, such as `198.51.100.0/24`, and the public addresses of these host
       * names: `example.com` for one name, `*.example.com` for every name below it, or `*` for every
       * name. No other name resolves. A network that is not itself part of a private network stands
       * for its public addresses only.
       */
      allow: string[];
    }
  | {
      /** Rules in their order. */
      ordered: EgressRules;
    };

/** Decision about connections and names that no rule matches. */
export type EgressDefault = "deny" | "public";

/**
 * A rule. Its text is an IPv4 network, such as `198.51.100.0/24`, or a host name: `example.com`,
 * `*.example.com` or `*`. The network `0.0.0.0/0` also stands for every name.
 */
export type EgressRule =
  | {
      /**
       * Allows connections to the network, or to the public addresses that the name resolves to. A
       * network that is not itself part of a private network stands for its public addresses only.
       */
      allow: string;
    }
  | {
      /** Refuses connections to the network. A denied name does not resolve. */
      deny: string;
    };

/** Ordered rules: the first that matches a connection or a name decides about it, then `default`. */
export interface EgressRules {
  /** Decision if no rule matches. Default: `deny`. */
  default?: EgressDefault | undefined;
  /**
   * Headers that are added to HTTPS requests outside of the sandbox, 64 rules at most. The
   * egress rules must allow their hosts.
   */
  headers?: HeaderRule[] | undefined;
  /** The rules, 256 at most. A rule that can never match is refused. */
  rules: EgressRule[];
}

/** How bytes are encoded in JSON. */
export type Encoding = "utf8" | "base64";

/** An engine and its capabilities. */
export interface Engine {
  /** Other builds on this host. They are used only for memory that `build` cannot restore. */
  also?: string[];
  /** Exact build. */
  build: string;
  /** Why memory is copied instead. Left out if it is not. */
  copiesMemoryBecause?: string | null;
  /** Digest of the CPU features that memory snapshots of this host depend on. */
  cpu: string;
  /**
   * Format of the build's memory snapshots. They can be restored by every build with the same
   * format. Left out if it is not known: then only the same build can restore them, and
   * filesystem snapshots may fail.
   */
  format?: string | null;
  /**
   * Whether user code is paused after a resume until the sandbox knows its new generation. If
   * not, it may run for some milliseconds before.
   */
  holdsAfterRestore: boolean;
  /**
   * Whether the memory of a resumed sandbox is mapped from its saved state, and a page is copied
   * only when it is written. Forks of one snapshot then share it.
   */
  mapsMemory: boolean;
  /** Name, such as `gvisor`. */
  name: string;
  /** Release date of the build, such as `2024-07-29`. Left out if it is not known. */
  released?: string | null;
  /** Whether the file system of the data directory can share blocks between images. */
  sharesBlocks: boolean;
}

/** The effect that a request for an environment would have. */
export interface EnsureExplanation {
  /** Ways that would be considered, in order. */
  considered: Considered[];
  /** Fields of the definition that are not as recorded. */
  drift: string[];
  /** ID of the environment, if there is one with the key. */
  environment?: string | null;
  /** Whether its sandbox is being made: the request would wait for that. */
  joins: boolean;
  /** Why the request would be refused. */
  refused?: string | null;
  /** Hash of the definition. Environments with the same hash share snapshots after the setup. */
  workspace: string;
}

/** A phase of making a sandbox. */
export interface EnsurePhase {
  /** Name. */
  name: string;
  /** How long it took. In milliseconds. */
  tookMs: number;
}

/**
 * Asks for the sandbox of an environment. Exactly one of `image`, `snapshot` and `template` is
 * set, and one of `key` and `thread` unless `lifecycle.reuse` is `none`.
 */
export interface EnsureRequest {
  /**
   * Key that a client library has computed for it, of 16 hexadecimal digits. An environment that
   * was made with this as its `key` is found by a request with a `thread`, too.
   */
  clientKey?: string | null | undefined;
  /** Directory of the code, in which the commands run. Default `/workspace`. */
  directory?: string | null | undefined;
  /** Where it may connect to. Default: as for the snapshot, otherwise `public`. */
  egress?: Egress | null | undefined;
  /** Environment variables of every process. Their values are never returned. */
  env?: Record<string, string> | undefined;
  /** Tag or digest of the image that it boots from, or the name of a snapshot. */
  image?: string | null | undefined;
  /** Key, chosen by the caller: at most 1024 bytes, unique in the project. */
  key?: string | null | undefined;
  /** Labels of the sandbox. */
  labels?: Record<string, string> | undefined;
  /**
   * Take a lease for this time, at most 24,000 hours. When the last lease is released or expires,
   * the run has ended, and `lifecycle` says what follows. Default: no lease. In milliseconds.
   */
  leaseMs?: number | null | undefined;
  /** How it is found again, and what becomes of it. */
  lifecycle?: EnvironmentLifecycle | null | undefined;
  /** Rule for work in progress if no caller waits for it any more. Default `continue`. */
  onLeave?: OnLeave | null | undefined;
  /** Whether the image is pulled. Default `missing`. */
  pull?: Pull | null | undefined;
  /** Line for `/bin/sh` that exits with 0 once everything is ready. It is repeated until then. */
  readyCommand?: string | null | undefined;
  /** Resource limits. */
  resources?: ResourcesRequest | null | undefined;
  /**
   * Further secrets for every process, as values. They are recorded encrypted and never
   * returned.
   */
  secretValues?: Record<string, Secret> | undefined;
  /**
   * Secrets of the project for every process, by the name of their environment variable. They
   * are no part of the definition: a secret may change. A sandbox gets the values when it starts
   * and when it is resumed.
   */
  secrets?: Record<string, string> | undefined;
  /** Setup steps, in order. */
  setup?: SetupStep[] | undefined;
  /** ID of the snapshot that it starts from. */
  snapshot?: string | null | undefined;
  /** Code. */
  source?: EnvironmentSource | null | undefined;
  /**
   * Line for `/bin/sh` that is started after the setup, and at each later boot from files, and
   * left running.
   */
  startCommand?: string | null | undefined;
  /**
   * Time limit of the clone, of each command and of the wait until everything is ready. Default
   * 1,800,000. In milliseconds.
   */
  stepTimeoutMs?: number | null | undefined;
  /** Template that it starts from, `NAME` or `NAME:TAG`. */
  template?: string | null | undefined;
  /** Thread of an agent, in place of a key. */
  thread?: EnvironmentThread | null | undefined;
  /** User who runs the commands and owns the code. Default: that of the image. */
  user?: string | null | undefined;
}

/** The sandbox of an environment, and the way on which it was had. */
export interface EnsuredInfo {
  /** The way on which it was had. */
  by: EnsuredBy;
  /** Ways that were considered, in order. */
  considered: Considered[];
  /** Fields of the definition that are not as recorded, if the sandbox was kept even so. */
  drift: string[];
  /** The environment. */
  environment: Environment;
  /** Whether an earlier request had begun to make the sandbox. */
  joined: boolean;
  /** Lease that the request has taken. */
  lease?: EnvironmentLease | null;
  /** Losses: everything that was there before and is not any more, as sentences. */
  lost: string[];
  /** Phases, with the time of each. */
  phases: EnsurePhase[];
  /** Snapshot that it was restored from. */
  restored?: RestoredFrom | null;
  /** Its running sandbox. */
  sandbox: SandboxInfo;
  /** Why the snapshot after the setup could not be taken. */
  snapshotFailure?: string | null;
  /** Steps of the setup, if there was one. */
  steps: SetupStepView[];
}

/** The way on which a sandbox was had. */
export type EnsuredBy = "live" | "resumed" | "restored" | "created";

/** An environment. */
export interface Environment {
  /** Attempt in progress to make its sandbox, or the latest one. */
  attempt?: EnvironmentAttempt | null;
  /** Key that a client library has computed for it. */
  clientKey?: string | null;
  /** Commit that its code was cloned at. */
  commit?: string | null;
  /** When it was first asked for. */
  createdAt: Time;
  /** ID. */
  id: string;
  /** Key, if its caller has chosen one. */
  key?: string | null;
  /** Runs that use it. */
  leases: EnvironmentLease[];
  /** How it is found again, and what becomes of it. */
  lifecycle: EnvironmentLifecycle;
  /** Project. */
  project: string;
  /** IDs of earlier sandboxes, which are kept for seven days. */
  retired: string[];
  /** ID of its sandbox. */
  sandbox?: string | null;
  /** ID of its latest snapshot. */
  snapshot?: string | null;
  /** State. */
  state: EnvironmentState;
  /** Thread, if it has no key. */
  thread?: EnvironmentThread | null;
  /** Hash of the definition. */
  workspace: string;
}

/** An attempt to make the sandbox of an environment. */
export interface EnvironmentAttempt {
  /** When it began. */
  beganAt: Time;
  /** Caller who asked for it first. */
  caller?: Caller | null;
  /** Ways that were considered, in order. */
  considered: Considered[];
  /** When it ended. */
  endedAt?: Time | null;
  /** Why it has failed. */
  failure?: AttemptFailure | null;
  /** ID. */
  id: string;
  /** Phases that have ended. */
  phases: EnsurePhase[];
  /** State. */
  state: AttemptState;
  /** Steps of the setup. */
  steps: SetupStepView[];
}

/** A lease: the use of an environment by one run. */
export interface EnvironmentLease {
  /** When it expires, unless it is renewed. */
  expiresAt: Time;
  /** ID. */
  id: string;
}

/** How an environment is found again, and what becomes of its sandbox. */
export interface EnvironmentLifecycle {
  /** Terminate the sandbox when its last lease ends. */
  destroyOnComplete?: boolean | undefined;
  /** Suspend the sandbox when it was not used for this time. Default: never. In milliseconds. */
  keepAliveMs?: number | null | undefined;
  /**
   * Keep the sandbox of a setup whose step has failed, for inspection: for an hour, or until the
   * environment is asked for again.
   */
  keepFailed?: boolean | undefined;
  /** Action if a sandbox or snapshot exists and cannot be used. Default `refuse`. */
  onBroken?: OnBroken | null | undefined;
  /** Action if the definition is not the one that was recorded. Default `rebuild`. */
  onDrift?: OnDrift | null | undefined;
  /** Whether the environment is used again. Default `thread`. */
  reuse?: Reuse | null | undefined;
  /**
   * Greatest age of a sandbox that is used again. An older one is retired, and another one is
   * restored or created. Default: any. In milliseconds.
   */
  sandboxMaxAgeMs?: number | null | undefined;
  /** When snapshots are taken. Default `after_setup`. */
  snapshot?: SnapshotWhen | null | undefined;
  /** Kind of these snapshots. Default `memory`; `filesystem` after a run. */
  snapshotKind?: SnapshotKind | null | undefined;
  /** Greatest age of a snapshot that is restored. Default: any. In milliseconds. */
  snapshotMaxAgeMs?: number | null | undefined;
}

/** A page of environments. */
export interface EnvironmentList {
  /** The environments. */
  environments: Environment[];
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
}

/** Lines of the log of the latest attempt for an environment. */
export interface EnvironmentLog {
  /** Whether the attempt is in progress. Nothing is added to the log of one that has ended. */
  inProgress: boolean;
  /** The lines, in order. */
  lines: EnvironmentLogLine[];
  /** Offset of the next line: send it as `offset`. */
  nextOffset: number;
}

/** A line of the log of an environment. */
export interface EnvironmentLogLine {
  /** When it was written. */
  at: Time;
  /** Its offset in the log, starting at 0. */
  offset: number;
  /** Position of the step, starting at 0; null if it concerns no step. */
  step?: number | null;
  /** Its origin. */
  stream: EnvironmentLogStream;
  /** The text, without the end of the line. Bytes that are not UTF-8 are replaced. */
  text: string;
}

/** Origin of a line of a log. */
export type EnvironmentLogStream = "daemon" | "stdout" | "stderr";

/** Code of an environment: exactly one of the fields is set. */
export interface EnvironmentSource {
  /** Hash of an uploaded build context, whose files are copied. See `PUT /v1/contexts/{hash}`. */
  context?: string | null | undefined;
  /** Git repository, which is cloned in the sandbox. */
  git?: GitSource | null | undefined;
}

/** State of an environment. */
export type EnvironmentState = "idle" | "working" | "ready" | "ending";

/**
 * A thread of an agent, with the definition it asks for and the tenant it belongs to. Two are the
 * same if all fields are equal.
 */
export interface EnvironmentThread {
  /** Name of the definition. */
  definition: string;
  /** Organization. */
  organization?: string | null | undefined;
  /** Thread. */
  thread: string;
  /** User. */
  user?: string | null | undefined;
}

/** Something that happened to a sandbox. */
export interface Event {
  /** When it happened. */
  at: Time;
  /** Number of bytes that the operation wrote to disk. */
  bytes?: number | null;
  /** Caller that asked for it. Null if no request did, and for events of version 0.1.0. */
  caller?: Caller | null;
  /** Details as a sentence, if there are any. */
  detail?: string | null;
  /** Generation of the sandbox at the time of the event. */
  generation: number;
  /** Who caused the event: `user`, `timer`, `traffic`, `host` or `recovery`. */
  initiator: string;
  /** Kind of the event, such as `created`, `suspended` or `resume_failed`. */
  kind: string;
  /** Increases with every event, so it serves as a cursor. Numbers may have gaps. */
  number: number;
  /** ID of the operation that the event belongs to. */
  operation?: string | null;
  /** Project of the sandbox. */
  project: string;
  /** ID of the sandbox. */
  sandbox: string;
  /** Duration of the operation that the event ends, in milliseconds. */
  tookMs?: number | null;
}

/** A page of events, ordered by number. */
export interface EventPage {
  /** The events. */
  events: Event[];
  /** Cursor: `after` of the next page. */
  next: number;
  /** Number of the oldest event that is kept. Older events were removed because of their age. */
  oldest?: number;
}

/** Runs a command and waits for it to end. Exactly one of `argv` and `shell` is required. */
export interface ExecRequest {
  /** The command and its arguments. */
  argv?: Text[] | null | undefined;
  /** Take a snapshot of this kind first. If that fails, the command does not run. Default: none. */
  checkpoint?: SnapshotKind | null | undefined;
  /**
   * Working directory. Default: that of the image if the user is the image's, otherwise the home
   * directory of the user.
   */
  cwd?: Text | null | undefined;
  /** Environment variables in addition to those of the sandbox. */
  env?: Record<string, string> | undefined;
  /** Command line for `/bin/sh -c`. */
  shell?: string | null | undefined;
  /** The whole standard input. Default: empty. */
  stdin?: Text | null | undefined;
  /**
   * Keep the standard input open: write to it with `/processes/{process}/stdin`, and close it
   * with `/processes/{process}/stdin/close`. The event `started` has the handle. Not together
   * with `stdin`. Default: false.
   */
  stdinOpen?: boolean | undefined;
  /**
   * Milliseconds after which the command and its process group are killed. Time during which the
   * sandbox is suspended does not count. Default: no limit.
   */
  timeoutMs?: number | null | undefined;
  /** User to run as: a name, a number, or `UID:GID`. Default: the user of the image, or root. */
  user?: string | null | undefined;
}

/** The result of a command. Exactly one of `exitCode` and `signal` is set. */
export interface ExecResult {
  /** ID of the snapshot that was taken before the command, if one was requested. */
  checkpoint?: string | null;
  /** Exit code, 0 to 255. */
  exitCode?: number | null;
  /** Process ID inside the sandbox. */
  pid: number;
  /** Handle of the process. */
  process: number;
  /** Number of the signal that ended the process. */
  signal?: number | null;
  /** Standard error from its start, at most 4 MiB. */
  stderr: string;
  /** Encoding of `stderr`. */
  stderrEncoding: Encoding;
  /** Number of bytes of standard error that are not in `stderr`. */
  stderrTruncatedBytes: number;
  /** Standard output from its start, at most 4 MiB. */
  stdout: string;
  /** Encoding of `stdout`. */
  stdoutEncoding: Encoding;
  /** Number of bytes of standard output that are not in `stdout`. */
  stdoutTruncatedBytes: number;
  /** Whether the command was killed because its time limit passed. */
  timedOut: boolean;
}

/**
 * How a process ended. Exactly one of `exitCode` and `signal` is set. Also the data of the
 * server-sent event `exit`.
 */
export interface ExitStatus {
  /** Exit code, 0 to 255. */
  exitCode?: number | null;
  /** Number of the signal that ended the process. */
  signal?: number | null;
  /** Whether the process was killed because its time limit passed. */
  timedOut: boolean;
}

/** Exports an image to a path on the daemon's host. */
export interface ExportImage {
  /** Absolute path of the new file. It must not exist. */
  path: string;
}

/** The exported archive. */
export interface ExportedImage {
  /** Size of the archive in bytes. */
  bytes: number;
  /** Digest of the image. */
  image: string;
  /** Digest of the manifest in the archive. */
  manifest: string;
  /** Path of the archive. */
  path: string;
}

/** Postpones the deadline of a sandbox. */
export interface ExtendSandbox {
  /** Milliseconds from now until the earliest deadline that `timeoutMs` of the sandbox may set. */
  timeoutMs: number;
}

/** An extended attribute of a file. */
export interface FileAttribute {
  /** Name, which begins with `user.`. */
  name: Text;
  /** The bytes of `name`, set only if they are not valid UTF-8. */
  nameBytes?: Uint8Array;
  /** Value. */
  value: Text;
  /** The bytes of `value`, set only if they are not valid UTF-8. */
  valueBytes?: Uint8Array;
}

/** The extended attributes of a file whose names begin with `user.`, ordered by name. */
export interface FileAttributes {
  /** The attributes. */
  attributes: FileAttribute[];
}

/** Type of a file. */
export type FileKind = "file" | "directory" | "link" | "other";

/** A page of directory entries, ordered by name. Each directory comes before its contents. */
export interface FileList {
  /** The entries. */
  entries: FileStat[];
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
}

/** Metadata of a file. */
export interface FileStat {
  /** Group ID of the group. */
  gid: number;
  /** Name of the group, if the sandbox has one. */
  group?: string | null;
  /** Type of the file. A symbolic link is reported as a link. */
  kind: FileKind;
  /** Target of a symbolic link. */
  link?: string | null;
  /** The bytes of `link`, set only if they are not valid UTF-8. */
  linkBytes?: Uint8Array;
  /** Permission bits in octal, such as `0644`. */
  mode: string;
  /** When the contents last changed. */
  modifiedAt: Time;
  /** Name of the owner, if the sandbox has one. */
  owner?: string | null;
  /** Absolute path. */
  path: string;
  /** The bytes of `path`, set only if they are not valid UTF-8. */
  pathBytes?: Uint8Array;
  /** Size in bytes. */
  sizeBytes: number;
  /** User ID of the owner. */
  uid: number;
}

/** How the volumes of a sandbox are attached to its clones and forks. */
export type FollowingVolumes = "same" | "read_only" | "none";

/** Settings of one child of a fork. */
export interface ForkChild {
  /** Environment variables that override those of the source. */
  env?: Record<string, string> | undefined;
  /** Milliseconds from the last activity to the deadline. Default: as for the source. */
  idleTimeoutMs?: number | null | undefined;
  /** Labels that override those of the source. */
  labels?: Record<string, string> | undefined;
  /** Longest time in milliseconds that a run may last. Default: as for the source. */
  maxRunMs?: number | null | undefined;
  /** Name of the child. */
  name?: string | null | undefined;
  /**
   * Action at a deadline. Default: as for the source, or for the first in the line with a name,
   * as for a named sandbox.
   */
  onTimeout?: OnTimeout | null | undefined;
  /**
   * Secrets of the child: null for the value of the source, or another value. Other secrets of
   * the source are not copied.
   */
  secrets?: Record<string, NamedSecret> | undefined;
  /** Milliseconds from the start of a run to its deadline. Default: as for the source. */
  timeoutMs?: number | null | undefined;
}

/** Forks a sandbox: either `count` equal children, or those listed in `children`. */
export interface ForkRequest {
  /** Settings of each child, instead of a count. */
  children?: ForkChild[] | undefined;
  /** Number of children without names, with the settings of the source, 1 to 256. */
  count?: number | null | undefined;
  /** Action if a child cannot be created. Default `keep`. */
  onPartialFailure?: OnPartialFailure | undefined;
  /** How the volumes of the source are attached to the children. Default `same`. */
  volumes?: FollowingVolumes | undefined;
}

/** The result of a fork. */
export interface Forked {
  /** The children, in the order of the request. */
  children: ForkedChild[];
}

/** The result for one child: exactly one of `sandbox` and `error` is set. */
export interface ForkedChild {
  /** Why the child could not be created. */
  error?: Problem | null;
  /** The new sandbox. */
  sandbox?: SandboxInfo | null;
}

/** The files that a search has found. */
export interface FoundFiles {
  /** The files. */
  files: FileStat[];
  /** How the search ended. */
  search: SearchEnd;
}

/** A line that matches. */
export interface FoundLine {
  /** Whether the line is longer than the text. */
  cut: boolean;
  /** Number of the line, from 1. */
  line: number;
  /** Position of the match in the line, in bytes. */
  offset: number;
  /** Absolute path of the file. */
  path: string;
  /** The bytes of `path`, set only if they are not valid UTF-8. */
  pathBytes?: Uint8Array;
  /** The line: at most 1,024 bytes of it, with the beginning of the match. */
  text: string;
  /** The bytes of `text`, set only if they are not valid UTF-8. */
  textBytes?: Uint8Array;
  /** Position of the text in the line, in bytes; 0 unless the beginning of the line is cut off. */
  textOffset: number;
}

/** The lines that a search has found. */
export interface FoundLines {
  /** The lines. */
  lines: FoundLine[];
  /** How the search ended. */
  search: SearchEnd;
}

/** A git repository. */
export interface GitSource {
  /** How many commits are fetched. Default 1. */
  depth?: number | null | undefined;
  /** Fetch all commits and branches. */
  fullHistory?: boolean | undefined;
  /** Branch, tag or commit. Default: the branch that the server names. */
  ref?: string | null | undefined;
  /** Token for the clone. Only the clone sees it, and it is never returned. */
  token?: Secret | null | undefined;
  /** Secret of the project that is the token for the clone. */
  tokenSecret?: string | null | undefined;
  /** URL, without credentials. */
  url: string;
}

/**
 * A header that is set in HTTPS requests, outside of the sandbox. The first rule for a host, port
 * and header counts.
 */
export interface HeaderRule {
  /** Host name: `example.com`, or `*.example.com` for every name below it. */
  host: string;
  /** Name of the header. */
  name: string;
  /** Port. Default: 443. */
  port?: number | undefined;
  /** Value, with the name of one secret of the project in braces, such as `Bearer {API_KEY}`. */
  value: string;
}

/** Health of the daemon. */
export interface Health {
  /** Always `ok`. */
  status: string;
}

/**
 * A health check: a connection to a port on the loopback of the sandbox, or a request to it. An
 * unhealthy process is ended and started again, unless `restart` is `never`.
 */
export interface HealthCheck {
  /** Number of failed checks in a row that make the process unhealthy. Default 3. */
  failures?: number | null | undefined;
  /** Time after a start during which failed checks do not count. Default: none. In milliseconds. */
  graceMs?: number | null | undefined;
  /** Time between two checks. Default 10,000. In milliseconds. */
  intervalMs?: number | null | undefined;
  /**
   * Path of an HTTP request GET, whose response must have a status from 200 to 399. Default: it
   * is enough that the port accepts a connection.
   */
  path?: string | null | undefined;
  /** TCP port. */
  port: number;
  /** Time after which a check has failed, at most 60,000. Default 5,000. In milliseconds. */
  timeoutMs?: number | null | undefined;
}

/** Keeps a sandbox awake until it expires or is released. */
export interface Hold {
  /** ID of the hold. */
  id: string;
  /** Reason given by the holder. */
  reason: string;
  /** When the hold expires. */
  until: Time;
}

/** Keeps a sandbox awake for a while. */
export interface HoldRequest {
  /** Reason, shown in explanations of the sandbox's state. 1 to 200 characters. */
  reason: string;
  /** ID of an existing hold to renew: it then expires when this one would. */
  renew?: string | null | undefined;
  /** Milliseconds from now until the hold expires. */
  ttlMs: number;
}

/** Action of a command while another operation on the sandbox is in progress. */
export type IfBusy = "wait" | "refuse";

/** An image that sandboxes boot from. */
export interface Image {
  /** Total size of its files in bytes. */
  bytes: number;
  /** How programs of the image run by default. */
  config?: ImageConfig;
  /** When the image was imported. */
  createdAt: Time;
  /** Digest of the contents: 64 hexadecimal digits. */
  digest: string;
  /** Number of files, directories and links. */
  files: number;
  /** SHA-256 digests of its layers, lowest first. */
  layers?: string[];
  /** Where the image came from, if it is known. */
  source?: ImageSource;
  /** Tags of the image. */
  tags: string[];
}

/** How programs of an image run by default. */
export interface ImageConfig {
  /** CPU architecture of the image, such as `amd64`. */
  architecture?: string | null | undefined;
  /** Arguments of the entrypoint, or the whole command if there is no entrypoint. */
  command?: string[] | undefined;
  /** Working directory. */
  directory?: string | null | undefined;
  /** The program to start, before `command`. It is started only if the request asks for it. */
  entrypoint?: string[] | undefined;
  /**
   * Environment variables of every process, as `NAME=VALUE`. Variables of the sandbox override
   * them.
   */
  env?: string[] | undefined;
  /** Ports that programs of the image listen on, such as `8080/tcp`. */
  ports?: string[] | undefined;
  /** Command line for `/bin/sh` that exits with 0 once the started program is ready. */
  ready?: string | null | undefined;
  /** User that processes run as. */
  user?: string | null | undefined;
}

/** A page of images, ordered by digest. */
export interface ImageList {
  /** The images. */
  images: Image[];
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
}

/** Where an image came from. */
export interface ImageSource {
  /** Source that the image was built from, as given by its builder. */
  build?: string | null;
  /** Digest of the manifest in its registry. */
  manifest?: string | null;
  /** Name of the image in its registry. */
  reference?: string | null;
}

/** Imports an image from a path on the daemon's host. */
export interface ImportImage {
  /**
   * Absolute path of a directory or a tar archive, plain or compressed with gzip or zstd, with a
   * root file system, an OCI layout or a Docker archive. The format is detected from the
   * contents.
   */
  path: string;
  /** Tag for the image. An image that has this tag loses it. */
  tag?: string | null | undefined;
}

/** Progress of a long operation. Data of the server-sent event `progress`. */
export interface ImportProgress {
  /** Number of bytes read so far. */
  bytes: number;
  /** Total number of bytes. Null if the source is a directory. */
  bytesTotal?: number | null;
  /** Number of entries written so far. */
  entries: number;
  /** Current stage. */
  stage: ImportStage;
}

/** Stage of a long operation. */
export type ImportStage = "waiting" | "fetching" | "unpacking" | "hashing" | "syncing" | "trying";

/** Version and engine of the daemon. */
export interface Info {
  /** Addresses of the listeners for other clients, by name, such as `e2b`. */
  doors?: Record<string, string>;
  /** The engine. */
  engine: Engine;
  /** Project of the API key. */
  project: string;
  /** Version of the daemon. */
  version: string;
}

/** Settings of the source of a snapshot when it was taken. */
export interface InheritedSettings {
  /** Where a sandbox may connect to. */
  egress: Egress;
  /** Who can reach its ports. */
  portAccess: PortAccess;
  /** `Host` header that programs behind the ports get; null for the host that the client named. */
  portHost?: string | null;
  /** Exceptions for single ports, by the number of the port. */
  portRules: Record<string, PortRule>;
  /**
   * Whether a boot starts the entrypoint and command of the image. In a memory snapshot they ran
   * already.
   */
  start: boolean;
}

/** How long a snapshot is kept, other than for a number of seconds. */
export type Keep = "forever" | "none";

/** The part of a sandbox that a suspend keeps. */
export type Kept = "memory" | "files";

/** An API key without its secret part. */
export interface Key {
  /** When the key was created. */
  createdAt: Time;
  /** When the key expires, if it does. */
  expiresAt?: Time | null;
  /** ID of the key. It is not secret. */
  id: string;
  /** Display name. */
  name: string;
  /** Project that the key gives access to. */
  project?: string;
  /** ID of the sandbox, if the scope is `sandbox`. */
  sandbox?: string | null;
  /** Scope of the key. */
  scope: KeyScope;
}

/** Form of an API key. Some clients accept only keys of their own form. */
export type KeyForm = "dormouse" | "e2b";

/** A page of API keys, oldest first. */
export interface KeyList {
  /** The keys. */
  keys: Key[];
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
}

/** Scope of an API key: the requests that it permits. */
export type KeyScope = "full" | "read_only" | "sandbox";

/** The result of killing a process with all that descend from it. */
export interface Killed {
  /** Number of processes that were killed. */
  killed: number;
}

/** Creates a browser link to a port. */
export type LinkRequest = Record<string, never>;

/** A gap in the output: bytes that are no longer kept. Data of the server-sent event `lost`. */
export interface LostOutput {
  /** Length of the gap in bytes. */
  bytes: number;
  /** Position where the gap starts. */
  offset: number;
  /** The output stream with the gap. */
  stream: OutputStream;
}

/** Creates a directory. */
export interface MakeDirectory {
  /** Fail if the path already exists, also with `parents`. Default: false. */
  exclusive?: boolean | null | undefined;
  /**
   * Create missing parent directories, and succeed if the directory already exists. Default:
   * true.
   */
  parents?: boolean | null | undefined;
  /** Absolute path. */
  path: Text;
  /** Owner: a name, a number, or `UID:GID`. Default: root. */
  user?: string | null | undefined;
}

/** Why a snapshot was made. */
export type Maker = "request" | "policy" | "import";

/** A secret for a clone or child: null for the value of the source, or another value. */
export type NamedSecret = string | null;

/** Network traffic of a sandbox with other hosts since its current run was prepared. */
export interface NetworkUsage {
  /** Limit in bytes per second, separately for sending and receiving. Null for no limit. */
  limitBytesPerSecond?: number | null;
  /** Bytes received. */
  receivedBytes: number;
  /** Bytes sent. */
  sentBytes: number;
}

/** Action if a sandbox or snapshot exists and cannot be used. */
export type OnBroken = "refuse" | "next";

/** Action if the definition is not the one that was recorded. */
export type OnDrift = "rebuild" | "keep" | "refuse";

/** Rule for work in progress if no caller waits for it any more. */
export type OnLeave = "continue" | "cancel";

/** Action if a child of a fork cannot be created. */
export type OnPartialFailure = "keep" | "roll_back";

/**
 * Action on a sandbox that cannot be suspended at its deadline. Attempts are repeated with
 * increasing intervals, up to 10 minutes.
 */
export type OnSuspendFailure = "keep" | "terminate";

/** Action on a running sandbox at a deadline. */
export type OnTimeout = "terminate" | "suspend" | "suspend_files";

/** Action if none of the sleep images of a sandbox can be restored. */
export type OnUnrestorable = "fail" | "filesystem" | "fresh";

/**
 * An operation: a change of a sandbox or snapshot that takes time. Events name the operation that
 * they belong to.
 */
export interface Operation {
  /** Caller that asked for it. Null if no request did, and for operations of version 0.1.0. */
  caller?: Caller | null;
  /** Error code of the failure. Null if the operation has not failed. */
  code?: string | null;
  /** When the operation is aborted if it has not ended. */
  deadline: Time;
  /** When the operation ended. Null while it is in progress. */
  endedAt?: Time | null;
  /** ID of the operation. */
  id: string;
  /** Who started the operation: `user`, `timer`, `traffic`, `host` or `recovery`. */
  initiator: string;
  /** Kind of the operation, such as `create`, `suspend`, `snapshot` or `fork`. */
  kind: string;
  /** Why the operation failed, if it did. */
  reason?: string | null;
  /** ID of the sandbox that it changes. Null for an operation that only changes a snapshot. */
  sandbox?: string | null;
  /** When the operation started. */
  startedAt: Time;
  /** Status of the operation. */
  status: OperationStatus;
}

/** A page of operations, newest first. */
export interface OperationList {
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
  /** The operations. */
  operations: Operation[];
}

/** Status of an operation. */
export type OperationStatus = "in_progress" | "completed" | "failed";

/** A chunk of output. Data of the server-sent events `stdout` and `stderr`. */
export interface OutputChunk {
  /** The bytes. */
  data: string;
  /** Encoding of `data`. */
  encoding: Encoding;
  /** Position of the first byte in this output stream, counted from the start of the process. */
  offset: number;
  /**
   * When the bytes were read from the process, by the clock of the sandbox. Null in a sandbox
   * that was suspended under an earlier release.
   */
  readAt: Time | null;
}

/** An output stream of a process. */
export type OutputStream = "stdout" | "stderr";

/** Commands of a setup that run at the same time. */
export interface ParallelSetup {
  /** Lines for `/bin/sh`. */
  parallel: string[];
}

/** A pool of sandboxes that are made in advance. */
export interface Pool {
  /** How many sandboxes were claimed and are not terminated. */
  claimed: number;
  /** When the pool was created. */
  createdAt: Time;
  /** ID of the pool. */
  id: string;
  /** Digest of the image that the sandboxes boot from. */
  image?: string | null;
  /** Labels. */
  labels: Record<string, string>;
  /** How many sandboxes may exist, waiting and claimed. */
  most?: number | null;
  /** Name. */
  name: string;
  /** Why sandboxes cannot be made, if that is so. The daemon keeps trying. */
  problem?: string | null;
  /** Project that the pool belongs to. */
  project: string;
  /** How many sandboxes are to wait. */
  ready: number;
  /** ID of the snapshot that they start from. */
  snapshot?: string | null;
  /** How many sandboxes are suspended and wait to be claimed now. */
  waiting: number;
}

/** A page of pools, ordered by name. */
export interface PoolList {
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
  /** The pools. */
  pools: Pool[];
}

/** How to reach a port of a sandbox. */
export interface PortInfo {
  /** Who can reach the port. */
  access: PortAccess;
  /** `Host` header that the program gets; null for the host that the client named. */
  host?: string | null;
  /**
   * First label of the host name, such as `8080-ID`. It is followed by `.localhost` and the port
   * of the daemon.
   */
  label: string;
  /** Port number inside the sandbox. */
  port: number;
  /** ID of the sandbox. */
  sandbox: string;
  /**
   * Gives access to every port of this sandbox when sent as the header `X-Dormouse-Token`. A
   * fork has its own token.
   */
  token: string;
}

/** Who can reach the ports of a sandbox through the gateway. */
export type PortAccess = "public" | "private";

/** A browser link to a port. */
export interface PortLink {
  /** When the link expires. It can be opened once before that. */
  expiresAt: Time;
  /** First label of the host name, such as `8080-ID`. */
  label: string;
  /**
   * Path and query to open there. Append `&to=/PATH` to choose where the browser is redirected.
   * Default `/`.
   */
  path: string;
}

/** Exception for one port. */
export interface PortRule {
  /** Who can reach the port. Default: the `portAccess` of the sandbox. */
  access?: PortAccess | null | undefined;
  /** `Host` header that the program gets. Default: the `portHost` of the sandbox. */
  host?: string | null | undefined;
}

/**
 * An error in the format of RFC 9457. Every response that is not a success has this body, and
 * errors inside streams and other responses have the same members.
 */
export interface Problem {
  /**
   * The code, for programs. It has the same meaning in every response; docs/reference/errors.md
   * lists all codes.
   */
  code: string;
  /** The failure and its reason, as a sentence for people. */
  detail: string;
  /** The next step for the caller, for people. Empty if `detail` says everything. */
  nextStep: string;
  /** HTTP status. */
  status: number;
  /** The code in words. */
  title: string;
  /** `/errors/` followed by the code: a stable identifier, which cannot be fetched. */
  type: string;
}

/** A process. Ended processes are remembered for a while. */
export interface ProcessInfo {
  /** The command and its arguments. */
  argv: string[];
  /** Working directory at the start. */
  cwd: string;
  /** The bytes of `cwd`, set only if they are not valid UTF-8. */
  cwdBytes?: Uint8Array;
  /** Names of the environment variables that the process got in addition to those of the sandbox. */
  env: string[];
  /** How the process ended. Null while it runs. */
  exit?: ExitStatus | null;
  /** Label that was requested, if any. */
  label?: string | null;
  /** Process ID inside the sandbox. After the process has ended, another one may use it. */
  pid: number;
  /** Handle of the process. */
  process: number;
  /** When the process started, by the clock of the sandbox. */
  startedAt: Time;
  /** Number of bytes written to standard error. */
  stderrBytes: number;
  /** Number of bytes written to standard output. */
  stdoutBytes: number;
  /** Size of its terminal, if it has one. */
  terminal?: TerminalSize | null;
  /** User that was requested, if any. */
  user?: string | null;
}

/** A page of processes that were started through this API, oldest first. */
export interface ProcessList {
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
  /** The processes. */
  processes: ProcessInfo[];
}

/** A started process. Also the data of the server-sent event `started`. */
export interface ProcessStarted {
  /** Process ID inside the sandbox. */
  pid: number;
  /** Handle of the process. Handles are never reused in a sandbox. */
  process: number;
}

/** A project. */
export interface Project {
  /** Limits. */
  budgets: ProjectBudgets;
  /** When the project was created. Null for `local`, which always exists. */
  createdAt?: Time | null;
  /** Name. */
  name: string;
  /** Use of these limits. */
  used: ProjectUse;
}

/** Limits on what a project may have. A limit that is left out or null does not exist. */
export interface ProjectBudgets {
  /** Largest sum of the CPU limits of running sandboxes, in thousandths of a CPU. */
  cpuMillis?: number | null | undefined;
  /**
   * Largest total size of sleep images, snapshots, volumes, images with a tag of the project,
   * and build contexts.
   */
  diskBytes?: number | null | undefined;
  /** Largest sum of the memory limits of running sandboxes. */
  memoryBytes?: number | null | undefined;
  /** Largest number of sandboxes that run at a time. */
  running?: number | null | undefined;
  /** Largest number of sandboxes that are not terminated. */
  sandboxes?: number | null | undefined;
}

/** A page of projects, ordered by name. */
export interface ProjectList {
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
  /** The projects. */
  projects: Project[];
}

/** A secret of a project. Its value is never returned. */
export interface ProjectSecret {
  /** When its value was set last. */
  changedAt: Time;
  /** When the secret was created. */
  createdAt: Time;
  /** Name. */
  name: string;
  /** Number of sandboxes with a header rule that names the secret. */
  usedBy: number;
}

/** Use of the budgets of a project. */
export interface ProjectUse {
  /** Sum of their CPU limits, in thousandths of a CPU. */
  cpuMillis: number;
  /**
   * Total size of sleep images, snapshots, volumes, images with a tag of the project, and build
   * contexts.
   */
  diskBytes: number;
  /** Sum of their memory limits. */
  memoryBytes: number;
  /** Number of sandboxes that run or are about to. */
  running: number;
  /** Number of sandboxes that are not terminated. */
  sandboxes: number;
}

/** Replaces a sandbox with its child. */
export interface PromoteRequest {
  /** Keep that snapshot until it is deleted, or not at all. Cannot be combined with `keepMs`. */
  keep?: Keep | null | undefined;
  /**
   * Milliseconds after which the snapshot of the parent's previous state is deleted automatically.
   * Default: 7 days.
   */
  keepMs?: number | null | undefined;
}

/** A sandbox that was replaced with its child. */
export interface Promoted {
  /** ID of the child, which is terminated. */
  child: string;
  /**
   * ID of the snapshot of the parent's previous state, if that is kept. It may be in progress
   * for a moment; requests that need it wait for that.
   */
  future?: string | null;
  /** The parent, running with the memory and files of the child. */
  sandbox: SandboxInfo;
}

/** When a registry is contacted for an image. */
export type Pull = "always" | "missing" | "never";

/** Pulls an image from a registry. */
export interface PullImage {
  /** CPU architecture, such as `arm64`. Default: that of the host. */
  architecture?: string | null | undefined;
  /** Allow a registry on another host to be contacted without TLS. Default: false. */
  insecure?: boolean | undefined;
  /** When to contact the registry. Default `always`. */
  pull?: Pull | undefined;
  /** Name of the image: `HOST/NAME` with `:TAG` or `@sha256:DIGEST`. Without a host, Docker Hub. */
  reference: string;
  /** Additional tag for the image. */
  tag?: string | null | undefined;
}

/** Pulls a snapshot from a registry. */
export interface PullSnapshot {
  /** Delete the snapshot automatically after this many milliseconds. Default: never. */
  expiresMs?: number | null | undefined;
  /** Allow a registry on another host to be contacted without TLS. Default: false. */
  insecure?: boolean | undefined;
  /** Labels to add to those in the archive. They override labels of the same key. */
  labels?: Record<string, string> | undefined;
  /** Name in the registry: `HOST/NAME` with `:TAG` or `@sha256:DIGEST`. */
  reference: string;
}

/** Pushes a snapshot to a registry. */
export interface PushSnapshot {
  /** Allow a registry on another host to be contacted without TLS. Default: false. */
  insecure?: boolean | undefined;
  /** Name in the registry: `HOST/NAME:TAG`. */
  reference: string;
}

/** The pushed snapshot. */
export interface PushedSnapshot {
  /** Size of the archive in bytes. */
  bytes: number;
  /** Digest of the manifest in the registry. */
  manifest: string;
  /** Name in the registry. */
  reference: string;
  /** How many bytes were sent. The registry already had the others. */
  sentBytes: number;
}

/**
 * Everything that cannot be read. Quarantined objects, and everything they may depend on, are
 * never deleted. `dorm repair` rebuilds records.
 */
export interface Quarantine {
  /** Unreadable or damaged saved states and images. */
  files: QuarantinedFile[];
  /** Unreadable records. */
  records: QuarantinedRecord[];
}

/** A saved state or image that cannot be read or is damaged. */
export interface QuarantinedFile {
  /** Why it cannot be read, or which file is damaged. */
  reason: string;
  /** Kind of the object, with its ID or digest. */
  what: string;
}

/** A record that cannot be read. */
export interface QuarantinedRecord {
  /** ID of the record. */
  id: string;
  /**
   * `sandbox`, `operation`, `snapshot`, `discard`, `webhook`, `pool`, `build`, `template`,
   * `environment`, `project`, `key`, `request`, `volume` or `event`.
   */
  kind: string;
  /** The name that the record reserves, if it can be read. */
  name?: string | null;
  /** Why the record cannot be read. */
  reason: string;
}

/** A statement and what it is based on. */
export interface Reason {
  /** When it happened or will happen. */
  at?: Time | null;
  /** The statement. */
  says: string;
  /**
   * Kind of the evidence: `event`, `use`, `hold`, `limit`, `operation`, `image`, `policy`,
   * `memory`, `disk`, `snapshot`, `run` or `pool`.
   */
  signal: string;
}

/** Ends the run that a lease is for. */
export interface ReleaseEnvironment {
  /** ID of the lease. Default: the run had none. */
  lease?: string | null | undefined;
  /** How the run has ended. Default `completed`. */
  outcome?: RunOutcome | null | undefined;
}

/** Renames a file or directory. An existing file of the new name is replaced. */
export interface Rename {
  /** Current absolute path. */
  from: Text;
  /** Create missing parent directories of the new path. Default: false. */
  parents?: boolean | null | undefined;
  /** New absolute path. */
  to: Text;
  /** Owner of created parent directories: a name, a number, or `UID:GID`. Default: root. */
  user?: string | null | undefined;
}

/** Renews a lease. */
export interface RenewLease {
  /** How long it lasts from now, at most 24,000 hours. In milliseconds. */
  leaseMs: number;
}

/** Resends events to a webhook. */
export interface ReplayWebhook {
  /** Resend all events after the one with this number. 0 resends all of them. */
  after: number;
}

/** Where the memory of a sandbox is. */
export type Residence = "running" | "parked" | "evicted" | "none";

/** Changes the numbers of a pool. */
export interface ResizePool {
  /** How many sandboxes may exist, waiting and claimed. Null: any number. */
  most?: number | null | undefined;
  /** How many sandboxes wait to be claimed, at most 1000. */
  ready: number;
}

/** New limits of CPU and memory of a sandbox. A limit that is left out does not change. */
export interface ResizeRequest {
  /** CPU limit in thousandths of a CPU. */
  cpuMillis?: number | null | undefined;
  /** Guest memory in bytes. It cannot be less than the sandbox uses. */
  memoryBytes?: number | null | undefined;
}

/** Resource limits. */
export interface Resources {
  /** CPU limit in thousandths of a CPU. */
  cpuMillis: number;
  /** How much can be written to the root file system, in bytes. */
  diskBytes: number;
  /** Guest memory in bytes. */
  memoryBytes: number;
  /** Largest number of processes and threads. */
  processes: number;
}

/**
 * Requested resource limits. Fields that are left out use their default, or the limit of the
 * snapshot.
 */
export interface ResourcesRequest {
  /** CPU limit in thousandths of a CPU. Default 1000. */
  cpuMillis?: number | null | undefined;
  /** How much can be written to the root file system, in bytes. Default 4 GiB. */
  diskBytes?: number | null | undefined;
  /** Guest memory in bytes. Default 512 MiB. */
  memoryBytes?: number | null | undefined;
  /** Largest number of processes and threads. Default 512. */
  processes?: number | null | undefined;
}

/** When the process of a service is started again. */
export type Restart = "never" | "on_failure" | "always";

/** Recreates a terminated sandbox. */
export interface RestartRequest {
  /** Name of the new sandbox. Default: the name of the terminated one. */
  name?: string | null | undefined;
}

/** A sandbox that replaces a terminated one. */
export interface Restarted {
  /** The new sandbox. */
  sandbox: SandboxInfo;
  /** ID of the snapshot it was created from. */
  snapshot: string;
}

/** State that the current or last run of a sandbox started with. */
export type Restored = "memory" | "filesystem" | "files" | "none";

/** Snapshot that a sandbox was restored from. */
export interface RestoredFrom {
  /** Its age. In milliseconds. */
  ageMs: number;
  /** Whether it was taken just before, after the setup of the same request. */
  new: boolean;
  /** Whether another environment with the same definition has taken it. */
  shared: boolean;
  /** ID of the snapshot. */
  snapshot: string;
}

/** Resumes a sandbox. */
export interface ResumeRequest {
  /** Action while another operation is in progress. Default `wait`. */
  ifBusy?: IfBusy | null | undefined;
  /**
   * How many milliseconds to wait for room, in turn with others, if running sandboxes use up a
   * budget. Default 0: the request fails at once.
   */
  maxWaitMs?: number | null | undefined;
  /**
   * Milliseconds from now to the deadline, which replace `timeoutMs` of the sandbox. If it runs
   * already, its deadline is postponed and never brought forward. Default: the limit of the
   * sandbox.
   */
  timeoutMs?: number | null | undefined;
  /**
   * Whether the response comes when the sandbox runs. If false, it comes as soon as the
   * operation is recorded, with status 202, and `operation` of the sandbox names it. Default:
   * true.
   */
  wait?: boolean | null | undefined;
}

/** Whether an environment is used again. */
export type Reuse = "thread" | "none";

/** Rewinds a sandbox to a snapshot. */
export interface RewindRequest {
  /** Keep that snapshot until it is deleted, or not at all. Cannot be combined with `keepMs`. */
  keep?: Keep | null | undefined;
  /**
   * Milliseconds after which the snapshot of the state before the rewind is deleted automatically.
   * Default: 7 days.
   */
  keepMs?: number | null | undefined;
  /** ID of the snapshot to rewind to. */
  to: string;
}

/** A sandbox that was rewound. */
export interface Rewound {
  /**
   * ID of the snapshot of its state before the rewind, if that is kept. It may be in progress
   * for a moment; requests that need it wait for that.
   */
  future?: string | null;
  /** The running sandbox. */
  sandbox: SandboxInfo;
  /** ID of the snapshot it was rewound to. */
  to: string;
}

/** How a run has ended. */
export type RunOutcome = "completed" | "failed";

/** A sandbox. */
export interface SandboxInfo {
  /**
   * Annotations: notes of programs that use the sandbox on behalf of others, by the name of the
   * program, then by key.
   */
  annotations?: Record<string, Record<string, string>>;
  /** Why the sandbox is terminated or being terminated. */
  cause?: Cause | null;
  /**
   * In the response to a command: whether it changed the sandbox. False if the sandbox was as
   * requested already, perhaps because of another request.
   */
  changed?: boolean | null;
  /** Automatic checkpoint policy, if there is one. */
  checkpoints?: Checkpoints | null;
  /** When the sandbox was created. */
  createdAt: Time;
  /** Caller that asked for it. Null if it was made for a pool, and if version 0.1.0 created it. */
  createdBy?: Caller | null;
  /** Where the sandbox may connect to. */
  egress: Egress;
  /** Names of the environment variables. Their values are never returned. */
  env: string[];
  /** The current deadline. Only set while the sandbox runs. */
  expiresAt?: Time | null;
  /** Generation: starts at 1 and increases with every resume and rewind. */
  generation: number;
  /** Holds that keep the sandbox awake. */
  holds: Hold[];
  /** ID of the sandbox. It never changes and is never reused. */
  id: string;
  /** Milliseconds from the last activity to the deadline. */
  idleTimeoutMs?: number | null;
  /** Digest of the image. */
  image: string;
  /** How many sleep images are kept. */
  keepGenerations: number;
  /** Labels: arbitrary strings by key. */
  labels: Record<string, string>;
  /** When the sandbox was last used. */
  lastActiveAt: Time;
  /** When the sandbox last began to run, by a start or a resume. */
  lastStartedAt?: Time | null;
  /** Longest time in milliseconds that a run may last. */
  maxRunMs?: number | null;
  /** Name, if the sandbox has one. */
  name?: string | null;
  /** Sleep images older than `sleepImage`, newest first. */
  olderImages: SleepImage[];
  /** Action if the sandbox cannot be suspended at a deadline. */
  onSuspendFailure?: OnSuspendFailure;
  /** Action at a deadline. */
  onTimeout: OnTimeout;
  /** Action if no sleep image can be restored. */
  onUnrestorable: OnUnrestorable;
  /** The operation in progress, if there is one. */
  operation?: CurrentOperation | null;
  /** Whether the sandbox is paused because the disk of the host is almost full. */
  pausedForDisk: boolean;
  /** ID of the pool that the sandbox was made for, if a pool did. */
  pool?: string | null;
  /** Who can reach the ports of the sandbox. */
  portAccess: PortAccess;
  /** `Host` header that programs behind the ports get; null for the host that the client named. */
  portHost?: string | null;
  /** Exceptions for single ports, by the number of the port. */
  portRules: Record<string, PortRule>;
  /** Project that the sandbox belongs to. */
  project: string;
  /** Where the memory of the sandbox is. */
  residence: Residence;
  /** Resource limits. */
  resources: Resources;
  /** State that the current or last run started with. */
  restored: Restored;
  /**
   * Generation of the sleep image that the run started from. Null if it started from an image or
   * a snapshot.
   */
  restoredGeneration?: number | null;
  /**
   * Increases with every change of the sandbox's record. `"REVISION"` is the `ETag` for
   * `If-Match`.
   */
  revision?: number;
  /** ID of the snapshot that the sandbox was last rewound to. */
  rewoundTo?: string | null;
  /** When the current run started. Only set while the sandbox runs. */
  runningSince?: Time | null;
  /** Names of the secrets. Their values are never returned. */
  secrets?: string[];
  /** The newest sleep image: the sandbox resumes from it, or falls back to it if its run is lost. */
  sleepImage?: SleepImage | null;
  /** ID of the snapshot that the first run started from. Null if it booted from an image. */
  snapshot?: string | null;
  /** ID of the sandbox that this snapshot was taken from. */
  source?: string | null;
  /**
   * Whether the first run started the entrypoint and command of the image, or continued from
   * memory in which they ran. A sandbox that boots from its files starts them again.
   */
  start?: boolean;
  /** Lifecycle state. */
  state: State;
  /** Set if the last attempt to suspend failed. */
  suspendFailures?: SuspendFailures | null;
  /** Whether the sandbox can be suspended. */
  suspendable: boolean;
  /** When the sandbox was terminated. */
  terminatedAt?: Time | null;
  /**
   * Milliseconds from the start of a run that a call has woken to its deadline, in place of
   * `timeoutMs`.
   */
  timeoutAfterWakeMs?: number | null;
  /** Milliseconds from the start of a run to its deadline. */
  timeoutMs?: number | null;
  /** Set if the run is alive but does not respond. The daemon keeps trying. */
  unreachable?: Unreachable | null;
  /** Attached volumes. */
  volumes?: AttachedVolume[];
  /** Whether the sandbox still waits in that pool to be claimed. */
  waitsInPool?: boolean;
  /** Calls that resume the sandbox when it is suspended. */
  wake?: Wake;
}

/** A page of sandboxes, ordered by id. */
export interface SandboxPage {
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
  /** The sandboxes. */
  sandboxes: SandboxInfo[];
}

/** How a search ended. */
export interface SearchEnd {
  /** Number of binary files that were skipped. */
  binaryFiles: number;
  /** Number of files and directories that were looked at. */
  entries: number;
  /** Number of bytes that were read from files. */
  readBytes: number;
  /**
   * Number of directories that were skipped because they are nested more than 256 deep, or
   * belong to a file system such as `/proc`.
   */
  skippedDirectories: number;
  /** Limit at which the search ended before all was searched. Null if it is complete. */
  truncatedBy?: SearchLimit | null;
  /** Number of files and directories that could not be read. */
  unreadable: number;
}

/** Limit of a search. */
export type SearchLimit = "results" | "entries" | "bytes" | "time" | "size";

/** Value of a secret. It is never returned. */
export type Secret = string;

/** A page of secrets, ordered by name. */
export interface SecretList {
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
  /** The secrets. */
  secrets: ProjectSecret[];
}

/** A service. */
export interface Service {
  /** The command and its arguments. */
  argv: string[];
  /** How its health is checked. Null if it is not. */
  check?: HealthCheck | null;
  /** Health of its process. */
  health: ServiceHealth;
  /** Number of the newest event. */
  lastEvent: number;
  /** How the last process ended that has ended. Null if none has. */
  lastExit?: ExitStatus | null;
  /** Number of restarts within the window after which the service has failed. */
  maxRestarts: number;
  /** Name. */
  name: string;
  /** Handle of its process, the present or the last one. */
  process: number;
  /** When the process is started again. */
  restart: Restart;
  /** Longest pause before a restart. In milliseconds. */
  restartDelayMaxMs: number;
  /** Pause before the first restart. In milliseconds. */
  restartDelayMs: number;
  /** The window in which restarts are counted. In milliseconds. */
  restartWindowMs: number;
  /** Number of times that the process was started again. */
  restarts: number;
  /** When that process started, by the clock of the sandbox. */
  startedAt: Time;
  /** State of the service. */
  state: ServiceState;
  /** Number of bytes written to standard error, over all restarts. */
  stderrBytes: number;
  /** Number of bytes written to standard output, over all restarts. */
  stdoutBytes: number;
}

/** Something that happened to a service. */
export interface ServiceEvent {
  /** When it happened, by the clock of the sandbox. */
  at: Time;
  /** Why it could not be started or is unhealthy; the pause before a restart. */
  detail?: string | null;
  /** How the process ended. */
  exit?: ExitStatus | null;
  /** Kind of the event. */
  kind: ServiceEventKind;
  /** Number of the event: the events of a service are counted from 1. */
  number: number;
  /** Handle of the process that was started or has ended. */
  process?: number | null;
}

/** Kind of an event of a service. */
export type ServiceEventKind =
  "started" | "not_started" | "exited" | "restarting" | "gave_up" | "finished" | "healthy" | "unhealthy" | "stopped";

/** Events of a service, oldest first. */
export interface ServiceEvents {
  /** The events. About 1,000 are kept; a gap in their numbers is where older ones are missing. */
  events: ServiceEvent[];
  /** Whether there are more events already. */
  more: boolean;
  /** Cursor: `after` of the next request. */
  next: string;
}

/** Health of the process of a service. */
export type ServiceHealth = "unknown" | "starting" | "healthy" | "unhealthy";

/** All services of a sandbox, ordered by name. */
export interface ServiceList {
  /** The services, at most 64. */
  services: Service[];
}

/** State of a service. */
export type ServiceState = "running" | "waiting" | "stopping" | "stopped" | "finished" | "failed";

/** Changes the automatic checkpoint policy. Fields that are left out do not change. */
export interface SetCheckpoints {
  /**
   * Milliseconds between two checkpoints, 10,000 to 31,536,000,000. Required if the sandbox has no policy
   * yet.
   */
  everyMs?: number | null | undefined;
  /** Retention rule, as in the policy of a new sandbox. */
  keep?: string | null | undefined;
  /** Kind of the snapshots. */
  kind?: SnapshotKind | null | undefined;
  /**
   * Stop taking automatic checkpoints. Existing snapshots are kept. Cannot be combined with
   * other fields.
   */
  off?: boolean | undefined;
}

/** Change the egress policy of a sandbox. */
export interface SetEgress {
  /** The new policy, which replaces the present one as a whole. */
  egress: Egress;
}

/** Changes extended attributes of a file. */
export interface SetFileAttributes {
  /** Absolute path. */
  path: Text;
  /** Names of attributes to remove afterwards. Missing ones are ignored. Default: none. */
  remove?: Text[] | undefined;
  /** Attributes to set, at most 32 KiB of names and values. Default: none. */
  set?: FileAttribute[] | undefined;
}

/** Changes how many sleep images are kept. Fields that are left out do not change. */
export interface SetRetention {
  /** How many sleep images are kept, 1 to 16. */
  keepGenerations?: number | null | undefined;
  /** Action if no sleep image can be restored. */
  onUnrestorable?: OnUnrestorable | null | undefined;
}

/** Sets a secret. */
export interface SetSecret {
  /** Value: 1 to 8192 printable ASCII characters. */
  value: Secret;
}

/** Replaces the time limits. A limit that is left out or null is removed. */
export interface SetTimeouts {
  /** Milliseconds from the last activity to the deadline. */
  idleTimeoutMs?: number | null | undefined;
  /** Longest time in milliseconds that a run may last, from the start of the run. */
  maxRunMs?: number | null | undefined;
  /**
   * Milliseconds from the start of a run that a call has woken to its deadline, in place of
   * `timeoutMs`.
   */
  timeoutAfterWakeMs?: number | null | undefined;
  /** Milliseconds from now to the deadline. */
  timeoutMs?: number | null | undefined;
}

/** State of a step of a setup. */
export type SetupState = "waiting" | "running" | "done" | "failed";

/** A step of a setup. */
export type SetupStep = string | ParallelSetup;

/** A step of a setup. */
export interface SetupStepView {
  /** When it began. */
  beganAt?: Time | null;
  /** When it ended. */
  endedAt?: Time | null;
  /** Exit code, if it exited. */
  exitCode?: number | null;
  /** State. */
  state: SetupState;
  /** The command as one line. */
  title: string;
}

/** Sends a signal to a process. */
export interface SignalRequest {
  /** Linux signal number, 1 to 31. */
  signal: number;
  /** Receiver of the signal. Default `process`. */
  target?: SignalTarget | undefined;
}

/** Receiver of a signal. */
export type SignalTarget = "process" | "group";

/** The saved state of a suspended sandbox. */
export interface SleepImage {
  /** Size on disk in bytes. */
  bytes: number;
  /** Generation that was saved. */
  generation: number;
  /** The part of the sandbox that it keeps. */
  keeps?: Kept;
  /** When the sandbox was paused for the save. */
  takenAt: Time;
}

/** A snapshot. */
export interface Snapshot {
  /**
   * Disk space that deleting the snapshot frees. Only present for completed snapshots in lists
   * and in `GET /v1/snapshots/{id}`.
   */
  aloneBytes?: number | null;
  /** Size on disk in bytes. 0 until the snapshot is completed. */
  bytes: number;
  /** Error code of that failure. */
  code?: string | null;
  /** When the snapshot was requested. */
  createdAt: Time;
  /** When the snapshot is deleted automatically, if it is. */
  expiresAt?: Time | null;
  /** Generation of that sandbox. */
  generation: number;
  /**
   * Whether the snapshot is deleted as soon as nothing uses it. Nothing can be created from it
   * any more.
   */
  goesWhenFree: boolean;
  /** Users of the snapshot, which prevent its deletion. Only present in `GET /v1/snapshots/{id}`. */
  heldBy?: string[] | null;
  /** ID of the snapshot. */
  id: string;
  /** Digest of the image that its root file system is based on. */
  image: string;
  /**
   * Settings that sandboxes that start from the snapshot have by default. Null if they are not
   * known: then the general defaults hold.
   */
  inherited?: InheritedSettings | null;
  /** Contents of the snapshot. */
  kind: SnapshotKind;
  /** Labels: arbitrary strings by key. */
  labels: Record<string, string>;
  /** Why the snapshot was made. */
  madeBy: Maker;
  /** Name under which the snapshot serves as an image, if it has one. */
  name?: string | null;
  /** ID of the snapshot that that sandbox was created from. */
  parent?: string | null;
  /** Project that the snapshot belongs to. */
  project: string;
  /** Why the snapshot failed, if it did. */
  reason?: string | null;
  /** Resource limits of sandboxes that start from the snapshot. */
  resources: Resources;
  /**
   * Disk space that the snapshot needs and shares with others: layers below it and common files.
   * Present together with `aloneBytes`.
   */
  sharedBytes?: number | null;
  /**
   * Whether the snapshot and the sleep image it was made from were one copy on disk when it was
   * made, because the file system cannot share blocks between files. Damage to one is damage to
   * the other.
   */
  sharesData: boolean;
  /** ID of the sandbox that the snapshot was taken from. */
  source: string;
  /** Status of the snapshot. */
  status: SnapshotStatus;
}

/** Contents of a snapshot. */
export type SnapshotKind = "filesystem" | "memory";

/** A page of snapshots, ordered by creation time. */
export interface SnapshotList {
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
  /** The snapshots. */
  snapshots: Snapshot[];
}

/** Status of a snapshot. */
export type SnapshotStatus = "in_progress" | "completed" | "failed" | "deleting";

/** When snapshots are taken without a request. */
export type SnapshotWhen = "after_setup" | "after_run" | "none";

/** Starts a background process. Exactly one of `argv` and `shell` is required. */
export interface StartProcess {
  /** The command and its arguments. */
  argv?: Text[] | null | undefined;
  /**
   * Working directory. Default: that of the image if the user is the image's, otherwise the home
   * directory of the user.
   */
  cwd?: Text | null | undefined;
  /** Environment variables in addition to those of the sandbox. */
  env?: Record<string, string> | undefined;
  /** Label to find the process by in the list. */
  label?: string | null | undefined;
  /** How many bytes of each output stream are kept for readers. Default 1 MiB. */
  outputKeptBytes?: number | null | undefined;
  /** Command line for `/bin/sh -c`. */
  shell?: string | null | undefined;
  /** Standard input. Default `empty`. */
  stdin?: Stdin | undefined;
  /** Run the process in a terminal of this size. The terminal is its input and its only output. */
  terminal?: TerminalSize | null | undefined;
  /**
   * Milliseconds after which the process and its process group are killed, also if its standard input
   * is open. Time during which the sandbox is suspended does not count. Default: no limit.
   */
  timeoutMs?: number | null | undefined;
  /** User to run as: a name, a number, or `UID:GID`. Default: the user of the image, or root. */
  user?: string | null | undefined;
}

/**
 * Starts a service: a process that is started again when it ends, and whose health is checked.
 * Exactly one of `argv` and `shell` is required. Times count only while the sandbox runs.
 */
export interface StartService {
  /** The command and its arguments. */
  argv?: Text[] | null | undefined;
  /**
   * Working directory. Default: that of the image if the user is the image's, otherwise the home
   * directory of the user.
   */
  cwd?: Text | null | undefined;
  /** Environment variables in addition to those of the sandbox. */
  env?: Record<string, string> | undefined;
  /** Checks the health of the process. Default: none. */
  health?: HealthCheck | null | undefined;
  /**
   * Number of restarts within `restartWindowMs` after which the service has failed. Default
   * 10.
   */
  maxRestarts?: number | null | undefined;
  /**
   * Name, 1 to 64 letters, digits, `.`, `_` and `-`. A service of this name that is over is
   * replaced.
   */
  name?: string | undefined;
  /** How many bytes of each output stream are kept for readers, over all restarts. Default 1 MiB. */
  outputKeptBytes?: number | null | undefined;
  /** When the process is started again. Default `on_failure`. */
  restart?: Restart | undefined;
  /** Longest pause before a restart. Default 60,000, or the first pause if that is longer. In milliseconds. */
  restartDelayMaxMs?: number | null | undefined;
  /**
   * Pause before the first restart, at least 1. It doubles with each restart of a process
   * that has not run for `restartDelayMaxMs`. Default 1,000. In milliseconds.
   */
  restartDelayMs?: number | null | undefined;
  /** Default 600,000. In milliseconds. */
  restartWindowMs?: number | null | undefined;
  /** Command line for `/bin/sh -c`. */
  shell?: string | null | undefined;
  /** User to run as: a name, a number, or `UID:GID`. Default: the user of the image, or root. */
  user?: string | null | undefined;
}

/** Lifecycle state of a sandbox. */
export type State =
  "pending" | "running" | "snapshotting" | "suspending" | "suspended" | "resuming" | "terminating" | "terminated";

/** Standard input of a process. */
export type Stdin = "empty" | "pipe";

/** Result of writing to the standard input of a process. */
export interface StdinWritten {
  /** Number of bytes in this request. The kernel of the sandbox has accepted all of them. */
  bytes: number;
}

/** Stops a service. */
export interface StopService {
  /**
   * Time that the process gets to end after SIGTERM, at most 300,000. Then all its processes are
   * killed. Default 10,000. In milliseconds.
   */
  graceMs?: number | null | undefined;
}

/** An object on disk that can be verified. */
export interface Stored {
  /** Digest or ID of the object. */
  id: string;
  /**
   * `image`, `image_layer` (part of images, read only by imports) or `saved_state` (the saved
   * state of a sleep image or snapshot).
   */
  kind: string;
}

/** The objects on disk that can be verified. */
export interface StoredList {
  /** The objects. */
  stored: Stored[];
}

/** Consecutive failed attempts to suspend a sandbox. */
export interface SuspendFailures {
  /** Number of failures. */
  count: number;
  /** Earliest time of the next automatic attempt. */
  nextAttemptAt: Time;
  /** Why the last one failed. */
  reason: string;
  /** When the first of them happened. */
  since: Time;
}

/** Suspends a sandbox. */
export interface SuspendRequest {
  /** Action while another operation is in progress. Default `wait`. */
  ifBusy?: IfBusy | null | undefined;
  /** The part of the sandbox that is kept. Default `memory`. */
  keep?: Kept | null | undefined;
  /**
   * Whether the response comes when the command has ended. If false, it comes as soon as the
   * operation is recorded, with status 202, and `operation` of the sandbox names it. Default:
   * true.
   */
  wait?: boolean | null | undefined;
}

/** Makes further tags stand for what a tag stands for. */
export interface TagTemplate {
  /** The tag to start from. Default `latest`. */
  from?: string | undefined;
  /** The tags. They are moved if they exist. */
  tags?: string[] | undefined;
}

/** A template. */
export interface Template {
  /** When it was created. */
  createdAt: Time;
  /** ID. */
  id: string;
  /** Name. */
  name: string;
  /** Project. */
  project: string;
  /** The versions that tags stand for. */
  tags: Record<string, TemplateVersion>;
}

/** A page of templates. */
export interface TemplateList {
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
  /** The templates. */
  templates: Template[];
}

/** The image or snapshot that a tag stands for, with the settings of sandboxes. */
export interface TemplateVersion {
  /** ID of the build that made it. */
  build?: string | null;
  /** When the tag began to stand for this. */
  createdAt: Time;
  /** Names of its environment variables. */
  env: string[];
  /** Digest of the image. */
  image?: string | null;
  /** Resource limits of its sandboxes; null for those of the snapshot, or the general defaults. */
  resources?: Resources | null;
  /** ID of the snapshot. */
  snapshot?: string | null;
  /**
   * Whether the program of the image is started in each sandbox; null if that is as when a
   * sandbox is created from the image or snapshot.
   */
  start?: boolean | null;
}

/** A text frame of the terminal WebSocket. Binary frames carry the bytes of the terminal. */
export type TerminalMessage =
  | {
      /** Process ID inside the sandbox. */
      pid: number;
      /** Handle of the process. */
      process: number;
      type: "started";
    }
  | {
      /** Number of columns. */
      cols: number;
      /** Number of rows. */
      rows: number;
      type: "resize";
    }
  | {
      type: "eof";
    }
  | {
      /** Length of the gap in bytes. */
      bytes: number;
      /** Position where the gap starts. */
      offset: number;
      type: "lost";
    }
  | {
      /** Exit code, 0 to 255. */
      exitCode?: number | null;
      /** Number of the signal that ended the process. */
      signal?: number | null;
      type: "exit";
    }
  | {
      /** Error code. */
      code: string;
      /** The failure and its reason. */
      detail: string;
      /** The next step for the caller. */
      nextStep: string;
      /** HTTP status that the error has in a response. */
      status: number;
      type: "error";
    };

/** Size of a terminal. */
export interface TerminalSize {
  /** Number of columns. */
  cols: number;
  /** Number of rows. */
  rows: number;
}

/** A time in UTC in RFC 3339 format, such as `2026-11-22T09:30:00.125Z`. */
export type Time = string;

/**
 * Lineage of sandboxes and snapshots as a flat list in drawing order: each node after its parent,
 * oldest first. It is flat because a chain can be deeper than JSON parsers allow.
 */
export interface Tree {
  /** The nodes. */
  nodes: TreeNode[];
}

/** Kind of a node. */
export type TreeKind = "sandbox" | "snapshot";

/** A sandbox or snapshot in the tree. */
export interface TreeNode {
  /** Disk space used by the snapshot, or by the sleep images of the sandbox, in bytes. */
  bytes: number;
  /** When it was created. Not known for every deleted snapshot. */
  createdAt?: Time | null;
  /** Number of ancestors. */
  depth: number;
  /** Generation of the sandbox, or of the sandbox that the snapshot was taken from. */
  generation?: number | null;
  /** ID of the sandbox or snapshot. */
  id: string;
  /** Whether the node is a sandbox or a snapshot. */
  kind: TreeKind;
  /** Labels: arbitrary strings by key. */
  labels: Record<string, string>;
  /** Name of the sandbox, if it has one. */
  name?: string | null;
  /**
   * ID of the parent: the snapshot that a sandbox was created from, or the sandbox that a
   * snapshot was taken from.
   */
  parent?: string | null;
  /**
   * State of the sandbox or status of the snapshot; `deleted` for a deleted snapshot that
   * sandboxes were created from.
   */
  state: string;
}

/** A run that is alive but does not respond. */
export interface Unreachable {
  /** The attempt and its failure. */
  reason: string;
  /** When this was first noticed. */
  since: Time;
}

/** Changes properties of a sandbox, all of them or none. Fields that are left out do not change. */
export interface UpdateSandbox {
  /**
   * Annotations to set, or with null to remove, by the name of the program. Other annotations
   * stay.
   */
  annotations?: Record<string, Record<string, string | null>> | undefined;
  /** Labels to set, or with null to remove. Other labels stay. */
  labels?: Record<string, string | null> | undefined;
  /** Name, unique among living sandboxes. A sandbox that had none can be suspended from then on. */
  name?: string | null | undefined;
  /** Action at a deadline. */
  onTimeout?: OnTimeout | null | undefined;
  /** Who can reach the ports of the sandbox. Open connections stay. */
  portAccess?: PortAccess | null | undefined;
  /**
   * `Host` header that programs behind the ports get, such as `localhost:{port}`; an empty text
   * for the host that the client named.
   */
  portHost?: string | null | undefined;
  /** Exceptions for single ports to set, or without any field to remove. Other exceptions stay. */
  portRules?: Record<string, PortRule> | undefined;
  /**
   * New limits of CPU and memory, at once if the sandbox runs. They cannot be changed together
   * with other properties.
   */
  resources?: ResizeRequest | null | undefined;
  /** Calls that resume the sandbox when it is suspended. */
  wake?: Wake | null | undefined;
}

/** Resource usage of a sandbox on the host. All values are zero or null while it is only on disk. */
export interface Usage {
  /** CPU time in milliseconds since the current run started. */
  cpuMs: number;
  /**
   * Disk space in use. Null if the disk of the sandbox has no size limit of its own on this
   * host.
   */
  diskBytes?: number | null;
  /** Disk reads and writes. Left out if the host does not count them. */
  diskIo?: DiskIo | null;
  /** Host memory in use. */
  memoryBytes: number;
  /** Network traffic. Null without a network. */
  network?: NetworkUsage | null;
  /** Number of processes on the host. */
  processes: number;
}

/** Resource usage of a sandbox in the last hour. */
export interface UsageHistory {
  /** Milliseconds between two samples. Null if this daemon takes none. */
  intervalMs?: number | null;
  /**
   * Samples in the order they were taken. There are none of a time at which the sandbox did not
   * run, and none from before the daemon was started.
   */
  samples: UsageSample[];
}

/** Resource usage of a sandbox at one time. */
export interface UsageSample {
  /**
   * Number of CPUs in use on average since the sample before. Null for the first sample after
   * the sandbox was started or resumed from disk.
   */
  cpus?: number | null;
  /** Limits at that time. */
  resources: Resources;
  /** When it was measured. */
  takenAt: Time;
  /** Resource usage. */
  usage: Usage;
}

/** Whether a way can be taken. */
export type Verdict = "taken" | "unavailable" | "broken";

/** The result of verifying an object. */
export interface Verified {
  /** Total size of its files in bytes, as far as it is known. */
  bytes: number;
  /** Its damaged files: at most 20 of an image, the first one of any other object. */
  files: DamagedFile[];
  /** Digest or ID of the object. */
  id: string;
  /** Kind of the object, as in `Stored`. */
  kind: string;
  /** `sound`, `damaged`, or `gone` if the object was deleted in the meantime. */
  verdict: string;
}

/** A volume. */
export interface Volume {
  /** Sandboxes that the volume is attached to, each with its state. */
  attachedTo: string[];
  /** When the volume was created. */
  createdAt: Time;
  /** Health of the volume. */
  health: VolumeHealth;
  /** ID of the volume. */
  id: string;
  /** Name of the volume. */
  name: string;
  /** The problem with the volume, if there is one. */
  problem?: string | null;
  /** Size in bytes, including the overhead of the file system. */
  sizeBytes: number;
  /** Used space in bytes. Only known while the volume is mounted. */
  usedBytes?: number | null;
  /** How many sandboxes may write to the volume at the same time. */
  writers: Writers;
}

/** An entry of a directory on a volume. */
export interface VolumeFile {
  /** Size in bytes. */
  bytes: number;
  /** Type of the file. */
  kind: VolumeFileKind;
  /** Name of the entry. Bytes that are not UTF-8 are shown as `�`. */
  name: string;
}

/** Type of a file on a volume. */
export type VolumeFileKind = "file" | "directory" | "symlink" | "other";

/** Entries of a directory on a volume, ordered by name. */
export interface VolumeFiles {
  /** The entries. */
  entries: VolumeFile[];
}

/** Health of a volume. */
export type VolumeHealth = "creating" | "idle" | "mounted" | "broken" | "deleting";

/** A page of volumes, ordered by name. */
export interface VolumeList {
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
  /** The volumes. */
  volumes: Volume[];
}

/** Calls that resume a suspended sandbox. */
export type Wake = "never" | "traffic" | "any";

/** A change in a watched directory. Data of the server-sent event `change`. */
export interface WatchEvent {
  /** Kind of the change. */
  kind: WatchKind;
  /** The path that changed. */
  path: string;
  /** The bytes of `path`, set only if they are not valid UTF-8. */
  pathBytes?: Uint8Array;
}

/** Kind of a change to a file. */
export type WatchKind = "created" | "modified" | "attributes" | "removed" | "moved_from" | "moved_to" | "overflow";

/** A watcher. */
export interface Watcher {
  /** Number of the newest change; 0 if there was none. */
  last: number;
  /** The watched directory. */
  path: string;
  /** The bytes of `path`, set only if they are not valid UTF-8. */
  pathBytes?: Uint8Array;
  /** Whether everything below its entries is watched too. */
  recursive: boolean;
  /** Handle of the watcher. Handles are never reused in a sandbox. */
  watcher: number;
}

/** A change that a watcher has kept. */
export interface WatcherEvent {
  /**
   * Kind of the change. `overflow` stands for all changes since the one before it: list the
   * directory again.
   */
  kind: WatchKind;
  /** Number of the change: the changes of a watcher are counted from 1. */
  number: number;
  /** The path that changed. */
  path: string;
  /** The bytes of `path`, set only if they are not valid UTF-8. */
  pathBytes?: Uint8Array;
}

/** Changes that a watcher has kept, oldest first. */
export interface WatcherEvents {
  /** The changes. */
  events: WatcherEvent[];
  /** Whether there are more changes already. */
  more: boolean;
  /** Cursor: `after` of the next request, which forgets these changes. */
  next: string;
}

/** All watchers of a sandbox, oldest first. */
export interface WatcherList {
  /** The watchers, at most 64. */
  watchers: Watcher[];
}

/** A way to a sandbox. They are considered in this order. */
export type Way = "live" | "resume" | "own_snapshot" | "workspace_snapshot" | "create";

/** A webhook: events are sent to its URL. */
export interface Webhook {
  /** When the webhook was created. */
  createdAt: Time;
  /** Number of the last event that was delivered or skipped. */
  delivered: number;
  /** ID of the webhook. */
  id: string;
  /** Kinds of events that are sent. Empty for all kinds. */
  kinds: string[];
  /**
   * Signing secret in the format of Standard Webhooks. Only present in the response that creates
   * the webhook.
   */
  secret?: string | null;
  /** URL that receives the events. */
  url: string;
}

/** A page of webhooks, ordered by id. */
export interface WebhookList {
  /** Cursor: `after` of the next page. Null on the last page. */
  next?: string | null;
  /** The webhooks. */
  webhooks: Webhook[];
}

/** Explains the state of a sandbox. */
export interface Why {
  /** Reasons for the state, most important first. */
  because: Reason[];
  /** The next expected events, soonest first. */
  next: Reason[];
  /** Data that is kept on disk for the sandbox, with the reason. */
  onDisk: Reason[];
  /** The last failure or refusal, if nothing has succeeded since. */
  refused?: Reason | null;
  /** ID of the sandbox. */
  sandbox: string;
  /** The state as a sentence. */
  summary: string;
}

/** How many sandboxes may write to a volume at the same time. */
export type Writers = "one" | "many";
