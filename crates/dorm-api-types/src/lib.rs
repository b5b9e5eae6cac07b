#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

//! The wire types of the native API: the body of every request and every response.
//!
//! Names are snake_case. Times are RFC 3339 strings, durations are numbers of seconds (`*_secs`),
//! sizes are whole bytes (`*_bytes`). Requests reject unknown fields; clients ignore unknown fields
//! of responses, so that responses can grow. These types carry values and do not interpret them.
//! They know neither the server nor a client: the daemon and the command line both use them.

mod build;
mod caller;
mod checkpoints;
mod daemon;
mod diff;
mod egress;
mod environment;
mod event;
mod file;
mod fork;
mod image;
mod key;
mod operation;
mod pool;
mod problem;
mod process;
mod project;
mod remote;
mod resources;
mod rewind;
mod sandbox;
mod search;
mod secret;
mod service;
mod settings;
mod snapshot;
mod stream;
mod text;
mod tree;
mod usage;
mod volume;
mod why;

pub use build::{
    Build, BuildContext, BuildCopy, BuildFailure, BuildList, BuildLog, BuildLogLine, BuildLogStream, BuildState,
    BuildStep, BuildStepRequest, BuildStepState, BuildTemplate, CreateBuild, CreateTemplate, TagTemplate, Template,
    TemplateList, TemplateVersion,
};
pub use caller::{Caller, Credential};
pub use checkpoints::{CheckpointTaken, Checkpoints, CheckpointsRequest, SetCheckpoints};
pub use daemon::{
    Authority, CollectOptions, CollectorItem, CollectorItemList, CreateWebhook, DamagedFile, Quarantine,
    QuarantinedFile, QuarantinedRecord, ReplayWebhook, Stored, StoredList, Verified, Webhook, WebhookList,
};
pub use diff::{Diff, DiffChange, DiffEntry, DiffOrder};
pub use egress::{Egress, EgressDefault, EgressRule, EgressRules, HeaderRule, SetEgress};
pub use environment::{
    AttemptFailure, AttemptState, Considered, EnsureExplanation, EnsurePhase, EnsureRequest, Ensured, EnsuredBy,
    Environment, EnvironmentAttempt, EnvironmentLease, EnvironmentLifecycle, EnvironmentList, EnvironmentLog,
    EnvironmentLogLine, EnvironmentLogStream, EnvironmentSource, EnvironmentState, EnvironmentThread, GitSource,
    OnBroken, OnDrift, OnLeave, ParallelSetup, ReleaseEnvironment, RenewLease, RestoredFrom, Reuse, RunOutcome,
    SetupState, SetupStep, SetupStepView, SnapshotWhen, Verdict, Way,
};
pub use event::{Event, EventPage};
pub use file::{
    CreateWatcher, FileAttribute, FileAttributes, FileKind, FileList, FileStat, MakeDirectory, Rename,
    SetFileAttributes, WatchEvent, WatchKind, Watcher, WatcherEvent, WatcherEvents, WatcherList,
};
pub use fork::{CloneRequest, Cloned, ForkChild, ForkRequest, Forked, ForkedChild, OnPartialFailure};
pub use image::{ComposeImage, ExportImage, ExportedImage, ImageConfig, ImageSource, Pull, PullImage};
pub use key::{
    CreateKey, CreatedKey, Key, KeyForm, KeyList, KeyScope, LinkRequest, Port, PortAccess, PortLink, PortRule,
};
pub use operation::{Operation, OperationList, OperationStatus};
pub use pool::{ClaimRequest, CreatePool, Pool, PoolList, ResizePool};
pub use problem::Problem;
pub use process::{
    Encoding, ExecRequest, ExecResult, ExitStatus, Killed, LostOutput, OutputChunk, OutputStream, Process, ProcessList,
    ProcessStarted, Resize, SignalRequest, SignalTarget, StartProcess, Stdin, StdinWritten, TerminalMessage,
    TerminalSize,
};
pub use project::{CreateProject, Project, ProjectBudgets, ProjectList, ProjectUse};
pub use remote::{PullSnapshot, PushSnapshot, PushedSnapshot};
pub use resources::{Resources, ResourcesRequest};
pub use rewind::{Keep, PromoteRequest, Promoted, RestartRequest, Restarted, RewindRequest, Rewound};
pub use sandbox::{
    Cause, CauseKind, CurrentOperation, Residence, Restored, Sandbox, SandboxPage, SleepImage, State, SuspendFailures,
    Unreachable,
};
pub use search::{FoundFiles, FoundLine, FoundLines, SearchEnd, SearchLimit};
pub use secret::{ProjectSecret, SecretList, SetSecret};
pub use service::{
    HealthCheck, Restart, Service, ServiceEvent, ServiceEventKind, ServiceEvents, ServiceHealth, ServiceList,
    ServiceState, StartService, StopService,
};
pub use settings::{
    CommandRequest, CreateSandbox, ExtendSandbox, Hold, HoldRequest, IfBusy, Kept, OnSuspendFailure, OnTimeout,
    OnUnrestorable, ResizeRequest, ResumeRequest, SetRetention, SetTimeouts, SuspendRequest, UpdateSandbox, Wake,
};
pub use snapshot::{
    CheckpointRequest, Engine, Health, Image, ImageList, ImportImage, ImportProgress, ImportStage, Info,
    InheritedSettings, Maker, Snapshot, SnapshotKind, SnapshotList, SnapshotStatus,
};
pub use stream::{CommandEvent, OutputEvent};
pub use text::{Binary, NamedSecret, Secret, Text, Time};
pub use tree::{Tree, TreeKind, TreeNode};
pub use usage::{DiskIo, NetworkUsage, Usage, UsageHistory, UsageSample};
pub use volume::{
    AttachVolume, AttachedVolume, CreateVolume, FollowingVolumes, Volume, VolumeFile, VolumeFileKind, VolumeFiles,
    VolumeHealth, VolumeList, Writers,
};
pub use why::{Reason, Why};
