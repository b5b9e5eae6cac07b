//! Which records are listed, and which are removed because they are old.

use dorm_lifecycle::{CaptureId, Digest, OperationId, ProjectId, SandboxId, SnapshotId, StateName, Timestamp};

use crate::{Maker, OperationRecord, Removal, SandboxFilter, SandboxRecord, SnapshotRecord, SnapshotStatus};

/// Which snapshots to list. A store answers each of the ids by an index.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SnapshotFilter {
    /// Only of this project.
    pub project: Option<ProjectId>,
    /// Only those taken of this sandbox.
    pub source: Option<SandboxId>,
    /// Only those whose content this is.
    pub capture: Option<CaptureId>,
    /// Only those that stand on this layer.
    pub layer: Option<CaptureId>,
    /// Only those that stand on this image.
    pub image: Option<Digest>,
    /// Only those made on this behalf.
    pub made_by: Option<Maker>,
    /// Only those that are deleted without anybody asking for it again.
    pub leaving: bool,
    /// Only those that come after this one in the order of the list: by the moment of creation, then by id.
    pub after: Option<(Timestamp, SnapshotId)>,
    /// At most so many. 0 for all.
    pub limit: usize,
}

/// Which operations to list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperationFilter {
    /// Only operations on this sandbox.
    pub sandbox: Option<SandboxId>,
    /// Only operations that come after this one in the list, which is ordered by start, then by id, newest first.
    pub after: Option<(Timestamp, OperationId)>,
    /// Largest number of operations. 0 for all.
    pub limit: usize,
}

impl OperationFilter {
    /// Whether an operation is one of those that are listed. The limit does not count here.
    pub fn matches(&self, operation: &OperationRecord) -> bool {
        let Self { sandbox, after, limit: _ } = self;
        sandbox.as_ref().is_none_or(|sandbox| operation.sandbox.as_ref() == Some(sandbox))
            && after.as_ref().is_none_or(|after| (&operation.began, &operation.id) < (&after.0, &after.1))
    }
}

impl SandboxFilter {
    /// Every sandbox that is not over.
    pub fn living() -> Self {
        let states = StateName::ALL.into_iter().filter(|state| *state != StateName::Terminated).collect();
        Self { states, ..Self::default() }
    }

    /// Whether a sandbox is one of those that are listed. The limit does not count here.
    pub fn matches(&self, record: &SandboxRecord) -> bool {
        let Self { project, states, name, labels, origin, origin_source, after, limit: _ } = self;
        let sandbox = &record.sandbox;
        project.as_ref().is_none_or(|project| sandbox.project == *project)
            && (states.is_empty() || states.contains(&sandbox.state.name()))
            && name.as_ref().is_none_or(|name| sandbox.spec.name.as_ref() == Some(name))
            && labels.iter().all(|(key, value)| sandbox.spec.labels.get(key) == Some(value))
            && origin.as_ref().is_none_or(|origin| sandbox.origin.snapshot() == Some(origin))
            && origin_source.as_ref().is_none_or(|source| sandbox.origin.source() == Some(source))
            && after.as_ref().is_none_or(|after| sandbox.id > *after)
    }
}

impl SnapshotFilter {
    /// Whether a snapshot is one of those that are listed. The limit does not count here.
    pub fn matches(&self, snapshot: &SnapshotRecord) -> bool {
        let Self { project, source, capture, layer, image, made_by, leaving, after, limit: _ } = self;
        project.as_ref().is_none_or(|project| snapshot.project == *project)
            && source.as_ref().is_none_or(|source| snapshot.source == *source)
            && capture.as_ref().is_none_or(|capture| snapshot.capture == *capture)
            && layer.as_ref().is_none_or(|layer| snapshot.layer.as_ref() == Some(layer))
            && image.as_ref().is_none_or(|image| snapshot.image == *image)
            && made_by.is_none_or(|made_by| snapshot.made_by == made_by)
            && (!leaving || snapshot.is_leaving())
            && after.as_ref().is_none_or(|after| (&snapshot.created, &snapshot.id) > (&after.0, &after.1))
    }
}

impl SnapshotRecord {
    /// Whether it is deleted without anybody asking for it again: at its time, as soon as nothing uses it, or because its deletion
    /// has begun.
    pub fn is_leaving(&self) -> bool {
        match (&self.status, self.removal) {
            (SnapshotStatus::Deleting, _) | (_, Removal::At(_) | Removal::WhenFree) => true,
            (SnapshotStatus::InProgress | SnapshotStatus::Completed | SnapshotStatus::Failed(_), Removal::Asked) => {
                false
            }
        }
    }
}

/// Which old records to remove. Moments are those on record.
///
/// A terminated sandbox stays while a snapshot of it or a sandbox that came from it is on record. An operation that is open
/// stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Prune {
    /// Sandboxes that were terminated before this, and operations that ended before it.
    pub ended_before: Option<Timestamp>,
    /// Events from before this, the oldest first; none after the first that is younger.
    pub events_before: Option<Timestamp>,
    /// Only events numbered up to this.
    pub events_through: u64,
    /// At most so many of each.
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
}

impl Pruned {
    /// The larger of the three: a full batch means that there may be more.
    pub fn most(&self) -> usize {
        self.sandboxes.max(self.operations).max(self.events)
    }
}
