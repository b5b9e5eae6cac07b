//! Sandboxes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::checkpoints::{Checkpoints, CheckpointsRequest};
use crate::image::Pull;
use crate::key::PortAccess;
use crate::problem::Problem;
use crate::resources::{Resources, ResourcesRequest};
use crate::snapshot::Snapshot;
use crate::text::{NamedSecret, Secret, Time};
use crate::volume::{AttachVolume, AttachedVolume, FollowingVolumes};

/// Creates a sandbox. Exactly one of `image` and `snapshot` is required; every other field has a default.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateSandbox {
    /// Image to boot from: a tag, a digest, a digest prefix of at least 8 digits, or the name of an image in a
    /// registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When to contact the registry for the image. Default `missing`, which contacts only the registry that `image`
    /// names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// Start the entrypoint and command of the image as a process with the label `start`, and wait until it is ready if
    /// the image has a readiness command. If that fails, the sandbox is terminated. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub start: bool,
    /// ID of the snapshot to start from. A memory snapshot continues with its memory, processes, files and limits; a
    /// filesystem snapshot boots from its files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Name, unique among living sandboxes: 1 to 63 lower-case letters, digits and hyphens. A sandbox without a name is
    /// ephemeral.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Resource limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesRequest>,
    /// Where the sandbox may connect to. Default `public`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// Environment variables of every process. Their values are never returned.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Secrets that every process gets as environment variables. Their values are never returned, and clones and forks
    /// get them only if the request names them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, Secret>,
    /// Action at a deadline. Default: `suspend` for a named sandbox, `terminate` otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// Action if the sandbox cannot be suspended at a deadline. Default `keep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_suspend_failure: Option<OnSuspendFailure>,
    /// Whether the sandbox can be suspended. Default: whether it has a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspendable: Option<bool>,
    /// Whether traffic to a port resumes the sandbox when it is suspended. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_resume: Option<bool>,
    /// Who can reach the ports of the sandbox. Default: the setting of the daemon, which is `public` unless changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_access: Option<PortAccess>,
    /// Seconds from the start of a run to its deadline, independent of activity. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// Seconds from the last activity to the deadline. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_secs: Option<f64>,
    /// Longest time in seconds that a run may last, even if it is extended or held. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_secs: Option<f64>,
    /// How many sleep images are kept, 1 to 16: the newest, and older ones to fall back to. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_generations: Option<u32>,
    /// Action if no sleep image can be restored. Default `fail`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_unrestorable: Option<OnUnrestorable>,
    /// Automatic checkpoint policy. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<CheckpointsRequest>,
    /// Volumes to attach.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<AttachVolume>,
    /// Labels: arbitrary strings by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Where a sandbox may connect to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Egress {
    /// Public internet addresses, never private or link-local ones. Every name resolves.
    Public,
    /// Nothing.
    None,
    /// Only these IPv4 networks, such as `198.51.100.0/24`, and the public addresses of these host names: `example.com`
    /// for one name, `*.example.com` for every name below it, or `*` for every name. No other name resolves. A name
    /// resolves to a private address only if a network in the list contains that address.
    Allow(Vec<String>),
}

/// Action on a running sandbox at a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// It is terminated.
    Terminate,
    /// It is suspended.
    Suspend,
}

/// Action on a sandbox that cannot be suspended at its deadline. Attempts are repeated with
/// increasing intervals, up to 10 minutes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnSuspendFailure {
    /// It continues to run until an attempt succeeds.
    #[default]
    Keep,
    /// It is terminated after 11 consecutive failures, about 17 minutes after the first.
    Terminate,
}

/// Action if none of the sleep images of a sandbox can be restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnUnrestorable {
    /// It stays suspended, and the resume returns an error.
    Fail,
    /// It boots from its files, without memory and processes. No engine of this version supports this, and requests
    /// with it are refused.
    Filesystem,
    /// It boots from its root image, without memory and files.
    Fresh,
}

/// State that the current or last run of a sandbox started with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Restored {
    /// Memory, processes and files.
    Memory,
    /// Only files.
    Filesystem,
    /// Nothing: it booted from its root image.
    None,
}

/// Keeps a sandbox awake until it expires or is released.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Hold {
    /// ID of the hold.
    pub id: String,
    /// Reason given by the holder.
    pub reason: String,
    /// When the hold expires.
    pub until: Time,
}

/// Keeps a sandbox awake for a while.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// Seconds from now until the hold expires.
    pub ttl_secs: f64,
    /// Reason, shown in explanations of the sandbox's state. 1 to 200 characters.
    pub reason: String,
    /// ID of an existing hold to renew: it then expires when this one would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew: Option<String>,
}

/// Changes how many sleep images are kept. Fields that are left out do not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetRetention {
    /// How many sleep images are kept, 1 to 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_generations: Option<u32>,
    /// Action if no sleep image can be restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_unrestorable: Option<OnUnrestorable>,
}

/// Lifecycle state of a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The first run is starting.
    Pending,
    /// Running.
    Running,
    /// Paused while a snapshot is taken.
    Snapshotting,
    /// Being saved. The run has not been given up yet.
    Suspending,
    /// Saved on disk. Uses no CPU.
    Suspended,
    /// A new run is starting from the sleep image.
    Resuming,
    /// Its resources are being released.
    Terminating,
    /// Terminated. This is final.
    Terminated,
}

/// Where the memory of a sandbox is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Residence {
    /// In a run, or about to be.
    Running,
    /// Suspended, with the memory still held. Resuming is a thaw.
    Parked,
    /// Suspended, and only on disk. Resuming is a restore.
    Evicted,
    /// Nowhere: the sandbox is terminated or has not started.
    None,
}

/// A sandbox.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Sandbox {
    /// ID of the sandbox. It never changes and is never reused.
    pub id: String,
    /// Name, if the sandbox has one.
    pub name: Option<String>,
    /// Project that the sandbox belongs to.
    pub project: String,
    /// Lifecycle state.
    pub state: State,
    /// Where the memory of the sandbox is.
    pub residence: Residence,
    /// Whether the sandbox is paused because the disk of the host is almost full.
    pub paused_for_disk: bool,
    /// Increases with every change of the sandbox's record. `"REVISION"` is the `ETag` for `If-Match`.
    #[serde(default)]
    pub revision: u64,
    /// Set if the run is alive but does not respond. The daemon keeps trying.
    #[serde(default)]
    pub unreachable: Option<Unreachable>,
    /// Set if the last attempt to suspend failed.
    #[serde(default)]
    pub suspend_failures: Option<SuspendFailures>,
    /// Generation: starts at 1 and increases with every resume.
    pub generation: u64,
    /// State that the current or last run started with.
    pub restored: Restored,
    /// Generation of the sleep image that the run started from. Null if it booted or started from a snapshot.
    pub restored_generation: Option<u64>,
    /// Digest of the image.
    pub image: String,
    /// ID of the snapshot that the first run started from. Null if it booted from an image.
    pub snapshot: Option<String>,
    /// ID of the sandbox that this snapshot was taken from.
    pub source: Option<String>,
    /// ID of the snapshot that the sandbox was last rewound to.
    pub rewound_to: Option<String>,
    /// Resource limits.
    pub resources: Resources,
    /// Where the sandbox may connect to.
    pub egress: Egress,
    /// Names of the environment variables. Their values are never returned.
    pub env: Vec<String>,
    /// Names of the secrets. Their values are never returned.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Action at a deadline.
    pub on_timeout: OnTimeout,
    /// Action if the sandbox cannot be suspended at a deadline.
    #[serde(default)]
    pub on_suspend_failure: OnSuspendFailure,
    /// Whether the sandbox can be suspended.
    pub suspendable: bool,
    /// Whether traffic to a port resumes the sandbox when it is suspended.
    pub auto_resume: bool,
    /// Who can reach the ports of the sandbox.
    pub port_access: PortAccess,
    /// Seconds from the start of a run to its deadline.
    pub timeout_secs: Option<f64>,
    /// Seconds from the last activity to the deadline.
    pub idle_timeout_secs: Option<f64>,
    /// Longest time in seconds that a run may last.
    pub max_run_secs: Option<f64>,
    /// Holds that keep the sandbox awake.
    pub holds: Vec<Hold>,
    /// How many sleep images are kept.
    pub keep_generations: u32,
    /// Action if no sleep image can be restored.
    pub on_unrestorable: OnUnrestorable,
    /// Sleep images older than `sleep_image`, newest first.
    pub older_images: Vec<SleepImage>,
    /// Automatic checkpoint policy, if there is one.
    pub checkpoints: Option<Checkpoints>,
    /// Attached volumes.
    #[serde(default)]
    pub volumes: Vec<AttachedVolume>,
    /// Labels: arbitrary strings by key.
    pub labels: BTreeMap<String, String>,
    /// The current deadline. Only set while the sandbox runs.
    pub expires_at: Option<Time>,
    /// When the sandbox was created.
    pub created_at: Time,
    /// When the sandbox was last used.
    pub last_active_at: Time,
    /// When the current run started. Only set while the sandbox runs.
    pub running_since: Option<Time>,
    /// The newest sleep image: the sandbox resumes from it, or falls back to it if its run is lost.
    pub sleep_image: Option<SleepImage>,
    /// The operation in progress, if there is one.
    pub operation: Option<CurrentOperation>,
    /// Why the sandbox is terminated or being terminated.
    pub cause: Option<Cause>,
    /// When the sandbox was terminated.
    pub terminated_at: Option<Time>,
}

/// A run that is alive but does not respond.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Unreachable {
    /// When this was first noticed.
    pub since: Time,
    /// The attempt and its failure.
    pub reason: String,
}

/// Consecutive failed attempts to suspend a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SuspendFailures {
    /// Number of failures.
    pub count: u32,
    /// When the first of them happened.
    pub since: Time,
    /// Why the last one failed.
    pub reason: String,
    /// Earliest time of the next automatic attempt.
    pub next_attempt_at: Time,
}

/// The saved state of a suspended sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SleepImage {
    /// Generation that was saved.
    pub generation: u64,
    /// Size on disk in bytes.
    pub bytes: u64,
    /// When the sandbox was paused for the save.
    pub taken_at: Time,
}

/// The operation in progress. `GET /v1/operations/{id}` has more about it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CurrentOperation {
    /// ID of the operation. Its events carry it.
    pub id: String,
    /// When the operation is aborted.
    pub deadline: Time,
}

/// Why a sandbox was terminated.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    /// Kind of the cause.
    pub kind: CauseKind,
    /// Description of the failure, if the kind is `failed`.
    pub reason: Option<String>,
}

/// Kind of the cause for which a sandbox was terminated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// A request.
    Requested,
    /// A deadline.
    Timeout,
    /// A failure: there was no saved state to return to, or the sandbox could not be suspended and its settings said to
    /// terminate it.
    Failed,
}

/// A page of sandboxes, ordered by id.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SandboxPage {
    /// The sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// Cursor: `after` of the next page. Null on the last page.
    pub next: Option<String>,
}

/// Replaces the time limits. A limit that is left out or null is removed.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetTimeouts {
    /// Seconds from now to the deadline.
    pub timeout_secs: Option<f64>,
    /// Seconds from the last activity to the deadline.
    pub idle_timeout_secs: Option<f64>,
    /// Longest time in seconds that a run may last, from the start of the run.
    pub max_run_secs: Option<f64>,
}

/// Clones a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CloneRequest {
    /// Name of the clone. A clone without a name is ephemeral.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Secrets of the clone: null for the value of the source, or another value. Other secrets of the source are not
    /// copied.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, NamedSecret>,
    /// How the volumes of the source are attached to the clone. Default `same`.
    pub volumes: FollowingVolumes,
}

/// A clone and the snapshot it was created from. The snapshot is kept.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Cloned {
    /// The new sandbox.
    pub sandbox: Sandbox,
    /// The snapshot.
    pub snapshot: Snapshot,
}

/// Rewinds a sandbox to a snapshot.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RewindRequest {
    /// ID of the snapshot to rewind to.
    pub to: String,
    /// Seconds after which the snapshot of the state before the rewind is deleted automatically. Default: 7 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_secs: Option<f64>,
    /// Keep that snapshot until it is deleted, or not at all. Cannot be combined with `keep_secs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
}

/// Replaces a sandbox with its child.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PromoteRequest {
    /// Seconds after which the snapshot of the parent's previous state is deleted automatically. Default: 7 days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_secs: Option<f64>,
    /// Keep that snapshot until it is deleted, or not at all. Cannot be combined with `keep_secs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
}

/// How long a snapshot is kept, other than for a number of seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Until it is deleted by a request.
    Forever,
    /// Not at all.
    None,
}

/// A sandbox that was rewound.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Rewound {
    /// The running sandbox.
    pub sandbox: Sandbox,
    /// ID of the snapshot it was rewound to.
    pub to: String,
    /// ID of the snapshot of its state before the rewind, if that is kept.
    pub future: Option<String>,
}

/// Recreates a terminated sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RestartRequest {
    /// Name of the new sandbox. Default: the name of the terminated one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A sandbox that replaces a terminated one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Restarted {
    /// The new sandbox.
    pub sandbox: Sandbox,
    /// ID of the snapshot it was created from.
    pub snapshot: String,
}

/// A sandbox that was replaced with its child.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Promoted {
    /// The parent, running with the memory and files of the child.
    pub sandbox: Sandbox,
    /// ID of the child, which is terminated.
    pub child: String,
    /// ID of the snapshot of the parent's previous state, if that is kept.
    pub future: Option<String>,
}

/// Forks a sandbox: either `count` equal children, or those listed in `children`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForkRequest {
    /// Number of ephemeral children with the variables and labels of the source, 1 to 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Settings of each child, instead of a count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ForkChild>,
    /// Action if a child cannot be created. Default `keep`.
    pub on_partial_failure: OnPartialFailure,
    /// How the volumes of the source are attached to the children. Default `same`.
    pub volumes: FollowingVolumes,
}

/// Action if a child of a fork cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnPartialFailure {
    /// The other children are kept, and the response has an error for each that failed.
    #[default]
    Keep,
    /// No child is kept, and the call returns an error.
    RollBack,
}

/// Settings of one child of a fork.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForkChild {
    /// Name of the child. A child without a name is ephemeral.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Environment variables that override those of the source.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Labels that override those of the source.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Secrets of the child: null for the value of the source, or another value. Other secrets of the source are not
    /// copied.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, NamedSecret>,
}

/// The result of a fork.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Forked {
    /// The children, in the order of the request.
    pub children: Vec<ForkedChild>,
}

/// The result for one child: exactly one of `sandbox` and `error` is set.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ForkedChild {
    /// The new sandbox.
    pub sandbox: Option<Sandbox>,
    /// Why the child could not be created.
    pub error: Option<Problem>,
}

/// Resource usage of a sandbox on the host. All values are zero or null while it is only on disk.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// CPU time in seconds since the current run started.
    pub cpu_secs: f64,
    /// Host memory in use.
    pub memory_bytes: u64,
    /// Number of processes on the host.
    pub processes: u64,
    /// Disk space in use. Null if the disk of the sandbox has no size limit of its own on this host.
    pub disk_bytes: Option<u64>,
    /// Network traffic. Null without a network.
    pub network: Option<NetworkUsage>,
    /// Disk reads and writes. Left out if the host does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_io: Option<DiskIo>,
}

/// Network traffic of a sandbox with other hosts since its current run was prepared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkUsage {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Limit in bytes per second, separately for sending and receiving. Null for no limit.
    pub limit_bytes_per_second: Option<u64>,
}

/// Disk reads and writes of a sandbox since its current run started, and their limits.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskIo {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written. On a host with control groups version 1, delayed writes are not counted.
    pub written_bytes: u64,
    /// Read limit in bytes per second. Null for no limit.
    pub read_limit: Option<u64>,
    /// Write limit in bytes per second. Null for no limit.
    pub write_limit: Option<u64>,
    /// Limit of reads per second, and of writes per second. Null for no limit.
    pub operations_limit: Option<u64>,
}
