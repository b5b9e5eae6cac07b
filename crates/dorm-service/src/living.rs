//! The living records in memory, so that nothing reads them from the store with each question.
//!
//! Every commit goes through here. One that was refused for a name has changed nothing; of one that was made from an older record,
//! failed otherwise, or that nobody waited for, the store is asked again with the next question.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dorm_lifecycle::{SandboxId, StateName};
use dorm_store::{Change, EventRecord, SandboxFilter, SandboxRecord, Store, StoreError, UnreadableRow};

/// How often the store is read again when a commit falls in between, before the answer is simply not kept.
const ATTEMPTS: usize = 4;

#[derive(Default)]
pub(crate) struct Living {
    records: Mutex<Records>,
}

/// What is told of all of them together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    /// How many are in each state.
    pub(crate) states: BTreeMap<StateName, usize>,
    /// What their sleep images occupy by their records.
    pub(crate) image_bytes: u64,
    /// How many have a run that does not answer.
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
            Err(StoreError::NameTaken { .. }) => committing.is_ended = true,
            // After a stale revision, too: records here are not those of the store.
            Err(_) => {}
        }
        committed
    }

    /// The operations at work, a line for each, as far as they are known without asking the store.
    pub(crate) fn under_way(&self) -> Vec<String> {
        let state = self.lock();
        let at_work = state.all.values().filter_map(|record| {
            let operation = record.sandbox.state.operation()?;
            Some(format!("sandbox {}: {} (operation {operation})", record.sandbox.id, record.sandbox.state.name()))
        });
        at_work.collect()
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

    /// What `look` finds in the living records, in the order of their ids.
    pub(crate) async fn look<T>(
        &self,
        store: &dyn Store,
        look: impl Fn(&BTreeMap<SandboxId, SandboxRecord>) -> T,
    ) -> Result<T, StoreError> {
        self.look_at(store, |records, _| look(records)).await
    }

    /// What is told of all of them together.
    pub(crate) async fn totals(&self, store: &dyn Store) -> Result<Totals, StoreError> {
        self.look_at(store, |_, totals| totals.clone()).await
    }

    /// Reads all, and which records cannot be read. What is committed meanwhile is read with the next question.
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
