#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

//! The port to the store of Dormouse: sandboxes, operations, snapshots and events.
//!
//! Every change is one [`Change`]: committed as a whole or not at all, and durable when
//! [`Store::commit`] returns. A record carries a revision; a change made from an older revision is
//! refused. A store knows no engine and no HTTP and makes no lifecycle decisions; it only refuses a
//! sandbox that breaks an invariant of the lifecycle.

mod api_key;
mod build;
mod change;
mod clock;
mod code;
pub mod codec;
#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
mod environment;
mod failure;
#[cfg(any(test, feature = "test-util"))]
pub mod memory;
mod pool;
mod project;
mod query;
mod record;
mod request;
mod stepped;
mod template;
mod unreadable;
mod volume;

use async_trait::async_trait;
use dorm_lifecycle::environment::Key;
use dorm_lifecycle::{
    BuildId, EnvironmentId, Name, OperationId, ProjectId, RequestId, SandboxId, SavedStateId, SnapshotId, SnapshotName,
    Timestamp,
};
use thiserror::Error;

pub use api_key::{ApiKeyRecord, KeyScope};
pub use build::{
    BuildFailure, BuildLogin, BuildPlan, BuildRecord, BuildResources, BuildState, BuildStep, BuildStepState,
    BuildTemplate, BuildWork, PlannedStep, Recipe,
};
pub use change::BrokenSandbox;
pub use clock::{ClockNote, ClockPeriod};
pub use code::Code;
pub use codec::workspace_hash;
pub use environment::{
    Attempt, AttemptEnd, AttemptFailure, AttemptResult, EnvironmentLease, EnvironmentRecord, OtherSettings, Phase,
    RestoredFrom, RetiredSandbox, RunEnd, SettingsBefore, SetupState, SetupStepRecord, SetupWork, key_hash,
};
pub use failure::FailureRecord;
pub use pool::{PoolRecord, PoolSource};
pub use project::{ProjectBudgets, ProjectRecord, SecretRecord};
pub use query::{Direction, OperationFilter, Prune, Pruned, SandboxOrder, SnapshotFilter};
pub use record::{
    Change, EventRecord, ForkPlan, Maker, NewEvent, OnPartialFailure, OperationKind, OperationRecord, OperationResult,
    PromotePlan, Removal, SandboxRecord, SnapshotRecord, SnapshotStatus, WebhookRecord,
};
pub use request::{Made, RequestRecord};
pub use stepped::SteppedStore;
pub use template::{TemplateRecord, TemplateSource, TemplateVersion};
pub use unreadable::{RowKind, UnreadableRow};
pub use volume::{VolumeRecord, VolumeStatus};

/// Selects the sandboxes to list.
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
    /// The order of the list.
    pub order: SandboxOrder,
    /// Only those after this one in the list.
    pub after: Option<SandboxId>,
    /// The moment of `after` in the list; not for the order of ids.
    pub after_moment: Timestamp,
    /// Largest number of sandboxes. 0 for all.
    pub limit: usize,
}

/// Selects the events to read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventFilter {
    /// Only of this project.
    pub project: Option<ProjectId>,
    /// Only of this sandbox.
    pub sandbox: Option<SandboxId>,
    /// Only events that record the taking of this snapshot.
    pub taken: Option<SnapshotId>,
    /// Only events with a higher number.
    pub after: u64,
    /// Largest number of events. 0 for all.
    pub limit: usize,
    /// Only this many of the newest, still oldest first; applied before `limit`. 0 for all.
    pub newest: usize,
}

/// Why a store failed or refused a request.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another living sandbox of the project holds the name.
    #[error("the name '{name}' is taken by sandbox {holder}")]
    NameTaken {
        /// The name.
        name: Name,
        /// The sandbox that holds it.
        holder: SandboxId,
    },
    /// Another snapshot of the project holds the name.
    #[error("the name '{name}' is taken by snapshot {holder}")]
    SnapshotNameTaken {
        /// The name.
        name: SnapshotName,
        /// The snapshot that holds it.
        holder: SnapshotId,
    },
    /// Another environment of the project has the key.
    #[error("the key '{key}' is that of environment {holder}")]
    KeyTaken {
        /// The key.
        key: Box<Key>,
        /// The environment that has it.
        holder: EnvironmentId,
    },
    /// The record has changed since it was read.
    #[error("the record of {id} has changed meanwhile (expected revision {expected})")]
    Stale {
        /// The id of the record.
        id: String,
        /// The revision the change was made from.
        expected: u64,
    },
    /// A record is missing.
    #[error("there is no record of {0}")]
    Missing(String),
    /// A record cannot be read.
    #[error("the record of {id} cannot be read: {what}")]
    Unreadable {
        /// The id of the record.
        id: String,
        /// A description of the defect.
        what: String,
    },
    /// The file of the store is damaged; nothing was changed.
    #[error("the store's file is damaged, so it could not {operation}: stop the daemon and run `dorm repair`")]
    Damaged {
        /// The operation.
        operation: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The disk of the store is full; nothing was changed.
    #[error("the store could not {operation}: its disk is full")]
    Full {
        /// The operation.
        operation: &'static str,
        /// The error of the system.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The storage itself failed; nothing was changed.
    #[error("the store failed to {operation}")]
    Failed {
        /// The operation.
        operation: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The storage failed at the end of a change, which may have been made. [`Store::settle`] finds
    /// out.
    #[error("the store failed to {operation}, and it is not known whether the change was made")]
    Unknown {
        /// The operation.
        operation: &'static str,
        /// Identifies the change.
        ticket: Ticket,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// Whether the change may have been made nevertheless.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

/// Identifies a change whose outcome is unknown. Valid for one opened store, until that is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// The outcome of a change whose commit failed with [`StoreError::Unknown`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// It was made, and is durable.
    Made,
    /// It was not made and never will be.
    NotMade,
}

/// The store has not issued this ticket, or has settled and forgotten it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("no change with ticket {} is waiting to be settled; this is a fault of Dormouse, please report it", .0.0)]
pub struct NoSuchTicket(pub Ticket);

/// A store of records.
///
/// Lists leave out the rows that cannot be read; [`Store::unreadable`] returns them. Looking up
/// such a row fails with [`StoreError::Unreadable`], and its name stays taken.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies a change, as a whole or not at all; durable when this returns. Returns the events
    /// with their numbers.
    ///
    /// After [`StoreError::Unknown`] the change may have been made, and [`Store::settle`] finds
    /// out. After any other error nothing was changed. A caller that drops the future does not know
    /// whether the change was made; the revisions show it.
    async fn commit(&self, change: Change) -> Result<Vec<EventRecord>, StoreError>;

    /// Finds the outcome of a change that failed with [`StoreError::Unknown`], reopening the
    /// storage if needed. After an error the outcome is still unknown, and the call can be
    /// repeated.
    ///
    /// A store that never fails in this way need not implement it.
    async fn settle(&self, ticket: Ticket) -> Result<Settled, StoreError> {
        Err(StoreError::Failed { operation: "settle a change", source: Box::new(NoSuchTicket(ticket)) })
    }

    /// One sandbox, living or not.
    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError>;

    /// The living sandbox with this name.
    async fn named(&self, project: &ProjectId, name: &Name) -> Result<Option<SandboxRecord>, StoreError>;

    /// Sandboxes in the order of their ids.
    async fn sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<SandboxRecord>, StoreError>;

    /// One snapshot.
    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>, StoreError>;

    /// All snapshots of a project, or of all projects, ordered by creation time, then by id.
    async fn snapshots(&self, project: Option<&ProjectId>) -> Result<Vec<SnapshotRecord>, StoreError>;

    /// The snapshots that match a filter, ordered by creation time, then by id.
    async fn find_snapshots(&self, filter: &SnapshotFilter) -> Result<Vec<SnapshotRecord>, StoreError>;

    /// The total size of all complete snapshots according to their records, in bytes.
    async fn snapshot_bytes(&self) -> Result<u64, StoreError>;

    /// The open operations, ordered by start, then by id.
    async fn open_operations(&self) -> Result<Vec<OperationRecord>, StoreError>;

    /// The request with this id, if it is not yet too old.
    async fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, StoreError>;

    /// One operation, open or ended.
    async fn operation(&self, id: &OperationId) -> Result<Option<OperationRecord>, StoreError>;

    /// The operations that match a filter, newest first; ordered by start, then by id.
    async fn find_operations(&self, filter: &OperationFilter) -> Result<Vec<OperationRecord>, StoreError>;

    /// The saved states whose files are still to be deleted, in the order of their ids.
    async fn to_discard(&self) -> Result<Vec<SavedStateId>, StoreError>;

    /// All webhooks, in the order of their ids.
    async fn webhooks(&self) -> Result<Vec<WebhookRecord>, StoreError>;

    /// All projects that were ever created, removed ones included, in the order of their ids.
    async fn projects(&self) -> Result<Vec<ProjectRecord>, StoreError>;

    /// All sandbox pools, in the order of their ids.
    async fn pools(&self) -> Result<Vec<PoolRecord>, StoreError>;

    /// One build.
    async fn build(&self, id: &BuildId) -> Result<Option<BuildRecord>, StoreError>;

    /// All builds, in the order of their ids.
    async fn builds(&self) -> Result<Vec<BuildRecord>, StoreError>;

    /// All templates, in the order of their ids.
    async fn templates(&self) -> Result<Vec<TemplateRecord>, StoreError>;

    /// One environment.
    async fn environment(&self, id: &EnvironmentId) -> Result<Option<EnvironmentRecord>, StoreError>;

    /// The environment of a project with this key.
    async fn environment_with(&self, project: &ProjectId, key: &Key) -> Result<Option<EnvironmentRecord>, StoreError>;

    /// All environments, in the order of their ids.
    async fn environments(&self) -> Result<Vec<EnvironmentRecord>, StoreError>;

    /// All API keys, in the order of their ids.
    async fn api_keys(&self) -> Result<Vec<ApiKeyRecord>, StoreError>;

    /// All volumes, in the order of their ids.
    async fn volumes(&self) -> Result<Vec<VolumeRecord>, StoreError>;

    /// The events that match a filter, in the order of their numbers.
    async fn events(&self, filter: &EventFilter) -> Result<Vec<EventRecord>, StoreError>;

    /// The number up to which old events have been removed; 0 if none have been.
    async fn events_removed(&self) -> Result<u64, StoreError>;

    /// The latest note of the clocks.
    async fn clock(&self) -> Result<Option<ClockNote>, StoreError>;

    /// Removes a batch of old records and returns how many it removed. Applied as a whole or not at
    /// all, and durable like a commit.
    async fn prune(&self, prune: &Prune) -> Result<Pruned, StoreError>;

    /// The rows that cannot be read, in order: of sandboxes that are not terminated, snapshots,
    /// open operations, discards, webhooks and volumes. History is not searched. If a row becomes
    /// unreadable after a list was read, a later call returns it; so call this after the lists on
    /// which a decision is based.
    async fn unreadable(&self) -> Result<Vec<UnreadableRow>, StoreError>;

    /// The sandboxes that are not terminated, in the order of their ids, and the result of
    /// [`Store::unreadable`]. A store that reads the same rows for both can read them once.
    async fn living_and_unreadable(&self) -> Result<(Vec<SandboxRecord>, Vec<UnreadableRow>), StoreError> {
        Ok((self.sandboxes(&SandboxFilter::living()).await?, self.unreadable().await?))
    }
}
