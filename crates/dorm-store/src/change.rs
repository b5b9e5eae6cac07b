//! What every store has to check of a change before it applies it, in one place so that all refuse the same.
//!
//! It knows no storage: revisions and names that are taken are for the store itself to find out.

use std::collections::BTreeSet;

use dorm_lifecycle::{Broken, Name, ProjectId, Sandbox, SandboxId, StateName};
use thiserror::Error;

use crate::{Change, SandboxRecord, StoreError};

/// A sandbox that breaks an invariant of the lifecycle and so must not be recorded.
#[derive(Debug, Error)]
#[error("sandbox {id} breaks an invariant of the lifecycle; this is a fault of Dormouse, please report it")]
pub struct BrokenSandbox {
    /// Which.
    pub id: SandboxId,
    /// The invariant.
    #[source]
    pub invariant: Broken,
}

impl Change {
    /// The sandboxes in the order in which every store applies them: those that are over come first, since they give
    /// their names back, then the others; each group as it was given. A store checks the revision of each and then
    /// its name, and stops at the first that does not fit.
    ///
    /// # Errors
    /// [`StoreError::Stale`] when a sandbox is in the change twice; [`StoreError::Failed`] with a [`BrokenSandbox`]
    /// when one breaks an invariant of the lifecycle.
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
}

impl SandboxRecord {
    /// The name this sandbox keeps others from taking: its own, until it is over.
    pub fn held_name(&self) -> Option<(&ProjectId, &Name)> {
        let name = self.sandbox.spec.name.as_ref()?;
        (!is_over(&self.sandbox)).then_some((&self.sandbox.project, name))
    }

    /// Checks the revision this record was made from against the one that is `stored`, and answers the next one.
    ///
    /// # Errors
    /// [`StoreError::Missing`] when there should be a record and is none; [`StoreError::Stale`] when they differ.
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
