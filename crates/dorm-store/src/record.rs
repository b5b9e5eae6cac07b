//! What is stored.

use std::collections::BTreeMap;

use dorm_lifecycle::{
    Actor, ApiKeyId, CaptureId, Digest, EventKind, OperationId, ProjectId, Resources, Sandbox, SandboxId, SnapshotId,
    SnapshotKind, Timestamp, VolumeId, WebhookId,
};

use crate::{ApiKeyRecord, ClockNote, Code, VolumeRecord};

/// A sandbox as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxRecord {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Counts the changes of this record, from 1. A change names the revision it was made from; 0 for a new record.
    pub revision: u64,
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OperationKind {
    /// Starts a first run.
    Create,
    /// Suspends.
    Suspend,
    /// Resumes.
    Resume,
    /// Takes a snapshot.
    Snapshot,
    /// Terminates.
    Terminate,
    /// Deletes a snapshot.
    DeleteSnapshot,
    /// Merges the layers of a filesystem snapshot.
    MergeLayers,
    /// Makes several sandboxes of one.
    Fork,
    /// Takes a sandbox back to a snapshot.
    Rewind,
    /// Puts a sandbox in the place of the one it came from.
    Promote,
    /// Takes in the file of a snapshot.
    Import,
    /// Attaches a volume.
    Attach,
    /// Detaches a volume.
    Detach,
}

impl OperationKind {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Create,
        Self::Suspend,
        Self::Resume,
        Self::Snapshot,
        Self::Terminate,
        Self::DeleteSnapshot,
        Self::MergeLayers,
        Self::Fork,
        Self::Rewind,
        Self::Promote,
        Self::Import,
        Self::Attach,
        Self::Detach,
    ];

    /// Its word in records and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Snapshot => "snapshot",
            Self::Terminate => "terminate",
            Self::DeleteSnapshot => "delete_snapshot",
            Self::MergeLayers => "merge_layers",
            Self::Fork => "fork",
            Self::Rewind => "rewind",
            Self::Promote => "promote",
            Self::Import => "import",
            Self::Attach => "attach",
            Self::Detach => "detach",
        }
    }
}

/// How an operation ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OperationResult {
    /// It did what it was asked to.
    Done,
    /// It did not, and undid what it had begun.
    Failed(FailureRecord),
}

/// Why something failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailureRecord {
    /// The kind.
    pub code: Code,
    /// A sentence.
    pub reason: String,
}

impl FailureRecord {
    /// A failure of this kind.
    pub fn new(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

/// One command in progress, or its record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationRecord {
    /// Its id.
    pub id: OperationId,
    /// What it does.
    pub kind: OperationKind,
    /// To which sandbox; none for one that only touches a snapshot.
    pub sandbox: Option<SandboxId>,
    /// Who asked for it.
    pub actor: Actor,
    /// When it began.
    pub began: Timestamp,
    /// When it is given up.
    pub deadline: Timestamp,
    /// The capture it writes, journalled before the first byte of it.
    pub capture: Option<CaptureId>,
    /// What a fork is to make; none for every other kind.
    pub fork: Option<ForkPlan>,
    /// What a promotion is to do; none for every other kind.
    pub promote: Option<PromotePlan>,
    /// When it ended and how; none while it is open.
    pub ended: Option<(Timestamp, OperationResult)>,
}

/// What a fork is to make, recorded before any of it is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForkPlan {
    /// The snapshot through which they are made.
    pub snapshot: SnapshotId,
    /// The sandboxes.
    pub children: Vec<SandboxId>,
    /// What becomes of the others when one cannot be made.
    pub together: Together,
}

/// What a promotion is to do, recorded before any of it is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PromotePlan {
    /// Who takes the place, and is terminated when its memory and files are there.
    pub child: SandboxId,
    /// The snapshot of the child to which the other is taken back.
    pub snapshot: SnapshotId,
}

/// What becomes of the children of a fork when one of them cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Together {
    /// None of them stays.
    AllOrNone,
    /// The others stay.
    Each,
}

/// What state a snapshot is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotStatus {
    /// It is being made.
    InProgress,
    /// It is durable and can be used.
    Completed,
    /// It could not be made; there is nothing on disk.
    Failed(FailureRecord),
    /// It is being deleted; it can no longer be used.
    Deleting,
}

impl SnapshotStatus {
    /// Its word in records and answers.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed(_) => "failed",
            Self::Deleting => "deleting",
        }
    }
}

/// A snapshot as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotRecord {
    /// Its id.
    pub id: SnapshotId,
    /// Whose it is.
    pub project: ProjectId,
    /// The sandbox it was taken of.
    pub source: SandboxId,
    /// That sandbox's generation.
    pub generation: u64,
    /// The snapshot that sandbox itself came from.
    pub parent: Option<SnapshotId>,
    /// What it holds.
    pub kind: SnapshotKind,
    /// Its files.
    pub capture: CaptureId,
    /// The image of its root filesystem.
    pub image: Digest,
    /// The layer on that image on which it stands: that of its source.
    pub layer: Option<CaptureId>,
    /// What its source was limited to, and whatever starts from it will be.
    pub resources: Resources,
    /// When it was asked for.
    pub created: Timestamp,
    /// Its size on disk in bytes; 0 until it is complete.
    pub bytes: u64,
    /// Whether its files and those of the sleep image that it was made of were one copy on the disk when it was made:
    /// damage to one is damage to the other.
    pub shares_data: bool,
    /// Free text, by key.
    pub labels: BTreeMap<String, String>,
    /// When it goes.
    pub removal: Removal,
    /// On whose behalf it was made.
    pub made_by: Maker,
    /// Its state.
    pub status: SnapshotStatus,
}

/// When a snapshot goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// When somebody deletes it.
    Asked,
    /// At this moment, or as soon afterwards as nobody uses it.
    At(Timestamp),
    /// As soon as nobody uses it.
    WhenFree,
}

/// On whose behalf a snapshot was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Maker {
    /// Somebody asked for it: it stays until somebody wants it gone.
    Request,
    /// The checkpoint policy of its source, whose ladder decides when it goes.
    Policy,
    /// It came in a file, from another host perhaps: of its source nothing else need be known here.
    Import,
}

impl Maker {
    /// Its word in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Policy => "policy",
            Self::Import => "import",
        }
    }
}

/// An event that is to be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEvent {
    /// Of which project.
    pub project: ProjectId,
    /// Of which sandbox.
    pub sandbox: SandboxId,
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// Who caused it.
    pub actor: Actor,
    /// As part of which operation.
    pub operation: Option<OperationId>,
    /// In which generation of the sandbox.
    pub generation: u64,
    /// A sentence.
    pub detail: Option<String>,
    /// How long the operation took that it ends; none for any other event.
    pub took: Option<std::time::Duration>,
    /// How many bytes it wrote to the disk; none for an event that is not about an image.
    pub bytes: Option<u64>,
}

/// An event that was recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventRecord {
    /// Its number: rises with every event of the whole store, so it serves as a cursor.
    pub number: u64,
    /// The event.
    pub event: NewEvent,
}

/// Where events are sent to.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookRecord {
    /// Its id.
    pub id: WebhookId,
    /// Whose events.
    pub project: ProjectId,
    /// Where to.
    pub url: String,
    /// What signs them. Not printed.
    pub secret: [u8; 32],
    /// Which kinds; empty for all.
    pub kinds: Vec<EventKind>,
    /// When it was made.
    pub created: Timestamp,
    /// The number of the last event that was delivered or passed over: what comes after it is still to be sent.
    pub delivered: u64,
}

impl std::fmt::Debug for WebhookRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookRecord")
            .field("id", &self.id)
            .field("url", &self.url)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}

/// What is changed together. Empty parts change nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Sandboxes, each with the revision the change was made from (0: it must not exist yet), each at most once.
    pub sandboxes: Vec<SandboxRecord>,
    /// Operations, written whole.
    pub operations: Vec<OperationRecord>,
    /// Snapshots, written whole.
    pub snapshots: Vec<SnapshotRecord>,
    /// Snapshots whose records go, after the others were written; those that are not there are left out.
    pub forgotten: Vec<SnapshotId>,
    /// Captures that nothing needs from this change on: their files are to be deleted. Adding one twice is once.
    pub discard: Vec<CaptureId>,
    /// Captures whose files have been deleted. One that is not to be discarded is passed over.
    pub discarded: Vec<CaptureId>,
    /// Webhooks, written whole.
    pub webhooks: Vec<WebhookRecord>,
    /// Webhooks whose records go; those that are not there are left out.
    pub removed_webhooks: Vec<WebhookId>,
    /// API keys, written whole.
    pub api_keys: Vec<ApiKeyRecord>,
    /// API keys whose records go; those that are not there are left out.
    pub removed_api_keys: Vec<ApiKeyId>,
    /// Volumes, written whole.
    pub volumes: Vec<VolumeRecord>,
    /// Volumes whose records go; those that are not there are left out.
    pub removed_volumes: Vec<VolumeId>,
    /// What is noted of the clocks, in place of what was noted before.
    pub clock: Option<ClockNote>,
    /// Events, numbered in this order.
    pub events: Vec<NewEvent>,
}
