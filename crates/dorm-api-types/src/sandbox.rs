//! Sandboxes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::caller::Caller;
use crate::checkpoints::Checkpoints;
use crate::egress::Egress;
use crate::key::{PortAccess, PortRule};
use crate::resources::Resources;
use crate::settings::{Hold, Kept, OnSuspendFailure, OnTimeout, OnUnrestorable, Wake};
use crate::text::Time;
use crate::volume::AttachedVolume;

/// State that the current or last run of a sandbox started with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Restored {
    /// Memory, processes and files.
    Memory,
    /// Only the files of a snapshot.
    Filesystem,
    /// Only its own files, as of a suspend that kept nothing else.
    Files,
    /// Nothing: it booted from its root image.
    None,
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
    /// Increases with every change of the sandbox's record. `"REVISION"` is the `ETag` for
    /// `If-Match`.
    #[serde(default)]
    pub revision: u64,
    /// Set if the run is alive but does not respond. The daemon keeps trying.
    #[serde(default)]
    pub unreachable: Option<Unreachable>,
    /// Set if the last attempt to suspend failed.
    #[serde(default)]
    pub suspend_failures: Option<SuspendFailures>,
    /// Generation: starts at 1 and increases with every resume and rewind.
    pub generation: u64,
    /// State that the current or last run started with.
    pub restored: Restored,
    /// Generation of the sleep image that the run started from. Null if it started from an image or
    /// a snapshot.
    pub restored_generation: Option<u64>,
    /// Digest of the image.
    pub image: String,
    /// Whether the first run started the entrypoint and command of the image, or continued from
    /// memory in which they ran. A sandbox that boots from its files starts them again.
    #[serde(default)]
    pub start: bool,
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
    /// Calls that resume the sandbox when it is suspended.
    #[serde(default)]
    pub wake: Wake,
    /// Who can reach the ports of the sandbox.
    pub port_access: PortAccess,
    /// `Host` header that programs behind the ports get; null for the host that the client named.
    pub port_host: Option<String>,
    /// Exceptions for single ports, by the number of the port.
    pub port_rules: BTreeMap<u16, PortRule>,
    /// Seconds from the start of a run to its deadline.
    pub timeout_secs: Option<f64>,
    /// Seconds from the last activity to the deadline.
    pub idle_timeout_secs: Option<f64>,
    /// Seconds from the start of a run that a call has woken to its deadline, in place of
    /// `timeout_secs`.
    #[serde(default)]
    pub timeout_after_wake_secs: Option<f64>,
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
    /// ID of the pool that the sandbox was made for, if a pool did.
    #[serde(default)]
    pub pool: Option<String>,
    /// Whether the sandbox still waits in that pool to be claimed.
    #[serde(default)]
    pub waits_in_pool: bool,
    /// Labels: arbitrary strings by key.
    pub labels: BTreeMap<String, String>,
    /// Annotations: notes of programs that use the sandbox on behalf of others, by the name of the
    /// program, then by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, BTreeMap<String, String>>,
    /// The current deadline. Only set while the sandbox runs.
    pub expires_at: Option<Time>,
    /// When the sandbox was created.
    pub created_at: Time,
    /// Caller that asked for it. Null if it was made for a pool, and if version 0.1.0 created it.
    #[serde(default)]
    pub created_by: Option<Caller>,
    /// When the sandbox was last used.
    pub last_active_at: Time,
    /// When the current run started. Only set while the sandbox runs.
    pub running_since: Option<Time>,
    /// When the sandbox last began to run, by a start or a resume.
    #[serde(default)]
    pub last_started_at: Option<Time>,
    /// The newest sleep image: the sandbox resumes from it, or falls back to it if its run is lost.
    pub sleep_image: Option<SleepImage>,
    /// The operation in progress, if there is one.
    pub operation: Option<CurrentOperation>,
    /// Why the sandbox is terminated or being terminated.
    pub cause: Option<Cause>,
    /// When the sandbox was terminated.
    pub terminated_at: Option<Time>,
    /// In the response to a command: whether it changed the sandbox. False if the sandbox was as
    /// requested already, perhaps because of another request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
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
    /// The part of the sandbox that it keeps.
    #[serde(default)]
    pub keeps: Kept,
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
    /// A failure: there was no saved state to return to, or the sandbox could not be suspended and
    /// its settings said to terminate it.
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
