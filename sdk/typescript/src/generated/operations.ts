// Generated from docs/reference/openapi.json by scripts/generate.ts; do not edit.

import type {
  AttachVolume,
  Authority,
  Build,
  BuildContext,
  BuildList,
  BuildLog,
  CheckpointRequest,
  ClaimRequest,
  CloneRequest,
  Cloned,
  CollectorItemList,
  CommandRequest,
  ComposeImage,
  CreateBuild,
  CreateKey,
  CreatePool,
  CreateProject,
  CreateSandbox,
  CreateTemplate,
  CreateVolume,
  CreateWatcher,
  CreateWebhook,
  CreatedKey,
  Diff,
  DiffOrder,
  EnsureExplanation,
  EnsureRequest,
  EnsuredInfo,
  Environment,
  EnvironmentLease,
  EnvironmentList,
  EnvironmentLog,
  EventPage,
  ExecRequest,
  ExecResult,
  ExitStatus,
  ExportImage,
  ExportedImage,
  ExtendSandbox,
  FileAttributes,
  FileKind,
  FileList,
  FileStat,
  ForkRequest,
  Forked,
  FoundFiles,
  FoundLines,
  Health,
  Hold,
  HoldRequest,
  Image,
  ImageList,
  ImportImage,
  Info,
  KeyList,
  Killed,
  LinkRequest,
  MakeDirectory,
  Operation,
  OperationList,
  Pool,
  PoolList,
  PortInfo,
  PortLink,
  ProcessInfo,
  ProcessList,
  ProcessStarted,
  Project,
  ProjectBudgets,
  ProjectList,
  ProjectSecret,
  PromoteRequest,
  Promoted,
  PullImage,
  PullSnapshot,
  PushSnapshot,
  PushedSnapshot,
  Quarantine,
  ReleaseEnvironment,
  Rename,
  RenewLease,
  ReplayWebhook,
  ResizePool,
  RestartRequest,
  Restarted,
  ResumeRequest,
  RewindRequest,
  Rewound,
  SandboxInfo,
  SandboxPage,
  SecretList,
  Service,
  ServiceEvents,
  ServiceList,
  SetCheckpoints,
  SetEgress,
  SetFileAttributes,
  SetRetention,
  SetSecret,
  SetTimeouts,
  SignalRequest,
  Snapshot,
  SnapshotList,
  StartProcess,
  StartService,
  StdinWritten,
  StopService,
  Stored,
  StoredList,
  SuspendRequest,
  TagTemplate,
  Template,
  TemplateList,
  TerminalSize,
  Time,
  Tree,
  UpdateSandbox,
  Usage,
  UsageHistory,
  Verified,
  Volume,
  VolumeFiles,
  VolumeList,
  Watcher,
  WatcherEvents,
  WatcherList,
  Webhook,
  WebhookList,
  Why,
} from "./types.js";

/** Parameters, body and result of every operation. */
export interface Operations {
  /** Get metrics in the Prometheus text format: `GET /metrics`. */
  getMetrics: { params: object; body: undefined; result: undefined };
  /** Get the certificate authority: `GET /v1/authority`. */
  getAuthority: { params: object; body: undefined; result: Authority };
  /** List builds: `GET /v1/builds`. */
  listBuilds: {
    params: { after?: string | undefined; limit?: number | undefined };
    body: undefined;
    result: BuildList;
  };
  /** Build an image or a template: `POST /v1/builds`. */
  createBuild: { params: object; body: CreateBuild; result: Build };
  /** Get a build: `GET /v1/builds/{build}`. */
  getBuild: { params: { build: string; waitMs?: number | undefined }; body: undefined; result: Build };
  /** Cancel a build: `POST /v1/builds/{build}/cancel`. */
  cancelBuild: { params: { build: string }; body: undefined; result: Build };
  /** Read the log of a build: `GET /v1/builds/{build}/logs`. */
  getBuildLog: {
    params: { build: string; offset?: number | undefined; lines?: number | undefined; waitMs?: number | undefined };
    body: undefined;
    result: BuildLog;
  };
  /** Get a build context: `GET /v1/contexts/{hash}`. */
  getBuildContext: { params: { hash: string }; body: undefined; result: BuildContext };
  /** Upload a build context: `PUT /v1/contexts/{hash}`. */
  uploadBuildContext: { params: { hash: string }; body: BodyInit; result: BuildContext };
  /** Compare the files of two snapshots or sandboxes: `GET /v1/diff`. */
  diffFiles: { params: { from: string; to: string; order?: DiffOrder | undefined }; body: undefined; result: Diff };
  /** Get the sandbox of an environment: `POST /v1/ensure`. */
  ensureEnvironment: { params: object; body: EnsureRequest; result: EnsuredInfo };
  /** Explain what a request for an environment would do: `POST /v1/ensure/explain`. */
  explainEnsure: { params: object; body: EnsureRequest; result: EnsureExplanation };
  /** List environments: `GET /v1/environments`. */
  listEnvironments: {
    params: { after?: string | undefined; limit?: number | undefined };
    body: undefined;
    result: EnvironmentList;
  };
  /** Get an environment: `GET /v1/environments/{environment}`. */
  getEnvironment: { params: { environment: string }; body: undefined; result: Environment };
  /** Remove an environment: `DELETE /v1/environments/{environment}`. */
  removeEnvironment: { params: { environment: string }; body: undefined; result: undefined };
  /** Cancel making the sandbox of an environment: `POST /v1/environments/{environment}/cancel`. */
  cancelEnvironment: { params: { environment: string }; body: undefined; result: Environment };
  /** Renew a lease of an environment: `POST /v1/environments/{environment}/leases/{lease}/renew`. */
  renewEnvironmentLease: { params: { environment: string; lease: string }; body: RenewLease; result: EnvironmentLease };
  /** Read the log of an environment: `GET /v1/environments/{environment}/logs`. */
  getEnvironmentLog: {
    params: {
      environment: string;
      offset?: number | undefined;
      lines?: number | undefined;
      waitMs?: number | undefined;
    };
    body: undefined;
    result: EnvironmentLog;
  };
  /** End a run that uses an environment: `POST /v1/environments/{environment}/release`. */
  releaseEnvironment: { params: { environment: string }; body: ReleaseEnvironment; result: Environment };
  /** List or follow events: `GET /v1/events`. */
  listEvents: {
    params: {
      sandbox?: string | undefined;
      after?: number | undefined;
      newest?: number | undefined;
      limit?: number | undefined;
    };
    body: undefined;
    result: EventPage;
  };
  /** Preview garbage collection: `GET /v1/gc`. */
  previewGarbageCollection: { params: object; body: undefined; result: CollectorItemList };
  /** Collect garbage: `POST /v1/gc`. */
  collectGarbage: { params: { runs?: boolean | undefined }; body: undefined; result: CollectorItemList };
  /** Check that the daemon responds: `GET /v1/health`. */
  getHealth: { params: object; body: undefined; result: Health };
  /** List images: `GET /v1/images`. */
  listImages: {
    params: { after?: string | undefined; limit?: number | undefined };
    body: undefined;
    result: ImageList;
  };
  /** Create an image from a snapshot or another image: `POST /v1/images/compose`. */
  composeImage: { params: object; body: ComposeImage; result: Image };
  /** Import an image from a path on the daemon's host: `POST /v1/images/import`. */
  importImage: { params: object; body: ImportImage; result: Image };
  /** Pull an image from a registry: `POST /v1/images/pull`. */
  pullImage: { params: object; body: PullImage; result: Image };
  /** Import an image from the request body: `POST /v1/images/upload`. */
  uploadImage: { params: { tag?: string | undefined }; body: BodyInit; result: Image };
  /** Get an image: `GET /v1/images/{reference}`. */
  getImage: { params: { reference: string }; body: undefined; result: Image };
  /** Delete an image: `DELETE /v1/images/{reference}`. */
  deleteImage: { params: { reference: string }; body: undefined; result: undefined };
  /** Download an image as a file: `GET /v1/images/{reference}/download`. */
  downloadImage: { params: { reference: string }; body: undefined; result: undefined };
  /** Export an image to a path on the daemon's host: `POST /v1/images/{reference}/export`. */
  exportImage: { params: { reference: string }; body: ExportImage; result: ExportedImage };
  /** Get version, project and engine: `GET /v1/info`. */
  getInfo: { params: object; body: undefined; result: Info };
  /** List API keys: `GET /v1/keys`. */
  listKeys: { params: { after?: string | undefined; limit?: number | undefined }; body: undefined; result: KeyList };
  /** Create an API key: `POST /v1/keys`. */
  createKey: { params: object; body: CreateKey; result: CreatedKey };
  /** Revoke an API key: `DELETE /v1/keys/{id}`. */
  deleteKey: { params: { id: string }; body: undefined; result: undefined };
  /** Get this OpenAPI document: `GET /v1/openapi.json`. */
  getOpenApi: { params: object; body: undefined; result: Record<string, unknown> };
  /** List operations: `GET /v1/operations`. */
  listOperations: {
    params: { sandbox?: string | undefined; after?: string | undefined; limit?: number | undefined };
    body: undefined;
    result: OperationList;
  };
  /** Get an operation: `GET /v1/operations/{id}`. */
  getOperation: { params: { id: string; waitMs?: number | undefined }; body: undefined; result: Operation };
  /** List pools: `GET /v1/pools`. */
  listPools: { params: { after?: string | undefined; limit?: number | undefined }; body: undefined; result: PoolList };
  /** Create a pool of sandboxes: `POST /v1/pools`. */
  createPool: { params: object; body: CreatePool; result: Pool };
  /** Get a pool: `GET /v1/pools/{pool}`. */
  getPool: { params: { pool: string }; body: undefined; result: Pool };
  /** Remove a pool: `DELETE /v1/pools/{pool}`. */
  deletePool: { params: { pool: string }; body: undefined; result: undefined };
  /** Claim a sandbox of a pool: `POST /v1/pools/{pool}/claim`. */
  claimSandbox: { params: { pool: string }; body: ClaimRequest | undefined; result: SandboxInfo };
  /** Change the size of a pool: `PUT /v1/pools/{pool}/size`. */
  resizePool: { params: { pool: string }; body: ResizePool; result: Pool };
  /** List projects: `GET /v1/projects`. */
  listProjects: {
    params: { after?: string | undefined; limit?: number | undefined };
    body: undefined;
    result: ProjectList;
  };
  /** Create a project: `POST /v1/projects`. */
  createProject: { params: object; body: CreateProject; result: Project };
  /** Get a project: `GET /v1/projects/{project}`. */
  getProject: { params: { project: string }; body: undefined; result: Project };
  /** Remove a project: `DELETE /v1/projects/{project}`. */
  deleteProject: { params: { project: string }; body: undefined; result: undefined };
  /** Replace the limits of a project: `PUT /v1/projects/{project}/budgets`. */
  setProjectBudgets: { params: { project: string }; body: ProjectBudgets; result: Project };
  /** List unreadable records and damaged files: `GET /v1/quarantine`. */
  getQuarantine: { params: object; body: undefined; result: Quarantine };
  /** List sandboxes: `GET /v1/sandboxes`. */
  listSandboxes: {
    params: {
      state?: string | undefined;
      name?: string | undefined;
      label?: string[] | undefined;
      sort?: string | undefined;
      order?: string | undefined;
      after?: string | undefined;
      limit?: number | undefined;
    };
    body: undefined;
    result: SandboxPage;
  };
  /** Create a sandbox: `POST /v1/sandboxes`. */
  createSandbox: { params: object; body: CreateSandbox; result: SandboxInfo };
  /** Get a sandbox: `GET /v1/sandboxes/{id}`. */
  getSandbox: { params: { id: string }; body: undefined; result: SandboxInfo };
  /** Terminate a sandbox: `DELETE /v1/sandboxes/{id}`. */
  deleteSandbox: { params: { id: string }; body: undefined; result: SandboxInfo };
  /** Change properties of a sandbox: `PATCH /v1/sandboxes/{id}`. */
  updateSandbox: { params: { id: string }; body: UpdateSandbox; result: SandboxInfo };
  /** Take a snapshot of a sandbox: `POST /v1/sandboxes/{id}/checkpoint`. */
  checkpointSandbox: { params: { id: string }; body: CheckpointRequest; result: Snapshot };
  /** Set the automatic checkpoint policy: `POST /v1/sandboxes/{id}/checkpoints`. */
  setCheckpointPolicy: { params: { id: string }; body: SetCheckpoints; result: SandboxInfo };
  /** Clone a sandbox: `POST /v1/sandboxes/{id}/clone`. */
  cloneSandbox: { params: { id: string }; body: CloneRequest; result: Cloned };
  /** Replace the egress policy of a sandbox: `POST /v1/sandboxes/{id}/egress`. */
  setEgress: { params: { id: string }; body: SetEgress; result: SandboxInfo };
  /** Release the memory of a suspended sandbox: `POST /v1/sandboxes/{id}/evict`. */
  evictSandbox: { params: { id: string }; body: undefined; result: SandboxInfo };
  /** Run a command: `POST /v1/sandboxes/{id}/exec`. */
  execCommand: { params: { id: string }; body: ExecRequest; result: ExecResult };
  /** Postpone the deadline of a sandbox: `POST /v1/sandboxes/{id}/extend`. */
  extendSandbox: { params: { id: string }; body: ExtendSandbox; result: SandboxInfo };
  /** Read a file: `GET /v1/sandboxes/{id}/files`. */
  readFile: { params: { id: string; path: string }; body: undefined; result: undefined };
  /** Write a file: `PUT /v1/sandboxes/{id}/files`. */
  writeFile: {
    params: {
      id: string;
      path: string;
      mode?: string | undefined;
      user?: string | undefined;
      parents?: boolean | undefined;
      inPlace?: boolean | undefined;
      append?: boolean | undefined;
      offset?: number | undefined;
    };
    body: BodyInit;
    result: FileStat;
  };
  /** Delete a file or directory: `DELETE /v1/sandboxes/{id}/files`. */
  deleteFile: {
    params: { id: string; path: string; recursive?: boolean | undefined };
    body: undefined;
    result: undefined;
  };
  /** Get the extended attributes of a file: `GET /v1/sandboxes/{id}/files/attributes`. */
  getFileAttributes: { params: { id: string; path: string }; body: undefined; result: FileAttributes };
  /** Change the extended attributes of a file: `POST /v1/sandboxes/{id}/files/attributes`. */
  setFileAttributes: { params: { id: string }; body: SetFileAttributes; result: FileAttributes };
  /** Find files: `GET /v1/sandboxes/{id}/files/find`. */
  findFiles: {
    params: {
      id: string;
      path: string;
      name?: string | undefined;
      kind?: FileKind | undefined;
      ignoreCase?: boolean | undefined;
      depth?: number | undefined;
      limit?: number | undefined;
      maxEntries?: number | undefined;
      timeoutMs?: number | undefined;
    };
    body: undefined;
    result: FoundFiles;
  };
  /** Find lines in files: `GET /v1/sandboxes/{id}/files/grep`. */
  findLines: {
    params: {
      id: string;
      path: string;
      pattern: string;
      literal?: boolean | undefined;
      ignoreCase?: boolean | undefined;
      name?: string | undefined;
      binary?: boolean | undefined;
      depth?: number | undefined;
      limit?: number | undefined;
      maxEntries?: number | undefined;
      maxBytes?: number | undefined;
      timeoutMs?: number | undefined;
    };
    body: undefined;
    result: FoundLines;
  };
  /** List a directory: `GET /v1/sandboxes/{id}/files/list`. */
  listFiles: {
    params: {
      id: string;
      path: string;
      depth?: number | undefined;
      after?: string | undefined;
      limit?: number | undefined;
    };
    body: undefined;
    result: FileList;
  };
  /** Create a directory: `POST /v1/sandboxes/{id}/files/mkdir`. */
  createDirectory: { params: { id: string }; body: MakeDirectory; result: FileStat };
  /** Rename a file or directory: `POST /v1/sandboxes/{id}/files/rename`. */
  renameFile: { params: { id: string }; body: Rename; result: FileStat };
  /** Get the metadata of a file: `GET /v1/sandboxes/{id}/files/stat`. */
  statFile: { params: { id: string; path: string }; body: undefined; result: FileStat };
  /** Watch a directory for changes: `GET /v1/sandboxes/{id}/files/watch`. */
  watchFiles: {
    params: { id: string; path: string; recursive?: boolean | undefined };
    body: undefined;
    result: undefined;
  };
  /** Fork a sandbox: `POST /v1/sandboxes/{id}/fork`. */
  forkSandbox: { params: { id: string }; body: ForkRequest; result: Forked };
  /** Keep a sandbox awake: `POST /v1/sandboxes/{id}/holds`. */
  createHold: { params: { id: string }; body: HoldRequest; result: Hold };
  /** Release a hold: `DELETE /v1/sandboxes/{id}/holds/{hold}`. */
  deleteHold: { params: { id: string; hold: string }; body: undefined; result: SandboxInfo };
  /** Get the usage history of a sandbox: `GET /v1/sandboxes/{id}/metrics`. */
  getSandboxMetrics: {
    params: { id: string; since?: Time | undefined; until?: Time | undefined };
    body: undefined;
    result: UsageHistory;
  };
  /** Get the address of a port: `GET /v1/sandboxes/{id}/ports/{port}`. */
  getPort: { params: { id: string; port: number }; body: undefined; result: PortInfo };
  /** Create a browser link to a port: `POST /v1/sandboxes/{id}/ports/{port}/link`. */
  createPortLink: { params: { id: string; port: number }; body: LinkRequest; result: PortLink };
  /** List processes: `GET /v1/sandboxes/{id}/processes`. */
  listProcesses: {
    params: {
      id: string;
      after?: number | undefined;
      limit?: number | undefined;
      label?: string | undefined;
      pid?: number | undefined;
    };
    body: undefined;
    result: ProcessList;
  };
  /** Start a background process: `POST /v1/sandboxes/{id}/processes`. */
  startProcess: { params: { id: string }; body: StartProcess; result: ProcessStarted };
  /** Get a process: `GET /v1/sandboxes/{id}/processes/{process}`. */
  getProcess: { params: { id: string; process: number }; body: undefined; result: ProcessInfo };
  /** Kill a process and all its descendants: `POST /v1/sandboxes/{id}/processes/{process}/kill`. */
  killProcess: { params: { id: string; process: number }; body: undefined; result: Killed };
  /** Stream the output of a process: `GET /v1/sandboxes/{id}/processes/{process}/output`. */
  streamProcessOutput: {
    params: {
      id: string;
      process: number;
      stdout?: number | undefined;
      stderr?: number | undefined;
      follow?: boolean | undefined;
    };
    body: undefined;
    result: undefined;
  };
  /** Resize the terminal of a process: `POST /v1/sandboxes/{id}/processes/{process}/resize`. */
  resizeProcessTerminal: { params: { id: string; process: number }; body: TerminalSize; result: undefined };
  /** Send a signal to a process or its group: `POST /v1/sandboxes/{id}/processes/{process}/signal`. */
  signalProcess: { params: { id: string; process: number }; body: SignalRequest; result: undefined };
  /** Write to the standard input of a process: `POST /v1/sandboxes/{id}/processes/{process}/stdin`. */
  writeProcessStdin: { params: { id: string; process: number }; body: BodyInit; result: StdinWritten };
  /** Close the standard input of a process: `POST /v1/sandboxes/{id}/processes/{process}/stdin/close`. */
  closeProcessStdin: { params: { id: string; process: number }; body: undefined; result: undefined };
  /** Wait for a process to end: `GET /v1/sandboxes/{id}/processes/{process}/wait`. */
  waitForProcess: { params: { id: string; process: number }; body: undefined; result: ExitStatus };
  /** Replace a sandbox with its child: `POST /v1/sandboxes/{id}/promote`. */
  promoteSandbox: { params: { id: string }; body: PromoteRequest; result: Promoted };
  /** Open a terminal over a WebSocket: `GET /v1/sandboxes/{id}/pty`. */
  openTerminal: {
    params: {
      id: string;
      cmd?: string | undefined;
      rows?: number | undefined;
      cols?: number | undefined;
      user?: string | undefined;
      cwd?: string | undefined;
      term?: string | undefined;
      attach?: number | undefined;
      offset?: number | undefined;
    };
    body: undefined;
    result: undefined;
  };
  /** Recreate a terminated sandbox: `POST /v1/sandboxes/{id}/restart`. */
  restartSandbox: { params: { id: string }; body: RestartRequest; result: Restarted };
  /** Resume a suspended sandbox: `POST /v1/sandboxes/{id}/resume`. */
  resumeSandbox: { params: { id: string }; body: ResumeRequest | undefined; result: SandboxInfo };
  /** Set how many sleep images are kept: `POST /v1/sandboxes/{id}/retention`. */
  setRetention: { params: { id: string }; body: SetRetention; result: SandboxInfo };
  /** Rewind a sandbox to a snapshot: `POST /v1/sandboxes/{id}/rewind`. */
  rewindSandbox: { params: { id: string }; body: RewindRequest; result: Rewound };
  /** List services: `GET /v1/sandboxes/{id}/services`. */
  listServices: { params: { id: string }; body: undefined; result: ServiceList };
  /** Start a service: `POST /v1/sandboxes/{id}/services`. */
  startService: { params: { id: string }; body: StartService; result: Service };
  /** Get a service: `GET /v1/sandboxes/{id}/services/{service}`. */
  getService: { params: { id: string; service: string }; body: undefined; result: Service };
  /** Remove a service: `DELETE /v1/sandboxes/{id}/services/{service}`. */
  removeService: { params: { id: string; service: string }; body: undefined; result: undefined };
  /** List the events of a service: `GET /v1/sandboxes/{id}/services/{service}/events`. */
  listServiceEvents: {
    params: { id: string; service: string; after?: number | undefined; limit?: number | undefined };
    body: undefined;
    result: ServiceEvents;
  };
  /** Stream the output of a service: `GET /v1/sandboxes/{id}/services/{service}/output`. */
  streamServiceOutput: {
    params: {
      id: string;
      service: string;
      stdout?: number | undefined;
      stderr?: number | undefined;
      follow?: boolean | undefined;
    };
    body: undefined;
    result: undefined;
  };
  /** Stop a service: `POST /v1/sandboxes/{id}/services/{service}/stop`. */
  stopService: { params: { id: string; service: string }; body: StopService; result: Service };
  /** Suspend a sandbox: `POST /v1/sandboxes/{id}/suspend`. */
  suspendSandbox: { params: { id: string }; body: SuspendRequest | undefined; result: SandboxInfo };
  /** Terminate a sandbox: `POST /v1/sandboxes/{id}/terminate`. */
  terminateSandbox: { params: { id: string }; body: CommandRequest | undefined; result: SandboxInfo };
  /** Replace the time limits of a sandbox: `POST /v1/sandboxes/{id}/timeouts`. */
  setTimeouts: { params: { id: string }; body: SetTimeouts; result: SandboxInfo };
  /** Get the resource usage of a sandbox: `GET /v1/sandboxes/{id}/usage`. */
  getSandboxUsage: { params: { id: string }; body: undefined; result: Usage };
  /** Attach a volume to a sandbox: `POST /v1/sandboxes/{id}/volumes`. */
  attachVolume: { params: { id: string }; body: AttachVolume; result: SandboxInfo };
  /** Detach a volume from a sandbox: `DELETE /v1/sandboxes/{id}/volumes`. */
  detachVolume: { params: { id: string; path: string }; body: undefined; result: SandboxInfo };
  /** List watchers: `GET /v1/sandboxes/{id}/watchers`. */
  listWatchers: { params: { id: string }; body: undefined; result: WatcherList };
  /** Create a watcher: `POST /v1/sandboxes/{id}/watchers`. */
  createWatcher: { params: { id: string }; body: CreateWatcher; result: Watcher };
  /** Remove a watcher: `DELETE /v1/sandboxes/{id}/watchers/{watcher}`. */
  removeWatcher: { params: { id: string; watcher: number }; body: undefined; result: undefined };
  /** Take the changes of a watcher: `GET /v1/sandboxes/{id}/watchers/{watcher}/events`. */
  takeWatcherEvents: {
    params: { id: string; watcher: number; after?: number | undefined; limit?: number | undefined };
    body: undefined;
    result: WatcherEvents;
  };
  /** Explain the state of a sandbox: `GET /v1/sandboxes/{id}/why`. */
  explainSandbox: { params: { id: string }; body: undefined; result: Why };
  /** List secrets: `GET /v1/secrets`. */
  listSecrets: {
    params: { after?: string | undefined; limit?: number | undefined };
    body: undefined;
    result: SecretList;
  };
  /** Get a secret: `GET /v1/secrets/{secret}`. */
  getSecret: { params: { secret: string }; body: undefined; result: ProjectSecret };
  /** Set a secret: `PUT /v1/secrets/{secret}`. */
  setSecret: { params: { secret: string }; body: SetSecret; result: ProjectSecret };
  /** Remove a secret: `DELETE /v1/secrets/{secret}`. */
  deleteSecret: { params: { secret: string }; body: undefined; result: undefined };
  /** List snapshots: `GET /v1/snapshots`. */
  listSnapshots: {
    params: {
      source?: string | undefined;
      name?: string | undefined;
      after?: string | undefined;
      limit?: number | undefined;
    };
    body: undefined;
    result: SnapshotList;
  };
  /** Import a snapshot from a file: `POST /v1/snapshots/import`. */
  importSnapshot: {
    params: { labels?: string | undefined; expiresMs?: number | undefined };
    body: BodyInit;
    result: Snapshot;
  };
  /** Pull a snapshot from a registry: `POST /v1/snapshots/pull`. */
  pullSnapshot: { params: object; body: PullSnapshot; result: Snapshot };
  /** Get a snapshot: `GET /v1/snapshots/{id}`. */
  getSnapshot: { params: { id: string }; body: undefined; result: Snapshot };
  /** Delete a snapshot: `DELETE /v1/snapshots/{id}`. */
  deleteSnapshot: { params: { id: string; whenFree?: boolean | undefined }; body: undefined; result: undefined };
  /** Export a snapshot as a file: `GET /v1/snapshots/{id}/export`. */
  exportSnapshot: { params: { id: string }; body: undefined; result: undefined };
  /** Create a filesystem snapshot from a memory snapshot: `POST /v1/snapshots/{id}/files`. */
  extractSnapshotFiles: { params: { id: string }; body: undefined; result: Snapshot };
  /** Push a snapshot to a registry: `POST /v1/snapshots/{id}/push`. */
  pushSnapshot: { params: { id: string }; body: PushSnapshot; result: PushedSnapshot };
  /** List templates: `GET /v1/templates`. */
  listTemplates: {
    params: { after?: string | undefined; limit?: number | undefined };
    body: undefined;
    result: TemplateList;
  };
  /** Create a template, or move its tags: `POST /v1/templates`. */
  createTemplate: { params: object; body: CreateTemplate; result: Template };
  /** Get a template: `GET /v1/templates/{template}`. */
  getTemplate: { params: { template: string }; body: undefined; result: Template };
  /** Delete a template, or a tag of it: `DELETE /v1/templates/{template}`. */
  deleteTemplate: { params: { template: string; tag?: string | undefined }; body: undefined; result: undefined };
  /** Tag a template: `POST /v1/templates/{template}/tags`. */
  tagTemplate: { params: { template: string }; body: TagTemplate; result: Template };
  /** Get the lineage of sandboxes and snapshots: `GET /v1/tree`. */
  getTree: { params: { sandbox?: string | undefined; all?: boolean | undefined }; body: undefined; result: Tree };
  /** List what can be verified on disk: `GET /v1/verify`. */
  listStoredObjects: { params: object; body: undefined; result: StoredList };
  /** Verify an image, layer or saved state: `POST /v1/verify`. */
  verifyStoredObject: { params: object; body: Stored; result: Verified };
  /** List volumes: `GET /v1/volumes`. */
  listVolumes: {
    params: { after?: string | undefined; limit?: number | undefined };
    body: undefined;
    result: VolumeList;
  };
  /** Create a volume: `POST /v1/volumes`. */
  createVolume: { params: object; body: CreateVolume; result: Volume };
  /** Get a volume: `GET /v1/volumes/{volume}`. */
  getVolume: { params: { volume: string }; body: undefined; result: Volume };
  /** Delete a volume and its contents: `DELETE /v1/volumes/{volume}`. */
  deleteVolume: { params: { volume: string }; body: undefined; result: undefined };
  /** Read a file on a volume: `GET /v1/volumes/{volume}/files`. */
  readVolumeFile: { params: { volume: string; path: string }; body: undefined; result: undefined };
  /** Write a file on a volume: `PUT /v1/volumes/{volume}/files`. */
  writeVolumeFile: { params: { volume: string; path: string }; body: BodyInit; result: undefined };
  /** List a directory on a volume: `GET /v1/volumes/{volume}/files/list`. */
  listVolumeFiles: { params: { volume: string; path: string }; body: undefined; result: VolumeFiles };
  /** List webhooks: `GET /v1/webhooks`. */
  listWebhooks: {
    params: { after?: string | undefined; limit?: number | undefined };
    body: undefined;
    result: WebhookList;
  };
  /** Create a webhook: `POST /v1/webhooks`. */
  createWebhook: { params: object; body: CreateWebhook; result: Webhook };
  /** Delete a webhook: `DELETE /v1/webhooks/{id}`. */
  deleteWebhook: { params: { id: string }; body: undefined; result: undefined };
  /** Resend events to a webhook: `POST /v1/webhooks/{id}/replay`. */
  replayWebhook: { params: { id: string }; body: ReplayWebhook; result: Webhook };
}

/** Method and path of every operation. */
export const routes = {
  getMetrics: { method: "GET", path: "/metrics" },
  getAuthority: { method: "GET", path: "/v1/authority" },
  listBuilds: { method: "GET", path: "/v1/builds" },
  createBuild: { method: "POST", path: "/v1/builds", body: "application/json", idempotent: true },
  getBuild: { method: "GET", path: "/v1/builds/{build}" },
  cancelBuild: { method: "POST", path: "/v1/builds/{build}/cancel" },
  getBuildLog: { method: "GET", path: "/v1/builds/{build}/logs" },
  getBuildContext: { method: "GET", path: "/v1/contexts/{hash}" },
  uploadBuildContext: { method: "PUT", path: "/v1/contexts/{hash}", body: "application/x-tar" },
  diffFiles: { method: "GET", path: "/v1/diff" },
  ensureEnvironment: { method: "POST", path: "/v1/ensure", body: "application/json", idempotent: true },
  explainEnsure: { method: "POST", path: "/v1/ensure/explain", body: "application/json" },
  listEnvironments: { method: "GET", path: "/v1/environments" },
  getEnvironment: { method: "GET", path: "/v1/environments/{environment}" },
  removeEnvironment: { method: "DELETE", path: "/v1/environments/{environment}" },
  cancelEnvironment: { method: "POST", path: "/v1/environments/{environment}/cancel" },
  renewEnvironmentLease: {
    method: "POST",
    path: "/v1/environments/{environment}/leases/{lease}/renew",
    body: "application/json",
  },
  getEnvironmentLog: { method: "GET", path: "/v1/environments/{environment}/logs" },
  releaseEnvironment: { method: "POST", path: "/v1/environments/{environment}/release", body: "application/json" },
  listEvents: { method: "GET", path: "/v1/events" },
  previewGarbageCollection: { method: "GET", path: "/v1/gc" },
  collectGarbage: { method: "POST", path: "/v1/gc" },
  getHealth: { method: "GET", path: "/v1/health" },
  listImages: { method: "GET", path: "/v1/images" },
  composeImage: { method: "POST", path: "/v1/images/compose", body: "application/json" },
  importImage: { method: "POST", path: "/v1/images/import", body: "application/json" },
  pullImage: { method: "POST", path: "/v1/images/pull", body: "application/json" },
  uploadImage: { method: "POST", path: "/v1/images/upload", body: "application/x-tar" },
  getImage: { method: "GET", path: "/v1/images/{reference}" },
  deleteImage: { method: "DELETE", path: "/v1/images/{reference}" },
  downloadImage: { method: "GET", path: "/v1/images/{reference}/download" },
  exportImage: { method: "POST", path: "/v1/images/{reference}/export", body: "application/json" },
  getInfo: { method: "GET", path: "/v1/info" },
  listKeys: { method: "GET", path: "/v1/keys" },
  createKey: { method: "POST", path: "/v1/keys", body: "application/json", idempotent: true },
  deleteKey: { method: "DELETE", path: "/v1/keys/{id}" },
  getOpenApi: { method: "GET", path: "/v1/openapi.json" },
  listOperations: { method: "GET", path: "/v1/operations" },
  getOperation: { method: "GET", path: "/v1/operations/{id}" },
  listPools: { method: "GET", path: "/v1/pools" },
  createPool: { method: "POST", path: "/v1/pools", body: "application/json", idempotent: true },
  getPool: { method: "GET", path: "/v1/pools/{pool}" },
  deletePool: { method: "DELETE", path: "/v1/pools/{pool}" },
  claimSandbox: { method: "POST", path: "/v1/pools/{pool}/claim", body: "application/json", idempotent: true },
  resizePool: { method: "PUT", path: "/v1/pools/{pool}/size", body: "application/json" },
  listProjects: { method: "GET", path: "/v1/projects" },
  createProject: { method: "POST", path: "/v1/projects", body: "application/json" },
  getProject: { method: "GET", path: "/v1/projects/{project}" },
  deleteProject: { method: "DELETE", path: "/v1/projects/{project}" },
  setProjectBudgets: { method: "PUT", path: "/v1/projects/{project}/budgets", body: "application/json" },
  getQuarantine: { method: "GET", path: "/v1/quarantine" },
  listSandboxes: { method: "GET", path: "/v1/sandboxes" },
  createSandbox: { method: "POST", path: "/v1/sandboxes", body: "application/json", idempotent: true },
  getSandbox: { method: "GET", path: "/v1/sandboxes/{id}" },
  deleteSandbox: { method: "DELETE", path: "/v1/sandboxes/{id}" },
  updateSandbox: { method: "PATCH", path: "/v1/sandboxes/{id}", body: "application/json" },
  checkpointSandbox: {
    method: "POST",
    path: "/v1/sandboxes/{id}/checkpoint",
    body: "application/json",
    idempotent: true,
  },
  setCheckpointPolicy: { method: "POST", path: "/v1/sandboxes/{id}/checkpoints", body: "application/json" },
  cloneSandbox: { method: "POST", path: "/v1/sandboxes/{id}/clone", body: "application/json", idempotent: true },
  setEgress: { method: "POST", path: "/v1/sandboxes/{id}/egress", body: "application/json" },
  evictSandbox: { method: "POST", path: "/v1/sandboxes/{id}/evict" },
  execCommand: { method: "POST", path: "/v1/sandboxes/{id}/exec", body: "application/json" },
  extendSandbox: { method: "POST", path: "/v1/sandboxes/{id}/extend", body: "application/json" },
  readFile: { method: "GET", path: "/v1/sandboxes/{id}/files" },
  writeFile: { method: "PUT", path: "/v1/sandboxes/{id}/files", body: "application/octet-stream" },
  deleteFile: { method: "DELETE", path: "/v1/sandboxes/{id}/files" },
  getFileAttributes: { method: "GET", path: "/v1/sandboxes/{id}/files/attributes" },
  setFileAttributes: { method: "POST", path: "/v1/sandboxes/{id}/files/attributes", body: "application/json" },
  findFiles: { method: "GET", path: "/v1/sandboxes/{id}/files/find" },
  findLines: { method: "GET", path: "/v1/sandboxes/{id}/files/grep" },
  listFiles: { method: "GET", path: "/v1/sandboxes/{id}/files/list" },
  createDirectory: { method: "POST", path: "/v1/sandboxes/{id}/files/mkdir", body: "application/json" },
  renameFile: { method: "POST", path: "/v1/sandboxes/{id}/files/rename", body: "application/json" },
  statFile: { method: "GET", path: "/v1/sandboxes/{id}/files/stat" },
  watchFiles: { method: "GET", path: "/v1/sandboxes/{id}/files/watch" },
  forkSandbox: { method: "POST", path: "/v1/sandboxes/{id}/fork", body: "application/json", idempotent: true },
  createHold: { method: "POST", path: "/v1/sandboxes/{id}/holds", body: "application/json", idempotent: true },
  deleteHold: { method: "DELETE", path: "/v1/sandboxes/{id}/holds/{hold}" },
  getSandboxMetrics: { method: "GET", path: "/v1/sandboxes/{id}/metrics" },
  getPort: { method: "GET", path: "/v1/sandboxes/{id}/ports/{port}" },
  createPortLink: { method: "POST", path: "/v1/sandboxes/{id}/ports/{port}/link", body: "application/json" },
  listProcesses: { method: "GET", path: "/v1/sandboxes/{id}/processes" },
  startProcess: { method: "POST", path: "/v1/sandboxes/{id}/processes", body: "application/json" },
  getProcess: { method: "GET", path: "/v1/sandboxes/{id}/processes/{process}" },
  killProcess: { method: "POST", path: "/v1/sandboxes/{id}/processes/{process}/kill" },
  streamProcessOutput: { method: "GET", path: "/v1/sandboxes/{id}/processes/{process}/output" },
  resizeProcessTerminal: {
    method: "POST",
    path: "/v1/sandboxes/{id}/processes/{process}/resize",
    body: "application/json",
  },
  signalProcess: { method: "POST", path: "/v1/sandboxes/{id}/processes/{process}/signal", body: "application/json" },
  writeProcessStdin: {
    method: "POST",
    path: "/v1/sandboxes/{id}/processes/{process}/stdin",
    body: "application/octet-stream",
  },
  closeProcessStdin: { method: "POST", path: "/v1/sandboxes/{id}/processes/{process}/stdin/close" },
  waitForProcess: { method: "GET", path: "/v1/sandboxes/{id}/processes/{process}/wait" },
  promoteSandbox: { method: "POST", path: "/v1/sandboxes/{id}/promote", body: "application/json", idempotent: true },
  openTerminal: { method: "GET", path: "/v1/sandboxes/{id}/pty" },
  restartSandbox: { method: "POST", path: "/v1/sandboxes/{id}/restart", body: "application/json", idempotent: true },
  resumeSandbox: { method: "POST", path: "/v1/sandboxes/{id}/resume", body: "application/json" },
  setRetention: { method: "POST", path: "/v1/sandboxes/{id}/retention", body: "application/json" },
  rewindSandbox: { method: "POST", path: "/v1/sandboxes/{id}/rewind", body: "application/json", idempotent: true },
  listServices: { method: "GET", path: "/v1/sandboxes/{id}/services" },
  startService: { method: "POST", path: "/v1/sandboxes/{id}/services", body: "application/json" },
  getService: { method: "GET", path: "/v1/sandboxes/{id}/services/{service}" },
  removeService: { method: "DELETE", path: "/v1/sandboxes/{id}/services/{service}" },
  listServiceEvents: { method: "GET", path: "/v1/sandboxes/{id}/services/{service}/events" },
  streamServiceOutput: { method: "GET", path: "/v1/sandboxes/{id}/services/{service}/output" },
  stopService: { method: "POST", path: "/v1/sandboxes/{id}/services/{service}/stop", body: "application/json" },
  suspendSandbox: { method: "POST", path: "/v1/sandboxes/{id}/suspend", body: "application/json" },
  terminateSandbox: { method: "POST", path: "/v1/sandboxes/{id}/terminate", body: "application/json" },
  setTimeouts: { method: "POST", path: "/v1/sandboxes/{id}/timeouts", body: "application/json" },
  getSandboxUsage: { method: "GET", path: "/v1/sandboxes/{id}/usage" },
  attachVolume: { method: "POST", path: "/v1/sandboxes/{id}/volumes", body: "application/json" },
  detachVolume: { method: "DELETE", path: "/v1/sandboxes/{id}/volumes" },
  listWatchers: { method: "GET", path: "/v1/sandboxes/{id}/watchers" },
  createWatcher: { method: "POST", path: "/v1/sandboxes/{id}/watchers", body: "application/json" },
  removeWatcher: { method: "DELETE", path: "/v1/sandboxes/{id}/watchers/{watcher}" },
  takeWatcherEvents: { method: "GET", path: "/v1/sandboxes/{id}/watchers/{watcher}/events" },
  explainSandbox: { method: "GET", path: "/v1/sandboxes/{id}/why" },
  listSecrets: { method: "GET", path: "/v1/secrets" },
  getSecret: { method: "GET", path: "/v1/secrets/{secret}" },
  setSecret: { method: "PUT", path: "/v1/secrets/{secret}", body: "application/json" },
  deleteSecret: { method: "DELETE", path: "/v1/secrets/{secret}" },
  listSnapshots: { method: "GET", path: "/v1/snapshots" },
  importSnapshot: { method: "POST", path: "/v1/snapshots/import", body: "application/x-tar", idempotent: true },
  pullSnapshot: { method: "POST", path: "/v1/snapshots/pull", body: "application/json", idempotent: true },
  getSnapshot: { method: "GET", path: "/v1/snapshots/{id}" },
  deleteSnapshot: { method: "DELETE", path: "/v1/snapshots/{id}" },
  exportSnapshot: { method: "GET", path: "/v1/snapshots/{id}/export" },
  extractSnapshotFiles: { method: "POST", path: "/v1/snapshots/{id}/files", idempotent: true },
  pushSnapshot: { method: "POST", path: "/v1/snapshots/{id}/push", body: "application/json" },
  listTemplates: { method: "GET", path: "/v1/templates" },
  createTemplate: { method: "POST", path: "/v1/templates", body: "application/json" },
  getTemplate: { method: "GET", path: "/v1/templates/{template}" },
  deleteTemplate: { method: "DELETE", path: "/v1/templates/{template}" },
  tagTemplate: { method: "POST", path: "/v1/templates/{template}/tags", body: "application/json" },
  getTree: { method: "GET", path: "/v1/tree" },
  listStoredObjects: { method: "GET", path: "/v1/verify" },
  verifyStoredObject: { method: "POST", path: "/v1/verify", body: "application/json" },
  listVolumes: { method: "GET", path: "/v1/volumes" },
  createVolume: { method: "POST", path: "/v1/volumes", body: "application/json", idempotent: true },
  getVolume: { method: "GET", path: "/v1/volumes/{volume}" },
  deleteVolume: { method: "DELETE", path: "/v1/volumes/{volume}" },
  readVolumeFile: { method: "GET", path: "/v1/volumes/{volume}/files" },
  writeVolumeFile: { method: "PUT", path: "/v1/volumes/{volume}/files", body: "application/octet-stream" },
  listVolumeFiles: { method: "GET", path: "/v1/volumes/{volume}/files/list" },
  listWebhooks: { method: "GET", path: "/v1/webhooks" },
  createWebhook: { method: "POST", path: "/v1/webhooks", body: "application/json", idempotent: true },
  deleteWebhook: { method: "DELETE", path: "/v1/webhooks/{id}" },
  replayWebhook: { method: "POST", path: "/v1/webhooks/{id}/replay", body: "application/json" },
} as const;

/** Maps whose keys belong to the user, with the number of levels of such keys. */
export const maps: Readonly<Record<string, number>> = {
  annotations: 2,
  arguments: 1,
  doors: 1,
  env: 1,
  labels: 1,
  port_rules: 1,
  secret_values: 1,
  secrets: 1,
  tags: 1,
};
