//! The records of a store.

use std::collections::BTreeMap;

use dorm_lifecycle::{
    ApiKeyId, BuildId, Caller, Digest, EnvironmentId, EventKind, InheritedSettings, Initiator, OperationId, PoolId,
    ProjectId, RequestId, Resources, Sandbox, SandboxId, SavedStateId, SnapshotId, SnapshotKind, SnapshotName,
    TemplateId, Timestamp, VolumeId, WebhookId,
};

use crate::{
    ApiKeyRecord, BuildRecord, ClockNote, EnvironmentRecord, FailureRecord, PoolRecord, ProjectRecord, RequestRecord,
    TemplateRecord, VolumeRecord,
};

/// A sandbox as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxRecord {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Counts the changes of this record, from 1. A change names the revision it was made from; 0
    /// for a new record.
    pub revision: u64,
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OperationKind {
    /// Starts the first run of a sandbox.
    Create,
    /// Suspends a sandbox.
    Suspend,
    /// Resumes a sandbox.
    Resume,
    /// Takes a snapshot.
    Snapshot,
    /// Terminates a sandbox.
    Terminate,
    /// Deletes a snapshot.
    DeleteSnapshot,
    /// Merges the layers of a filesystem snapshot.
    MergeLayers,
    /// Forks a sandbox into several.
    Fork,
    /// Rewinds a sandbox to a snapshot.
    Rewind,
    /// Promotes a sandbox: it takes the place of the one it came from.
    Promote,
    /// Imports the file of a snapshot.
    Import,
    /// Attaches a volume.
    Attach,
    /// Detaches a volume.
    Detach,
    /// Changes the egress policy of a sandbox.
    Egress,
    /// Changes the limits of CPU and memory of a sandbox.
    Resize,
}

impl OperationKind {
    /// Every kind.
    pub const ALL: [Self; 15] = [
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
        Self::Egress,
        Self::Resize,
    ];

    /// Its word in records and responses.
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
            Self::Egress => "egress",
            Self::Resize => "resize",
        }
    }
}

/// How an operation ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OperationResult {
    /// It succeeded.
    Done,
    /// It failed, and its partial work was undone.
    Failed(FailureRecord),
}

/// An operation, open or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationRecord {
    /// Its id.
    pub id: OperationId,
    /// Its kind.
    pub kind: OperationKind,
    /// The project it belongs to.
    pub project: ProjectId,
    /// The sandbox it acts on; none for one that only touches a snapshot.
    pub sandbox: Option<SandboxId>,
    /// Its initiator.
    pub initiator: Initiator,
    /// The caller that asked for it; none for one that no request asked for, and if that is not
    /// known.
    pub caller: Option<Caller>,
    /// When it began.
    pub began: Timestamp,
    /// When it times out.
    pub deadline: Timestamp,
    /// The saved state it writes, journalled before the first byte of it.
    pub saved_state: Option<SavedStateId>,
    /// The plan of a fork; none for every other kind.
    pub fork: Option<ForkPlan>,
    /// The plan of a promotion; none for every other kind.
    pub promote: Option<PromotePlan>,
    /// When it ended and how; none while it is open.
    pub ended: Option<(Timestamp, OperationResult)>,
}

impl OperationRecord {
    /// Returns the saved state that it is writing; none once it has ended.
    pub fn writes(&self) -> Option<&SavedStateId> {
        self.saved_state.as_ref().filter(|_| self.ended.is_none())
    }
}

/// The plan of a fork, recorded before any child is created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForkPlan {
    /// The snapshot from which the children start.
    pub snapshot: SnapshotId,
    /// The children.
    pub children: Vec<SandboxId>,
    /// How a partial failure is handled.
    pub on_partial_failure: OnPartialFailure,
}

/// The plan of a promotion, recorded before it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PromotePlan {
    /// The sandbox that takes the place. It is terminated when its memory and files are there.
    pub child: SandboxId,
    /// The snapshot of the child to which the other sandbox is rewound.
    pub snapshot: SnapshotId,
}

/// How a fork handles the other children when one of them cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnPartialFailure {
    /// Roll back: no child stays.
    RollBack,
    /// Keep: the other children stay.
    Keep,
}

/// The status of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotStatus {
    /// It is being made.
    InProgress,
    /// It is durable and can be used.
    Completed,
    /// It could not be made; nothing of it is on disk.
    Failed(FailureRecord),
    /// It is being deleted; it can no longer be used.
    Deleting,
}

impl SnapshotStatus {
    /// Its word in records and responses.
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
    /// The project it belongs to.
    pub project: ProjectId,
    /// The name under which it serves as an image.
    pub name: Option<SnapshotName>,
    /// The sandbox it was taken of.
    pub source: SandboxId,
    /// The generation of that sandbox.
    pub generation: u64,
    /// The snapshot from which that sandbox itself was created.
    pub parent: Option<SnapshotId>,
    /// Its kind.
    pub kind: SnapshotKind,
    /// The saved state with its files.
    pub saved_state: SavedStateId,
    /// The image of its root file system.
    pub image: Digest,
    /// The layer on that image on which it stands: the layer of its source.
    pub layer: Option<SavedStateId>,
    /// The resource limits of its source, which are also those of each sandbox that starts from it.
    pub resources: Resources,
    /// The settings that a sandbox made from it inherits from its source; none if they are not
    /// known, as of an imported snapshot.
    pub inherited: Option<InheritedSettings>,
    /// When it was asked for.
    pub created: Timestamp,
    /// Its size on disk in bytes; 0 until it is complete.
    pub bytes: u64,
    /// Whether its files and those of the sleep image it was made from shared one copy on disk when
    /// it was made: damage to one is then damage to the other.
    pub shares_data: bool,
    /// Free text, by key.
    pub labels: BTreeMap<String, String>,
    /// When it is deleted.
    pub removal: Removal,
    /// On whose behalf it was made.
    pub made_by: Maker,
    /// Its status.
    pub status: SnapshotStatus,
}

/// When a snapshot is deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// Only on request.
    Asked,
    /// At this time, or when its last user ends, if that is later.
    At(Timestamp),
    /// When its last user ends.
    WhenFree,
}

/// On whose behalf a snapshot was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Maker {
    /// A user's request: it stays until a user deletes it.
    Request,
    /// The checkpoint policy of its source. The retention policy decides when it is deleted.
    Policy,
    /// An import from a file, perhaps of another host. Its source need not be known here.
    Import,
}

impl Maker {
    /// Its word in responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Policy => "policy",
            Self::Import => "import",
        }
    }
}

/// An event to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEvent {
    /// The project.
    pub project: ProjectId,
    /// The sandbox.
    pub sandbox: SandboxId,
    /// When it occurred.
    pub at: Timestamp,
    /// Its kind.
    pub kind: EventKind,
    /// The initiator.
    pub initiator: Initiator,
    /// The caller that asked for the change; none if no request did, and if that is not known.
    pub caller: Option<Caller>,
    /// The operation it is part of.
    pub operation: Option<OperationId>,
    /// The generation of the sandbox at that time.
    pub generation: u64,
    /// Details, as a sentence.
    pub detail: Option<String>,
    /// The duration of the operation that it ends; none for any other event.
    pub took: Option<std::time::Duration>,
    /// The number of bytes that the operation wrote to disk; none if it wrote no saved state.
    pub bytes: Option<u64>,
}

/// A recorded event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventRecord {
    /// Its number. Numbers rise over all events of the store, so they serve as cursors.
    pub number: u64,
    /// The event.
    pub event: NewEvent,
}

/// A webhook: where to send events.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookRecord {
    /// Its id.
    pub id: WebhookId,
    /// The project whose events are sent.
    pub project: ProjectId,
    /// The URL that receives them.
    pub url: String,
    /// The key that signs them. Not printed.
    pub secret: [u8; 32],
    /// The kinds of event to send; empty for all.
    pub kinds: Vec<EventKind>,
    /// When it was created.
    pub created: Timestamp,
    /// The number of the last event that was delivered or skipped: later events have yet to be
    /// sent.
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

/// Changes that are committed together. Empty parts change nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Sandboxes, each at most once and with the revision the change was made from (0: it must not
    /// exist yet).
    pub sandboxes: Vec<SandboxRecord>,
    /// Operations. Each record is replaced as a whole.
    pub operations: Vec<OperationRecord>,
    /// Snapshots. Each record is replaced as a whole.
    pub snapshots: Vec<SnapshotRecord>,
    /// Snapshots whose records are deleted after the others are written; ids without a record are
    /// skipped.
    pub forgotten: Vec<SnapshotId>,
    /// Saved states that nothing needs from this change on: their files must be deleted. Adding one
    /// twice has no further effect.
    pub discard: Vec<SavedStateId>,
    /// Saved states whose files have been deleted. One that was not listed for deletion is skipped.
    pub discarded: Vec<SavedStateId>,
    /// Webhooks. Each record is replaced as a whole.
    pub webhooks: Vec<WebhookRecord>,
    /// Webhooks whose records are deleted; ids without a record are skipped.
    pub removed_webhooks: Vec<WebhookId>,
    /// Projects. Each record is replaced as a whole.
    pub projects: Vec<ProjectRecord>,
    /// Sandbox pools. Each record is replaced as a whole.
    pub pools: Vec<PoolRecord>,
    /// Pools whose records are deleted; ids without a record are skipped.
    pub removed_pools: Vec<PoolId>,
    /// Builds. Each record is replaced as a whole.
    pub builds: Vec<BuildRecord>,
    /// Builds whose records are deleted; ids without a record are skipped.
    pub removed_builds: Vec<BuildId>,
    /// Templates. Each record is replaced as a whole.
    pub templates: Vec<TemplateRecord>,
    /// Templates whose records are deleted; ids without a record are skipped.
    pub removed_templates: Vec<TemplateId>,
    /// Environments. Each record is replaced as a whole.
    pub environments: Vec<EnvironmentRecord>,
    /// Environments whose records are deleted; ids without a record are skipped.
    pub removed_environments: Vec<EnvironmentId>,
    /// API keys. Each record is replaced as a whole.
    pub api_keys: Vec<ApiKeyRecord>,
    /// API keys whose records are deleted; ids without a record are skipped.
    pub removed_api_keys: Vec<ApiKeyId>,
    /// Requests with an idempotency key. Each record is replaced as a whole.
    pub requests: Vec<RequestRecord>,
    /// Requests whose records are deleted; ids without a record are skipped.
    pub removed_requests: Vec<RequestId>,
    /// Volumes. Each record is replaced as a whole.
    pub volumes: Vec<VolumeRecord>,
    /// Volumes whose records are deleted; ids without a record are skipped.
    pub removed_volumes: Vec<VolumeId>,
    /// The new note of the clocks, which replaces the one before.
    pub clock: Option<ClockNote>,
    /// Events. They are numbered in this order.
    pub events: Vec<NewEvent>,
}
