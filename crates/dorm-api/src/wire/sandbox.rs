//! Sandboxes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ErrorBody;
use super::checkpoints::{Checkpoints, CheckpointsRequest};
use super::image::Pull;
use super::key::PortAccess;
use super::snapshot::Snapshot;
use super::text::{NamedSecret, Secret, Time};
use super::volume::{AttachVolume, AttachedVolume, FollowingVolumes};

/// Asks for a sandbox. Exactly one of `image` and `snapshot` is given; what is left out takes its default.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateSandbox {
    /// The image it starts from, cold: a tag, a digest, or the first 8 or more digits of one, or the name of one in a
    /// registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When a registry is asked for the image. Default `missing`, which asks only the one that `image` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// Whether to start what the image is made to run, as a process with the label `start`, and to wait until it can be
    /// used, where the image says how to find that out. When that fails the sandbox is terminated. Default: no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub start: bool,
    /// The memory snapshot it goes on from. Image and resources come with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Its name, unique among the living: 1 to 63 lower-case letters, digits and hyphens. Ephemeral without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesRequest>,
    /// Where it may connect to. Default `public`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// Variables that every process in it gets. No answer shows their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Secrets, which every process gets as variables. No answer shows their values, and no other sandbox gets them
    /// unless they are named.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, Secret>,
    /// What a passed deadline does. Default: `suspend` with a name, `terminate` without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// What becomes of it when a passed deadline cannot suspend it. Default `keep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_suspend_failure: Option<OnSuspendFailure>,
    /// Whether it may be suspended. Default: whether it has a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspendable: Option<bool>,
    /// Whether traffic to its ports wakes it while it is suspended. Default: yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_resume: Option<bool>,
    /// Who may reach its ports. Default: as the daemon was started, `public` unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_access: Option<PortAccess>,
    /// Seconds from the start of a run to its deadline, whatever happens inside. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// Seconds from the last activity to the deadline. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_secs: Option<f64>,
    /// Seconds it may run without a break, whatever extends or holds it. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_secs: Option<f64>,
    /// How many sleep images are kept, 1 to 16: the newest, and those before it to fall back to. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_generations: Option<u32>,
    /// What happens when none of them can be restored. Default `fail`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_unrestorable: Option<OnUnrestorable>,
    /// Snapshots that are taken of it by themselves. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<CheckpointsRequest>,
    /// The volumes that are attached to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<AttachVolume>,
    /// Free text, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Limits that are asked for; each one left out takes its default, or that of the snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResourcesRequest {
    /// CPU time per second, in thousandths of one CPU. Default 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// Guest memory. Default 512 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// What may be written to the root filesystem. Default 4 GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Processes and threads. Default 512.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
}

/// Limits that hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Resources {
    /// CPU time per second, in thousandths of one CPU.
    pub cpu_millis: u32,
    /// Guest memory.
    pub memory_bytes: u64,
    /// What may be written to the root filesystem.
    pub disk_bytes: u64,
    /// Processes and threads.
    pub processes: u32,
}

/// Where a sandbox may connect to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Egress {
    /// The internet, never private or link-local addresses. Every name resolves.
    Public,
    /// Nothing.
    None,
    /// Only these IPv4 networks, such as `198.51.100.0/24`, and the public addresses of these host names, such as
    /// `example.com`, `*.example.com` for every name below it, or `*` for every name. No other name resolves. A name does
    /// not lead to a private address unless a network in the list contains it.
    Allow(Vec<String>),
}

/// What a passed deadline of a running sandbox does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// It ends.
    Terminate,
    /// It is suspended.
    Suspend,
}

/// What becomes of a sandbox that cannot be suspended at its deadline. It is tried again later and later, every 10
/// minutes in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnSuspendFailure {
    /// It goes on running, and is suspended as soon as that works.
    #[default]
    Keep,
    /// It is terminated after 11 failures in a row, about 17 minutes after the first.
    Terminate,
}

/// What a sandbox that cannot be brought back from any of its images becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnUnrestorable {
    /// It stays suspended, and the answer says why.
    Fail,
    /// It comes back with its files, without memory and processes. No engine of this version can: it is refused.
    Filesystem,
    /// It boots afresh from its root image, without memory and files.
    Fresh,
}

/// What the present or last run of a sandbox began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Restored {
    /// Memory, processes and files.
    Memory,
    /// Files only.
    Filesystem,
    /// Nothing: it booted from its root image.
    None,
}

/// Somebody's wish that a sandbox stays awake.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Hold {
    /// Its id.
    pub id: String,
    /// Why, in its holder's words.
    pub reason: String,
    /// When it ends by itself.
    pub until: Time,
}

/// Asks that a sandbox stays awake.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// For how many seconds from now.
    pub ttl_secs: f64,
    /// Why: shown to whoever asks why the sandbox is awake. 1 to 200 characters.
    pub reason: String,
    /// A hold that is there already, which then lasts as long as this one says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew: Option<String>,
}

/// Changes what is kept to bring a sandbox back. What is left out stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetKeeping {
    /// How many sleep images are kept, 1 to 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_generations: Option<u32>,
    /// What happens when none of them can be restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_unrestorable: Option<OnUnrestorable>,
}

/// Where a sandbox is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its first run is being started.
    Pending,
    /// It runs.
    Running,
    /// It is held still while a snapshot of it is taken.
    Snapshotting,
    /// It is being saved; nothing has been given up yet.
    Suspending,
    /// It is saved on disk and uses no CPU.
    Suspended,
    /// It is being brought back.
    Resuming,
    /// What it holds is being given back.
    Terminating,
    /// It is over.
    Terminated,
}

/// Where the memory of a sandbox is. A fact, not a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Residence {
    /// It runs, or is on its way there.
    Running,
    /// Suspended, and still held in memory without any CPU: resume is a thaw.
    Parked,
    /// Suspended, and only on disk: resume is a restore.
    Evicted,
    /// It is over, or has not begun.
    None,
}

/// A sandbox.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Sandbox {
    /// Its id, for ever.
    pub id: String,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Whose it is.
    pub project: String,
    /// Where it is in its life.
    pub state: State,
    /// Where its memory is.
    pub residence: Residence,
    /// Whether it is paused until there is room on the host's disk.
    pub paused_for_disk: bool,
    /// That its run lives and does not answer, if so. It is asked again until it does.
    #[serde(default)]
    pub unreachable: Option<Unreachable>,
    /// The suspends that have failed in a row, if the last one has.
    #[serde(default)]
    pub suspend_failures: Option<SuspendFailures>,
    /// Counts its runs from 1; one more with every resume.
    pub generation: u64,
    /// What its present or last run began with.
    pub restored: Restored,
    /// Which of its generations it came back at; none when it booted, or went on from a snapshot.
    pub restored_generation: Option<u64>,
    /// The digest of its image.
    pub image: String,
    /// The snapshot its first run went on from; none for one that was started cold.
    pub snapshot: Option<String>,
    /// The sandbox of which that snapshot was taken.
    pub source: Option<String>,
    /// The snapshot it was last taken back to.
    pub rewound_to: Option<String>,
    /// Its limits.
    pub resources: Resources,
    /// Where it may connect to.
    pub egress: Egress,
    /// The names of its variables; their values are never shown.
    pub env: Vec<String>,
    /// The names of its secrets; their values are never shown.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// What a passed deadline does.
    pub on_timeout: OnTimeout,
    /// What becomes of it when a passed deadline cannot suspend it.
    #[serde(default)]
    pub on_suspend_failure: OnSuspendFailure,
    /// Whether it may be suspended.
    pub suspendable: bool,
    /// Whether traffic wakes it.
    pub auto_resume: bool,
    /// Who may reach its ports.
    pub port_access: PortAccess,
    /// Seconds from the start of a run to its deadline.
    pub timeout_secs: Option<f64>,
    /// Seconds from the last activity to the deadline.
    pub idle_timeout_secs: Option<f64>,
    /// How long it may run without a break.
    pub max_run_secs: Option<f64>,
    /// Who wants it to stay awake.
    pub holds: Vec<Hold>,
    /// How many sleep images are kept.
    pub keep_generations: u32,
    /// What happens when none of them can be restored.
    pub on_unrestorable: OnUnrestorable,
    /// Images before `sleep_image`, the newest first.
    pub older_images: Vec<SleepImage>,
    /// Which snapshots are taken of it by themselves, if any.
    pub checkpoints: Option<Checkpoints>,
    /// The volumes that are attached to it.
    #[serde(default)]
    pub volumes: Vec<AttachedVolume>,
    /// Free text, by key.
    pub labels: BTreeMap<String, String>,
    /// When its time is over, as things stand; only while it runs.
    pub expires_at: Option<Time>,
    /// When it was created.
    pub created_at: Time,
    /// When something last used it.
    pub last_active_at: Time,
    /// Since when its present run goes on; only while it runs.
    pub running_since: Option<Time>,
    /// The saved state that is kept for it: what it wakes up from, or falls back to when its run is lost.
    pub sleep_image: Option<SleepImage>,
    /// The operation that is at work on it, if one is.
    pub operation: Option<Operation>,
    /// Why it is over, or about to be.
    pub cause: Option<Cause>,
    /// When it was over.
    pub terminated_at: Option<Time>,
}

/// A run that does not answer, although its process lives.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Unreachable {
    /// Since when, as far as it was noticed.
    pub since: Time,
    /// What was tried and how it failed.
    pub reason: String,
}

/// Suspends that have failed in a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SuspendFailures {
    /// How many.
    pub count: u32,
    /// When the first of them failed.
    pub since: Time,
    /// Why the last one failed.
    pub reason: String,
    /// Before this moment a passed deadline does not suspend it again.
    pub next_attempt_at: Time,
}

/// The saved state of a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SleepImage {
    /// The generation that was saved.
    pub generation: u64,
    /// Its size on disk.
    pub bytes: u64,
    /// When the sandbox stood still for it.
    pub taken_at: Time,
}

/// One command in progress.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Its id; the events it causes carry it.
    pub id: String,
    /// When it is given up.
    pub deadline: Time,
}

/// Why a sandbox is over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    /// The kind of reason.
    pub kind: CauseKind,
    /// What happened, for `failed`.
    pub reason: Option<String>,
}

/// The kind of reason for which a sandbox is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// Somebody asked for it.
    Requested,
    /// Its time was over.
    Timeout,
    /// There was nothing left to return to, or it could not be suspended and was not to be kept then.
    Failed,
}

/// Some sandboxes, in the order of their ids.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SandboxPage {
    /// The sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// `after` for the next page; none on the last one.
    pub next: Option<String>,
}

/// Replaces the time limits, which then count from now. One that is left out or null is no limit.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetTimeouts {
    /// Seconds from now to the deadline.
    pub timeout_secs: Option<f64>,
    /// Seconds from the last activity to the deadline.
    pub idle_timeout_secs: Option<f64>,
    /// Seconds it may run without a break, counted from the beginning of its run.
    pub max_run_secs: Option<f64>,
}

/// Asks for a clone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CloneRequest {
    /// The clone's name; ephemeral without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The secrets it gets: null for the source's own value. No other one follows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, NamedSecret>,
    /// What becomes of the source's volumes in it. Default `same`.
    pub volumes: FollowingVolumes,
}

/// A clone, and the snapshot it was made through, which stays.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Cloned {
    /// The new sandbox.
    pub sandbox: Sandbox,
    /// The snapshot.
    pub snapshot: Snapshot,
}

/// Asks for a sandbox to be taken back to a snapshot.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RewindRequest {
    /// The snapshot.
    pub to: String,
    /// After how many seconds the snapshot goes by itself of what the sandbox was until then. Default: 7 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_secs: Option<f64>,
    /// Something else than a time for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
}

/// Asks for a child to take the place of the sandbox it was made from.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PromoteRequest {
    /// After how many seconds the snapshot goes by itself of what that sandbox was until then. Default: 7 days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_secs: Option<f64>,
    /// Something else than a time for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
}

/// How long a snapshot is kept, if not for a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Until somebody deletes it.
    Forever,
    /// Not at all.
    None,
}

/// A sandbox that was taken back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Rewound {
    /// It, running.
    pub sandbox: Sandbox,
    /// The snapshot it was taken back to.
    pub to: String,
    /// The snapshot of what it was before, if that is kept.
    pub future: Option<String>,
}

/// Asks for a terminated sandbox to be made anew.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RestartRequest {
    /// Another name than it had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A sandbox that goes on where a terminated one was.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Restarted {
    /// The new sandbox.
    pub sandbox: Sandbox,
    /// The snapshot it was made from.
    pub snapshot: String,
}

/// A sandbox whose place a child of it has taken.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Promoted {
    /// It, running with the child's memory and files.
    pub sandbox: Sandbox,
    /// The child, which is terminated.
    pub child: String,
    /// The snapshot of what it was before, if that is kept.
    pub future: Option<String>,
}

/// Asks for a fork: as many children as `count` says, or those that `children` describes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForkRequest {
    /// How many ephemeral children, with the source's variables and labels; 1 to 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// What each child is to be, instead of a count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ForkChild>,
    /// Whether none is to stay when one cannot be made. Default: the others stay.
    pub all_or_none: bool,
    /// What becomes of the source's volumes in them. Default `same`.
    pub volumes: FollowingVolumes,
}

/// One child of a fork.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForkChild {
    /// Its name; ephemeral without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Variables for its processes, over those of the source.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Labels, over those of the source.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The secrets it gets: null for the source's own value. No other one follows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, NamedSecret>,
}

/// What a fork has made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Forked {
    /// The children, in the order they were asked for.
    pub children: Vec<ForkedChild>,
}

/// What became of one child: exactly one of the two is there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ForkedChild {
    /// The new sandbox.
    pub sandbox: Option<Sandbox>,
    /// Why it could not be made.
    pub error: Option<ErrorBody>,
}

/// What a sandbox uses on the host now; nothing of one that is only on disk.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// CPU time since its present run began.
    pub cpu_secs: f64,
    /// Host memory in use.
    pub memory_bytes: u64,
    /// Host processes.
    pub processes: u64,
    /// What of its disk is taken; none where its disk has no size of its own on this host.
    pub disk_bytes: Option<u64>,
    /// Its traffic; none without a network.
    pub network: Option<NetworkUsage>,
    /// What it has read from its disk and written to it. Left out where that is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_io: Option<DiskIo>,
}

/// The traffic of a sandbox with other hosts since its present run was prepared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkUsage {
    /// What it has sent.
    pub sent_bytes: u64,
    /// What it has received.
    pub received_bytes: u64,
    /// How many bytes a second it may send, and receive; none for any number.
    pub limit_bytes_per_second: Option<u64>,
}

/// How a sandbox uses its disk since its present run began, and how fast it may.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskIo {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written. A host with control groups of version 1 does not count what is written back later.
    pub written_bytes: u64,
    /// Bytes that may be read a second; none for any number.
    pub read_limit: Option<u64>,
    /// Bytes that may be written a second; none for any number.
    pub write_limit: Option<u64>,
    /// Reads a second, and writes a second; none for any number.
    pub operations_limit: Option<u64>,
}
