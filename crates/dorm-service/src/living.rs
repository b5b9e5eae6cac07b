//! The living records in memory, so that nothing reads them from the store with each question.
//!
//! Every commit goes through here. One that was refused has changed nothing; of one that failed otherwise, or that nobody waited
//! for, the store is asked again with the next question.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dorm_lifecycle::{SandboxId, StateName};
use dorm_store::{Change, EventRecord, SandboxFilter, SandboxRecord, Store, StoreError};

/// How often the store is read again when a commit falls in between, before the answer is simply not kept.
const ATTEMPTS: usize = 4;

#[derive(Default)]
pub(crate) struct Living {
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    all: BTreeMap<SandboxId, SandboxRecord>,
    /// Whether the records are those of the store.
    is_read: bool,
    /// Counts the beginnings and ends of commits that change sandboxes.
    version: u64,
}

/// A commit in progress. Unless it is said how it ended, that is not known.
struct Committing<'a> {
    living: &'a Living,
    is_ended: bool,
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        let mut state = self.living.lock();
        state.version += 1;
        if !self.is_ended {
            state.is_read = false;
        }
    }
}

impl Living {
    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits a change.
    pub(crate) async fn commit(&self, store: &dyn Store, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        if change.sandboxes.is_empty() {
            return store.commit(change).await;
        }
        let changed = change.sandboxes.clone();
        self.lock().version += 1;
        let mut committing = Committing { living: self, is_ended: false };
        let committed = store.commit(change).await;
        match &committed {
            Ok(_) => {
                self.follow(changed);
                committing.is_ended = true;
            }
            Err(StoreError::NameTaken { .. } | StoreError::Stale { .. } | StoreError::Missing(_)) => {
                committing.is_ended = true;
            }
            Err(_) => {}
        }
        committed
    }

    /// The store is asked again with the next question.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        state.version += 1;
        state.is_read = false;
    }

    fn follow(&self, changed: Vec<SandboxRecord>) {
        let mut state = self.lock();
        for mut record in changed {
            record.revision += 1;
            match record.sandbox.state.name() {
                StateName::Terminated => _ = state.all.remove(&record.sandbox.id),
                _ => _ = state.all.insert(record.sandbox.id.clone(), record),
            }
        }
    }

    /// What `look` finds in the living records, in the order of their ids.
    pub(crate) async fn look<T>(
        &self,
        store: &dyn Store,
        look: impl Fn(&BTreeMap<SandboxId, SandboxRecord>) -> T,
    ) -> Result<T, StoreError> {
        let states = StateName::ALL.into_iter().filter(|name| *name != StateName::Terminated).collect();
        let filter = SandboxFilter { states, ..SandboxFilter::default() };
        let mut attempt = 0;
        loop {
            let version = {
                let state = self.lock();
                if state.is_read {
                    return Ok(look(&state.all));
                }
                state.version
            };
            let read = store.sandboxes(&filter).await?;
            let records = read.into_iter().map(|record| (record.sandbox.id.clone(), record)).collect();
            let mut state = self.lock();
            attempt += 1;
            if state.version == version {
                (state.all, state.is_read) = (records, true);
            } else if attempt == ATTEMPTS {
                return Ok(look(&records));
            }
        }
    }
}

#[cfg(test)]
mod tests;
