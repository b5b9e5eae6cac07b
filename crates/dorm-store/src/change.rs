//! Checks of a change that every store does before it applies it. They are in one place so that all
//! stores refuse the same.
//!
//! The checks know no storage: each store itself compares revisions and finds names that are taken.

use std::collections::BTreeSet;

use dorm_lifecycle::{Broken, Name, ProjectId, Sandbox, SandboxId, StateName};
use thiserror::Error;

use crate::{Change, SandboxRecord, SnapshotRecord, StoreError};

/// A sandbox that breaks an invariant of the lifecycle and so must not be recorded.
#[derive(Debug, Error)]
#[error("sandbox {id} breaks an invariant of the lifecycle; this is a fault of Dormouse, please report it")]
pub struct BrokenSandbox {
    /// The sandbox.
    pub id: SandboxId,
    /// The invariant.
    #[source]
    pub invariant: Broken,
}

impl Change {
    /// The sandboxes in the order in which every store applies them: first those that are
    /// terminated, because they release their names, then the others; each group in the order
    /// given. A store checks the revision of each and then its name, and stops at the first
    /// conflict.
    ///
    /// # Errors
    /// [`StoreError::Stale`] when a sandbox is in the change twice; [`StoreError::Failed`] with a
    /// [`BrokenSandbox`] when one breaks an invariant of the lifecycle.
    pub fn ordered_sandboxes(&self) -> Result<Vec<&SandboxRecord>, StoreError> {
        let mut seen = BTreeSet::new();
        for record in &self.sandboxes {
            let id = &record.sandbox.id;
            if !seen.insert(id) {
                return Err(StoreError::Stale { id: id.to_string(), expected: record.revision });
            }
            dorm_lifecycle::check(&record.sandbox).map_err(|invariant| StoreError::Failed {
                operation: "record a sandbox",
                source: Box::new(BrokenSandbox { id: id.clone(), invariant }),
            })?;
        }
        let (over, living): (Vec<_>, Vec<_>) = self.sandboxes.iter().partition(|record| is_over(&record.sandbox));
        Ok(over.into_iter().chain(living).collect())
    }

    /// The snapshots in the order in which every store applies them: first those that hold no name,
    /// because they release theirs, then the others; each group in the order given. A store checks
    /// the name of each, and stops at the first that another snapshot holds.
    pub fn ordered_snapshots(&self) -> impl Iterator<Item = &SnapshotRecord> {
        let (holders, others): (Vec<_>, Vec<_>) = self.snapshots.iter().partition(|one| one.held_name().is_some());
        others.into_iter().chain(holders)
    }
}

impl SandboxRecord {
    /// The name this sandbox holds: its own, until it is terminated.
    pub fn held_name(&self) -> Option<(&ProjectId, &Name)> {
        let name = self.sandbox.spec.name.as_ref()?;
        (!is_over(&self.sandbox)).then_some((&self.sandbox.project, name))
    }

    /// Checks the revision this record was made from against the `stored` one, and returns the next
    /// one.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if a record is expected and there is none; [`StoreError::Stale`] if
    /// the revisions differ.
    pub fn next_revision(&self, stored: Option<u64>) -> Result<u64, StoreError> {
        let id = || self.sandbox.id.to_string();
        match stored {
            None if self.revision == 0 => Ok(1),
            None => Err(StoreError::Missing(id())),
            Some(stored) if stored == self.revision => Ok(stored + 1),
            Some(_) => Err(StoreError::Stale { id: id(), expected: self.revision }),
        }
    }
}

fn is_over(sandbox: &Sandbox) -> bool {
    sandbox.state.name() == StateName::Terminated
}
