//! The wire types of the native API: the body of every request and every response.
//!
//! Names are snake_case. Times are RFC 3339 strings, durations are numbers of seconds (`*_secs`), sizes are whole bytes
//! (`*_bytes`). Requests reject unknown fields; clients ignore unknown fields of responses, so that responses can grow.
//! These types carry values and do not interpret them.

mod checkpoints;
mod daemon;
mod diff;
mod event;
mod file;
mod image;
mod key;
mod process;
mod remote;
mod sandbox;
mod snapshot;
mod text;
mod tree;
mod volume;
mod why;

pub use checkpoints::{CheckpointTaken, Checkpoints, CheckpointsRequest, SetCheckpoints};
pub use daemon::{
    Artefact, ArtefactList, CollectOptions, CreateWebhook, DamagedFile, Quarantine, QuarantinedFile, QuarantinedRecord,
    ReplayWebhook, Stored, StoredList, Verified, Webhook, WebhookList,
};
pub use diff::{Diff, DiffChange, DiffEntry};
pub use event::{Event, EventPage};
pub use file::{FileKind, FileList, FileStat, MakeDirectory, Rename, WatchEvent, WatchKind};
pub use image::{ComposeImage, ExportImage, ExportedImage, ImageConfig, ImageSource, Pull, PullImage};
pub use key::{CreateKey, CreatedKey, Key, KeyList, KeyScope, LinkRequest, Port, PortAccess, PortLink};
pub use process::{
    Encoding, ExecRequest, ExecResult, ExitStatus, LostOutput, OutputChunk, OutputStream, Process, ProcessList,
    ProcessStarted, Resize, SignalRequest, SignalTarget, StartProcess, Stdin, StdinWritten, TerminalMessage,
    TerminalSize,
};
pub use remote::{PullSnapshot, PushSnapshot, PushedSnapshot};
pub use sandbox::{
    Cause, CauseKind, CloneRequest, Cloned, CreateSandbox, DiskIo, Egress, ForkChild, ForkRequest, Forked, ForkedChild,
    Hold, HoldRequest, Keep, NetworkUsage, OnSuspendFailure, OnTimeout, OnUnrestorable, Operation, PromoteRequest,
    Promoted, Residence, Resources, ResourcesRequest, RestartRequest, Restarted, Restored, RewindRequest, Rewound,
    Sandbox, SandboxPage, SetKeeping, SetTimeouts, SleepImage, State, SuspendFailures, Unreachable, Usage,
};
pub use snapshot::{
    CheckpointRequest, Engine, Health, Image, ImageList, ImportImage, ImportProgress, ImportStage, Info, Maker,
    Snapshot, SnapshotKind, SnapshotList, SnapshotStatus,
};
pub use text::{NamedSecret, Secret, Text, Time};
pub use tree::{Tree, TreeKind, TreeNode};
pub use volume::{
    AttachVolume, AttachedVolume, CreateVolume, FollowingVolumes, Volume, VolumeFile, VolumeFileKind, VolumeFiles,
    VolumeHealth, VolumeList, Writers,
};
pub use why::{Reason, Why};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every error response.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorAnswer {
    /// What went wrong.
    pub error: ErrorBody,
}

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// A word for programs, with the same meaning in every answer: `invalid_argument` (400), `not_found` (404: what the
    /// request names), `conflict` (409), `gone` (410), `port_closed` (502), `unavailable` (503), `timed_out` (504),
    /// `no_room` (507: the host has too little disk or memory), and with 500 `failed`, `damaged` (a saved state or an
    /// image that this host should have is damaged or missing), `unreadable` (a record), `store_failed`, `internal`.
    pub code: String,
    /// A sentence for people: what was attempted, on what, and why it did not work.
    pub message: String,
    /// What the caller can do next; empty where the message says it.
    pub next_step: String,
}
