//! Filters for lists of records, and the selection of old records to remove.

use dorm_lifecycle::{
    Digest, OperationId, ProjectId, Sandbox, SandboxId, SavedStateId, SnapshotId, SnapshotName, StateName, Timestamp,
};

use crate::{Maker, OperationRecord, Removal, SandboxFilter, SandboxRecord, SnapshotRecord, SnapshotStatus};

/// Selects the snapshots to list. A store looks up each of the ids by an index.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SnapshotFilter {
    /// Only of this project.
    pub project: Option<ProjectId>,
    /// Only the one that holds this name.
    pub name: Option<SnapshotName>,
    /// Only those taken of this sandbox.
    pub source: Option<SandboxId>,
    /// Only those with this saved state as their content.
    pub saved_state: Option<SavedStateId>,
    /// Only those that are based on this layer.
    pub layer: Option<SavedStateId>,
    /// Only those that are based on this image.
    pub image: Option<Digest>,
    /// Only those made on behalf of this.
    pub made_by: Option<Maker>,
    /// Only those that are deleted without a further request.
    pub leaving: bool,
    /// Only those after this one in the list, which is ordered by creation time, then by id.
    pub after: Option<(Timestamp, SnapshotId)>,
    /// Largest number of snapshots. 0 for all.
    pub limit: usize,
}

/// Selects the operations to list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperationFilter {
    /// Only of this project.
    pub project: Option<ProjectId>,
    /// Only operations on this sandbox.
    pub sandbox: Option<SandboxId>,
    /// Only operations that come after this one in the list, which is ordered by start, then by id,
    /// newest first.
    pub after: Option<(Timestamp, OperationId)>,
    /// Largest number of operations. 0 for all.
    pub limit: usize,
}

impl OperationFilter {
    /// Whether an operation matches the filter. The limit does not count here.
    pub fn matches(&self, operation: &OperationRecord) -> bool {
        let Self { project, sandbox, after, limit: _ } = self;
        project.as_ref().is_none_or(|project| operation.project == *project)
            && sandbox.as_ref().is_none_or(|sandbox| operation.sandbox.as_ref() == Some(sandbox))
            && after.as_ref().is_none_or(|after| (&operation.began, &operation.id) < (&after.0, &after.1))
    }
}

/// The order of a list of sandboxes. Those with the same moment are in the order of ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SandboxOrder {
    /// The order of ids.
    #[default]
    Id,
    /// The order in which they were created.
    Created(Direction),
    /// The order in which they last began to run, those that never ran first.
    Started(Direction),
}

/// The direction of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The earliest first.
    Ascending,
    /// The latest first.
    Descending,
}

impl SandboxOrder {
    /// The moment of a sandbox in this order.
    pub fn moment(self, sandbox: &Sandbox) -> Timestamp {
        match self {
            Self::Id => Timestamp::default(),
            Self::Created(_) => sandbox.created,
            Self::Started(_) => sandbox.started.unwrap_or_default(),
        }
    }

    /// Whether the latest come first.
    pub const fn is_descending(self) -> bool {
        matches!(self, Self::Created(Direction::Descending) | Self::Started(Direction::Descending))
    }
}

impl SandboxFilter {
    /// The records among `all`, which are in the order of ids, that a list holds, in its order.
    pub fn listed<'a>(&self, all: impl Iterator<Item = &'a SandboxRecord>) -> Vec<SandboxRecord> {
        let mut found: Vec<&SandboxRecord> = all.filter(|record| self.matches(record)).collect();
        if self.order != SandboxOrder::Id {
            found.sort_by_key(|record| (self.order.moment(&record.sandbox), &record.sandbox.id));
        }
        if self.order.is_descending() {
            found.reverse();
        }
        let limit = if self.limit == 0 { usize::MAX } else { self.limit };
        found.into_iter().take(limit).cloned().collect()
    }

    /// Every sandbox that is not terminated.
    pub fn living() -> Self {
        let states = StateName::ALL.into_iter().filter(|state| *state != StateName::Terminated).collect();
        Self { states, ..Self::default() }
    }

    /// Whether a sandbox matches the filter. The limit does not count here.
    pub fn matches(&self, record: &SandboxRecord) -> bool {
        let Self { project, states, name, labels, origin, origin_source, order, after, after_moment, limit: _ } = self;
        let sandbox = &record.sandbox;
        project.as_ref().is_none_or(|project| sandbox.project == *project)
            && (states.is_empty() || states.contains(&sandbox.state.name()))
            && name.as_ref().is_none_or(|name| sandbox.spec.name.as_ref() == Some(name))
            && labels.iter().all(|(key, value)| sandbox.spec.labels.get(key) == Some(value))
            && origin.as_ref().is_none_or(|origin| sandbox.origin.snapshot() == Some(origin))
            && origin_source.as_ref().is_none_or(|source| sandbox.origin.source() == Some(source))
            && after.as_ref().is_none_or(|after| {
                let (own, last) = ((order.moment(sandbox), &sandbox.id), (*after_moment, after));
                match order {
                    SandboxOrder::Id => sandbox.id > *after,
                    _ if order.is_descending() => own < last,
                    _ => own > last,
                }
            })
    }
}

impl SnapshotFilter {
    /// Whether a snapshot matches the filter. The limit does not count here.
    pub fn matches(&self, snapshot: &SnapshotRecord) -> bool {
        let Self { project, name, source, saved_state, layer, image, made_by, leaving, after, limit: _ } = self;
        project.as_ref().is_none_or(|project| snapshot.project == *project)
            && name.as_ref().is_none_or(|name| snapshot.held_name() == Some(name))
            && source.as_ref().is_none_or(|source| snapshot.source == *source)
            && saved_state.as_ref().is_none_or(|saved_state| snapshot.saved_state == *saved_state)
            && layer.as_ref().is_none_or(|layer| snapshot.layer.as_ref() == Some(layer))
            && image.as_ref().is_none_or(|image| snapshot.image == *image)
            && made_by.is_none_or(|made_by| snapshot.made_by == made_by)
            && (!leaving || snapshot.is_leaving())
            && after.as_ref().is_none_or(|after| (&snapshot.created, &snapshot.id) > (&after.0, &after.1))
    }
}

impl SnapshotRecord {
    /// The name that it holds: its own, until it can no longer be used or only stays as long as it
    /// is in use.
    pub fn held_name(&self) -> Option<&SnapshotName> {
        match (&self.status, self.removal) {
            (SnapshotStatus::InProgress | SnapshotStatus::Completed, Removal::Asked | Removal::At(_)) => {
                self.name.as_ref()
            }
            (SnapshotStatus::Failed(_) | SnapshotStatus::Deleting, _) | (_, Removal::WhenFree) => None,
        }
    }

    /// Whether it is deleted without a further request: at its time, when nothing uses it, or
    /// because its deletion has begun.
    pub fn is_leaving(&self) -> bool {
        match (&self.status, self.removal) {
            (SnapshotStatus::Deleting, _) | (_, Removal::At(_) | Removal::WhenFree) => true,
            (SnapshotStatus::InProgress | SnapshotStatus::Completed | SnapshotStatus::Failed(_), Removal::Asked) => {
                false
            }
        }
    }
}

/// Selects the old records to remove. Times are those in the records.
///
/// A terminated sandbox is kept while a snapshot of it or a sandbox created from it is on record.
/// An open operation is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Prune {
    /// Sandboxes that were terminated before this time, and operations that ended before it.
    pub ended_before: Option<Timestamp>,
    /// Events from before this time, oldest first, up to the first that is not older.
    pub events_before: Option<Timestamp>,
    /// Only events with numbers up to this one.
    pub events_through: u64,
    /// Requests with an idempotency key from before this time.
    pub requests_before: Option<Timestamp>,
    /// Largest number of records of each kind.
    pub batch: usize,
}

/// How many records were removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pruned {
    /// Terminated sandboxes.
    pub sandboxes: usize,
    /// Ended operations.
    pub operations: usize,
    /// Events.
    pub events: usize,
    /// Requests with an idempotency key.
    pub requests: usize,
}

impl Pruned {
    /// The largest of these: a full batch means that there may be more.
    pub fn most(&self) -> usize {
        self.sandboxes.max(self.operations).max(self.events).max(self.requests)
    }
}
