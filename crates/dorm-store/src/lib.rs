#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

//! The port to what Dormouse remembers: sandboxes, operations, snapshots and events.
//!
//! Every change is one [`Change`], committed whole or not at all and durable when [`Store::commit`] returns. A record
//! carries a revision; a change that was made from an older one is refused. A store knows no engine and no HTTP,
//! and decides nothing about a sandbox's life; it only refuses one that breaks an invariant of the lifecycle.

mod api_key;
mod change;
mod clock;
mod code;
pub mod codec;
pub mod conformance;
pub mod memory;
mod query;
mod record;
mod stepped;
mod unreadable;
mod volume;

use async_trait::async_trait;
use dorm_lifecycle::{CaptureId, Name, OperationId, ProjectId, SandboxId, SnapshotId};
use thiserror::Error;

pub use api_key::{ApiKeyRecord, KeyScope};
pub use change::BrokenSandbox;
pub use clock::{ClockNote, ClockPeriod};
pub use code::Code;
pub use query::{OperationFilter, Prune, Pruned, SnapshotFilter};
pub use record::{
    Change, EventRecord, FailureRecord, ForkPlan, Maker, NewEvent, OperationKind, OperationRecord, OperationResult,
    PromotePlan, Removal, SandboxRecord, SnapshotRecord, SnapshotStatus, Together, WebhookRecord,
};
pub use stepped::SteppedStore;
pub use unreadable::{RowKind, UnreadableRow};
pub use volume::{VolumeRecord, VolumeStatus};

/// Which sandboxes to list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SandboxFilter {
    /// Only of this project.
    pub project: Option<ProjectId>,
    /// Only in one of these states; empty for every state.
    pub states: Vec<dorm_lifecycle::StateName>,
    /// Only with this name.
    pub name: Option<Name>,
    /// Only with all of these labels.
    pub labels: Vec<(String, String)>,
    /// Only those whose first run started from this snapshot.
    pub origin: Option<SnapshotId>,
    /// Only those whose first run started from a snapshot of this sandbox.
    pub origin_source: Option<SandboxId>,
    /// Only those that come after this one in the order of the list, which is that of the ids.
    pub after: Option<SandboxId>,
    /// At most so many. 0 for all.
    pub limit: usize,
}

/// Which events to read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventFilter {
    /// Only of this project.
    pub project: Option<ProjectId>,
    /// Only of this sandbox.
    pub sandbox: Option<SandboxId>,
    /// Only those that say that this snapshot was taken.
    pub taken: Option<SnapshotId>,
    /// Only those numbered higher.
    pub after: u64,
    /// At most so many. 0 for all.
    pub limit: usize,
    /// Only so many of the newest, before the limit counts; they come in their order as well. 0 for all.
    pub newest: usize,
}

/// Why the store could not do what it was asked to.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another living sandbox of the project has this name.
    #[error("the name '{name}' is taken by sandbox {holder}")]
    NameTaken {
        /// The name.
        name: Name,
        /// Who has it.
        holder: SandboxId,
    },
    /// The record has changed since it was read.
    #[error("the record of {id} has changed meanwhile (expected revision {expected})")]
    Stale {
        /// Whose record.
        id: String,
        /// The revision the change was made from.
        expected: u64,
    },
    /// A record that should be there is not.
    #[error("there is no record of {0}")]
    Missing(String),
    /// A record cannot be read.
    #[error("the record of {id} cannot be read: {what}")]
    Unreadable {
        /// Whose record.
        id: String,
        /// What is wrong with it.
        what: String,
    },
    /// The file that the records are in is damaged; nothing was changed.
    #[error("the store's file is damaged, so it could not {operation}: stop the daemon and run `dorm repair`")]
    Damaged {
        /// What it was doing.
        operation: &'static str,
        /// What is wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The disk that the records are on is full; nothing was changed.
    #[error("the store could not {operation}: its disk is full")]
    Full {
        /// What it was doing.
        operation: &'static str,
        /// What the system said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The storage itself failed; nothing was changed.
    #[error("the store failed while it should {operation}")]
    Failed {
        /// What it was doing.
        operation: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The storage failed at the end of a change, which was made or not. [`Store::settle`] tells which.
    #[error("the store failed while it should {operation}, and it is not known whether the change was made")]
    Unknown {
        /// What it was doing.
        operation: &'static str,
        /// Names the change.
        ticket: Ticket,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// Whether the change may have been made all the same.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

/// Names a change of which it is not known whether it was made. It holds for one opened store, until that is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// How a change ended whose commit had failed with [`StoreError::Unknown`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// It was made, and is durable.
    Made,
    /// It was not made and never will be.
    NotMade,
}

/// A ticket that this store has not given out, or has settled and forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("no change with ticket {} is waiting to be settled; this is a fault of Dormouse, please report it", .0.0)]
pub struct NoSuchTicket(pub Ticket);

/// What Dormouse remembers.
///
/// A list leaves out the rows that cannot be read; [`Store::unreadable`] has them. A look-up of such a row answers
/// [`StoreError::Unreadable`], and its name stays taken.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies a change, whole or not at all; durable when this returns. Answers the events as they were numbered.
    ///
    /// After [`StoreError::Unknown`] the change was made or not, and [`Store::settle`] finds out. After any other error
    /// nothing was changed. A caller that does not wait for the end does not know which of the two it was; the revisions
    /// tell.
    async fn commit(&self, change: Change) -> Result<Vec<EventRecord>, StoreError>;

    /// Finds out how a change ended that failed with [`StoreError::Unknown`], reopening the storage if need be. May be
    /// called again after an error, which leaves the question open.
    ///
    /// A store that never fails in this way need not implement it.
    async fn settle(&self, ticket: Ticket) -> Result<Settled, StoreError> {
        Err(StoreError::Failed { operation: "settle a change", source: Box::new(NoSuchTicket(ticket)) })
    }

    /// One sandbox, living or not.
    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError>;

    /// The living sandbox of that name.
    async fn named(&self, project: &ProjectId, name: &Name) -> Result<Option<SandboxRecord>, StoreError>;

    /// Sandboxes in the order of their ids.
    async fn sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<SandboxRecord>, StoreError>;

    /// One snapshot.
    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>, StoreError>;

    /// Every snapshot of a project, or of all, in the order they were asked for; ids decide between equals.
    async fn snapshots(&self, project: Option<&ProjectId>) -> Result<Vec<SnapshotRecord>, StoreError>;

    /// Snapshots of a filter, in the order they were asked for; ids decide between equals.
    async fn find_snapshots(&self, filter: &SnapshotFilter) -> Result<Vec<SnapshotRecord>, StoreError>;

    /// What all complete snapshots occupy by their records, in bytes.
    async fn snapshot_bytes(&self) -> Result<u64, StoreError>;

    /// The operations that have begun and are not over, in the order they began; ids decide between equals.
    async fn open_operations(&self) -> Result<Vec<OperationRecord>, StoreError>;

    /// One operation, open or ended.
    async fn operation(&self, id: &OperationId) -> Result<Option<OperationRecord>, StoreError>;

    /// Operations of a filter, newest first; ids decide between equals.
    async fn find_operations(&self, filter: &OperationFilter) -> Result<Vec<OperationRecord>, StoreError>;

    /// The captures whose files are still to be deleted, in the order of their ids.
    async fn to_discard(&self) -> Result<Vec<CaptureId>, StoreError>;

    /// Every webhook, in the order of their ids.
    async fn webhooks(&self) -> Result<Vec<WebhookRecord>, StoreError>;

    /// Every API key, in the order of their ids.
    async fn api_keys(&self) -> Result<Vec<ApiKeyRecord>, StoreError>;

    /// Every volume, in the order of their ids.
    async fn volumes(&self) -> Result<Vec<VolumeRecord>, StoreError>;

    /// Events in their order.
    async fn events(&self, filter: &EventFilter) -> Result<Vec<EventRecord>, StoreError>;

    /// The number up to which events have been removed because they were old; 0 while all are there.
    async fn events_removed(&self) -> Result<u64, StoreError>;

    /// What was last noted of the clocks.
    async fn clock(&self) -> Result<Option<ClockNote>, StoreError>;

    /// Removes a batch of old records; answers how many there were. Whole or not at all, and durable like a commit.
    async fn prune(&self, prune: &Prune) -> Result<Pruned, StoreError>;

    /// The rows that cannot be read, in order: of sandboxes that are not over, snapshots, open operations, discards,
    /// webhooks and volumes. History is not searched. A row that became unreadable after a list was read is in the answer
    /// to a later call, so call this after the lists that a decision is made from.
    async fn unreadable(&self) -> Result<Vec<UnreadableRow>, StoreError>;

    /// The sandboxes that are not over, in the order of their ids, and what [`Store::unreadable`] answers. A store that
    /// reads the same rows for both can read them once.
    async fn living_and_unreadable(&self) -> Result<(Vec<SandboxRecord>, Vec<UnreadableRow>), StoreError> {
        Ok((self.sandboxes(&SandboxFilter::living()).await?, self.unreadable().await?))
    }
}
