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
mod operation;
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
    CollectOptions, CollectorItem, CollectorItemList, CreateWebhook, DamagedFile, Quarantine, QuarantinedFile,
    QuarantinedRecord, ReplayWebhook, Stored, StoredList, Verified, Webhook, WebhookList,
};
pub use diff::{Diff, DiffChange, DiffEntry, DiffOrder};
pub use event::{Event, EventPage};
pub use file::{FileKind, FileList, FileStat, MakeDirectory, Rename, WatchEvent, WatchKind};
pub use image::{ComposeImage, ExportImage, ExportedImage, ImageConfig, ImageSource, Pull, PullImage};
pub use key::{CreateKey, CreatedKey, Key, KeyList, KeyScope, LinkRequest, Port, PortAccess, PortLink};
pub use operation::{Operation, OperationList, OperationStatus};
pub use process::{
    Encoding, ExecRequest, ExecResult, ExitStatus, LostOutput, OutputChunk, OutputStream, Process, ProcessList,
    ProcessStarted, Resize, SignalRequest, SignalTarget, StartProcess, Stdin, StdinWritten, TerminalMessage,
    TerminalSize,
};
pub use remote::{PullSnapshot, PushSnapshot, PushedSnapshot};
pub use sandbox::{
    Cause, CauseKind, CloneRequest, Cloned, CreateSandbox, CurrentOperation, DiskIo, Egress, ForkChild, ForkRequest,
    Forked, ForkedChild, Hold, HoldRequest, Keep, NetworkUsage, OnSuspendFailure, OnTimeout, OnUnrestorable,
    PromoteRequest, Promoted, Residence, Resources, ResourcesRequest, RestartRequest, Restarted, Restored,
    RewindRequest, Rewound, Sandbox, SandboxPage, SetRetention, SetTimeouts, SleepImage, State, SuspendFailures,
    Unreachable, Usage,
};
pub use snapshot::{
    CheckpointRequest, Engine, Health, Image, ImageList, ImportImage, ImportProgress, ImportStage, Info, Maker,
    Snapshot, SnapshotKind, SnapshotList, SnapshotStatus,
};
pub use text::{Binary, NamedSecret, Secret, Text, Time};
pub use tree::{Tree, TreeKind, TreeNode};
pub use volume::{
    AttachVolume, AttachedVolume, CreateVolume, FollowingVolumes, Volume, VolumeFile, VolumeFileKind, VolumeFiles,
    VolumeHealth, VolumeList, Writers,
};
pub use why::{Reason, Why};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error in the format of RFC 9457. Every response that is not a success has this body, and errors inside streams and
/// other responses have the same members.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `/errors/` followed by the code: a stable identifier, which cannot be fetched.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// The failure and its reason, as a sentence for people.
    pub detail: String,
    /// The code, for programs. It has the same meaning in every response; docs/reference/errors.md lists all codes.
    pub code: String,
    /// The next step for the caller, for people. Empty if `detail` says everything.
    pub next_step: String,
}
