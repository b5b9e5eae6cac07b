//! The records of sandboxes that are not terminated, in memory, so that they are not read from the
//! store for every request.
//!
//! Every commit goes through here. A commit that was refused because of a name has changed nothing;
//! after one that was based on an older record, failed otherwise, or was dropped before it ended,
//! the records are read from the store again at the next request.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dorm_lifecycle::{SandboxId, StateName};
use dorm_store::{Change, EventRecord, SandboxFilter, SandboxRecord, Store, StoreError, UnreadableRow};

/// How many times the records are read again if a commit falls in between; after that, the result
/// is returned without being kept.
const ATTEMPTS: usize = 4;

#[derive(Default)]
pub(crate) struct Living {
    records: Mutex<Records>,
}

/// Totals over all of these sandboxes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    /// The number of sandboxes in each state.
    pub(crate) states: BTreeMap<StateName, usize>,
    /// The recorded size of their sleep images, in bytes.
    pub(crate) image_bytes: u64,
    /// The number of sandboxes with a run that does not answer.
    pub(crate) unreachable: usize,
}

impl Totals {
    fn of<'a>(records: impl Iterator<Item = &'a SandboxRecord>) -> Self {
        let mut totals = Self::default();
        records.for_each(|record| totals.add(record));
        totals
    }

    fn add(&mut self, record: &SandboxRecord) {
        *self.states.entry(record.sandbox.state.name()).or_default() += 1;
        self.image_bytes += image_bytes(record);
        self.unreachable += usize::from(record.sandbox.unreachable.is_some());
    }

    fn remove(&mut self, record: &SandboxRecord) {
        if let Some(count) = self.states.get_mut(&record.sandbox.state.name()) {
            *count = count.saturating_sub(1);
        }
        self.image_bytes = self.image_bytes.saturating_sub(image_bytes(record));
        let unreachable = usize::from(record.sandbox.unreachable.is_some());
        self.unreachable = self.unreachable.saturating_sub(unreachable);
    }
}

fn image_bytes(record: &SandboxRecord) -> u64 {
    record.sandbox.images().map(|image| image.bytes).sum()
}

#[derive(Default)]
struct Records {
    all: BTreeMap<SandboxId, SandboxRecord>,
    totals: Totals,
    /// Whether the records are those of the store.
    is_read: bool,
    /// Counts the beginnings and ends of commits that change sandboxes.
    version: u64,
}

/// A commit in progress. Its result is unknown unless it is set.
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
            Err(StoreError::NameTaken { .. } | StoreError::SnapshotNameTaken { .. }) => committing.is_ended = true,
            // Also after a stale revision: the records here are then not those of the store.
            Err(_) => {}
        }
        committed
    }

    /// Returns the operations in progress, one line each, as far as they are known without reading
    /// the store.
    pub(crate) fn under_way(&self) -> Vec<String> {
        let state = self.lock();
        let at_work = state.all.values().filter_map(|record| {
            let operation = record.sandbox.state.operation()?;
            Some(format!("sandbox {}: {} (operation {operation})", record.sandbox.id, record.sandbox.state.name()))
        });
        at_work.collect()
    }

    /// Makes the next request read the store.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        state.version += 1;
        state.is_read = false;
    }

    fn follow(&self, changed: Vec<SandboxRecord>) {
        let mut state = self.lock();
        for mut record in changed {
            record.revision += 1;
            let before = match record.sandbox.state.name() {
                StateName::Terminated => state.all.remove(&record.sandbox.id),
                StateName::Pending
                | StateName::Running
                | StateName::Snapshotting
                | StateName::Suspending
                | StateName::Suspended
                | StateName::Resuming
                | StateName::Terminating => {
                    state.totals.add(&record);
                    state.all.insert(record.sandbox.id.clone(), record)
                }
            };
            if let Some(before) = before {
                state.totals.remove(&before);
            }
        }
    }

    /// Returns what `look` finds in the records, which are in the order of their ids.
    pub(crate) async fn look<T>(
        &self,
        store: &dyn Store,
        look: impl Fn(&BTreeMap<SandboxId, SandboxRecord>) -> T,
    ) -> Result<T, StoreError> {
        self.look_at(store, |records, _| look(records)).await
    }

    /// Returns the totals.
    pub(crate) async fn totals(&self, store: &dyn Store) -> Result<Totals, StoreError> {
        self.look_at(store, |_, totals| totals.clone()).await
    }

    /// Reads all records, and returns those that cannot be read. Changes committed meanwhile are
    /// read at the next request.
    pub(crate) async fn read(&self, store: &dyn Store) -> Result<Vec<UnreadableRow>, StoreError> {
        let version = self.lock().version;
        let (read, unreadable) = store.living_and_unreadable().await?;
        let totals = Totals::of(read.iter());
        let mut state = self.lock();
        if state.version == version {
            state.all = read.into_iter().map(|record| (record.sandbox.id.clone(), record)).collect();
            (state.totals, state.is_read) = (totals, true);
        }
        Ok(unreadable)
    }

    async fn look_at<T>(
        &self,
        store: &dyn Store,
        look: impl Fn(&BTreeMap<SandboxId, SandboxRecord>, &Totals) -> T,
    ) -> Result<T, StoreError> {
        let filter = SandboxFilter::living();
        let mut attempt = 0;
        loop {
            let version = {
                let state = self.lock();
                if state.is_read {
                    return Ok(look(&state.all, &state.totals));
                }
                state.version
            };
            let read = store.sandboxes(&filter).await?;
            let totals = Totals::of(read.iter());
            let records = read.into_iter().map(|record| (record.sandbox.id.clone(), record)).collect();
            let mut state = self.lock();
            attempt += 1;
            if state.version == version {
                (state.all, state.totals, state.is_read) = (records, totals, true);
            } else if attempt == ATTEMPTS {
                return Ok(look(&records, &totals));
            }
        }
    }
}

#[cfg(test)]
mod tests;
