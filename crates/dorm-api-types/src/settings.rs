//! Settings of sandboxes: those of a new one, and those that can be changed later.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::checkpoints::CheckpointsRequest;
use crate::egress::Egress;
use crate::image::Pull;
use crate::key::{PortAccess, PortRule};
use crate::resources::ResourcesRequest;
use crate::text::{Secret, Time};
use crate::volume::AttachVolume;

/// Creates a sandbox. Exactly one of `image`, `snapshot` and `template` is required; every other
/// field has a default.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateSandbox {
    /// Image to boot from: a tag, a digest, a digest prefix of at least 8 digits, or the name of an
    /// image in a registry. Or the name of a snapshot to start from, as with `snapshot`; a tag of
    /// an image goes before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When to contact the registry for the image. Default `missing`, which contacts only the
    /// registry that `image` names. With `always`, `image` is no name of a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// Start the entrypoint and command of the image as a process with the label `start`, and wait
    /// until it is ready if the image has a readiness command. If that fails, the sandbox is
    /// terminated. Default: as for the template; for a filesystem snapshot, whether its `inherited`
    /// settings say so; otherwise false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<bool>,
    /// ID of the snapshot to start from. A memory snapshot continues with its memory, processes,
    /// files and limits; a filesystem snapshot boots from its files. `egress`, `port_access`,
    /// `port_host`, `port_rules` and `start` are by default those of its `inherited` settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Template that the sandbox starts from: `NAME` or `NAME:TAG`. Other fields override its
    /// settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Name, unique among living sandboxes: 1 to 63 lower-case letters, digits and hyphens. A
    /// sandbox without a name is ephemeral.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Resource limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesRequest>,
    /// Where the sandbox may connect to. Default: as for the snapshot, otherwise `public`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// Environment variables of every process. Their values are never returned.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Secrets that every process gets as environment variables. Their values are never returned,
    /// and clones and forks get them only if the request names them.
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
    /// Calls that resume the sandbox when it is suspended. Default `traffic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Wake>,
    /// How many seconds to wait for room, in turn with others, if running sandboxes use up a
    /// budget. Default 0: the request fails at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait_secs: Option<f64>,
    /// Whether the response comes when the sandbox runs. If false, it comes as soon as the sandbox
    /// is recorded, with status 202, and `operation` of the sandbox names its start. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
    /// Who can reach the ports of the sandbox. Default: as for the snapshot, otherwise the setting
    /// of the daemon, which is `public` unless changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_access: Option<PortAccess>,
    /// `Host` header that programs behind the ports get, such as `localhost:{port}`, in which
    /// `{port}` stands for the number of the port; empty for the host that the client named.
    /// Default: as for the snapshot, otherwise empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_host: Option<String>,
    /// Exceptions for single ports, by the number of the port: at most 64. Default: as for the
    /// snapshot, otherwise none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_rules: Option<BTreeMap<u16, PortRule>>,
    /// Seconds from the start of a run to its deadline, independent of activity. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// Seconds from the last activity to the deadline. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_secs: Option<f64>,
    /// Seconds from the start of a run that a call has woken to its deadline, in place of
    /// `timeout_secs`. Default: the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_after_wake_secs: Option<f64>,
    /// Longest time in seconds that a run may last, even if it is extended or held. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_secs: Option<f64>,
    /// How many sleep images are kept, 1 to 16: the newest, and older ones to fall back to. Default
    /// 1.
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
    /// Annotations: notes of programs that use the sandbox on behalf of others, by the name of the
    /// program, then by key. Sandboxes cannot be selected by them. At most 64 KiB in total.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, BTreeMap<String, String>>,
}

/// Calls that resume a suspended sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wake {
    /// None: only `POST /v1/sandboxes/{id}/resume` does.
    Never,
    /// Connections to its ports.
    #[default]
    Traffic,
    /// Connections to its ports, and requests for its processes, terminals and files.
    Any,
}

/// Action of a command while another operation on the sandbox is in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfBusy {
    /// The command waits until that operation has ended.
    #[default]
    Wait,
    /// The command fails.
    Refuse,
}

/// How a command is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CommandRequest {
    /// Whether the response comes when the command has ended. If false, it comes as soon as the
    /// operation is recorded, with status 202, and `operation` of the sandbox names it. Default:
    /// true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
    /// Action while another operation is in progress. Default `wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_busy: Option<IfBusy>,
}

/// Suspends a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SuspendRequest {
    /// The part of the sandbox that is kept. Default `memory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<Kept>,
    /// Whether the response comes when the command has ended. If false, it comes as soon as the
    /// operation is recorded, with status 202, and `operation` of the sandbox names it. Default:
    /// true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
    /// Action while another operation is in progress. Default `wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_busy: Option<IfBusy>,
}

/// The part of a sandbox that a suspend keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Memory, processes and files: the sandbox continues where it stopped.
    #[default]
    Memory,
    /// Files: the sandbox boots from them. Older sleep images are deleted.
    Files,
}

/// Resumes a sandbox.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResumeRequest {
    /// Seconds from now to the deadline, which replace `timeout_secs` of the sandbox. If it runs
    /// already, its deadline is postponed and never brought forward. Default: the limit of the
    /// sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// How many seconds to wait for room, in turn with others, if running sandboxes use up a
    /// budget. Default 0: the request fails at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait_secs: Option<f64>,
    /// Whether the response comes when the sandbox runs. If false, it comes as soon as the
    /// operation is recorded, with status 202, and `operation` of the sandbox names it. Default:
    /// true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
    /// Action while another operation is in progress. Default `wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_busy: Option<IfBusy>,
}

/// Changes properties of a sandbox, all of them or none. Fields that are left out do not change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateSandbox {
    /// Name, unique among living sandboxes. A sandbox that had none can be suspended from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Action at a deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// Calls that resume the sandbox when it is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Wake>,
    /// Who can reach the ports of the sandbox. Open connections stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_access: Option<PortAccess>,
    /// `Host` header that programs behind the ports get, such as `localhost:{port}`; an empty text
    /// for the host that the client named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_host: Option<String>,
    /// Exceptions for single ports to set, or without any field to remove. Other exceptions stay.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub port_rules: BTreeMap<u16, PortRule>,
    /// Labels to set, or with null to remove. Other labels stay.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set, or with null to remove, by the name of the program. Other annotations
    /// stay.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// New limits of CPU and memory, at once if the sandbox runs. They cannot be changed together
    /// with other properties.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResizeRequest>,
}

/// New limits of CPU and memory of a sandbox. A limit that is left out does not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResizeRequest {
    /// CPU limit in thousandths of a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// Guest memory in bytes. It cannot be less than the sandbox uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// Postpones the deadline of a sandbox.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendSandbox {
    /// Seconds from now until the earliest deadline that `timeout_secs` of the sandbox may set.
    pub timeout_secs: f64,
}

/// Action on a running sandbox at a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// It is terminated.
    Terminate,
    /// It is suspended.
    Suspend,
    /// It is suspended, and only its files are kept.
    SuspendFiles,
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
    /// It boots from its files, without memory and processes. No engine of this version supports
    /// this, and requests with it are refused.
    Filesystem,
    /// It boots from its root image, without memory and files.
    Fresh,
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

/// Replaces the time limits. A limit that is left out or null is removed.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetTimeouts {
    /// Seconds from now to the deadline.
    pub timeout_secs: Option<f64>,
    /// Seconds from the last activity to the deadline.
    pub idle_timeout_secs: Option<f64>,
    /// Seconds from the start of a run that a call has woken to its deadline, in place of
    /// `timeout_secs`.
    pub timeout_after_wake_secs: Option<f64>,
    /// Longest time in seconds that a run may last, from the start of the run.
    pub max_run_secs: Option<f64>,
}
