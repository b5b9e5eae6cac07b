//! The snapshots to delete, and those that operations are using.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dorm_lifecycle::{SavedStateId, SnapshotId, Timestamp};
use dorm_store::{Removal, SnapshotRecord, SnapshotStatus};
use tokio::sync::Notify;

use super::Shared;

/// The snapshots to delete.
#[derive(Default)]
pub(crate) struct Removals {
    /// Each with its time; `None` for as soon as nothing uses it.
    due: Mutex<BTreeMap<SnapshotId, Option<Timestamp>>>,
    /// The snapshots that operations are using, with the number of users.
    used: Mutex<BTreeMap<SnapshotId, usize>>,
    /// Saved states of forks and rewinds in progress that were verified to their last byte just
    /// before, so that the many starts from them need not do that again.
    verified: Mutex<BTreeSet<SavedStateId>>,
    pub(crate) news: Notify,
}

impl Removals {
    /// Schedules the deletion of a snapshot, unless it is kept until its deletion is requested.
    pub(crate) fn note(&self, snapshot: &SnapshotRecord) {
        let at = match (&snapshot.status, snapshot.removal) {
            (SnapshotStatus::Deleting, _) | (_, Removal::WhenFree) => None,
            (_, Removal::At(at)) => Some(at),
            (_, Removal::Asked) => return,
        };
        self.expect(&snapshot.id, at);
    }

    pub(crate) fn expect(&self, snapshot: &SnapshotId, at: Option<Timestamp>) {
        self.due().insert(snapshot.clone(), at);
        self.poke();
    }

    /// Reports that a snapshot may have become unused.
    pub(crate) fn poke(&self) {
        self.news.notify_one();
    }

    pub(crate) fn begin_use(&self, snapshot: &SnapshotId) {
        *self.used().entry(snapshot.clone()).or_default() += 1;
    }

    pub(crate) fn end_use(&self, snapshot: &SnapshotId) {
        let mut used = self.used();
        if let Some(users) = used.get_mut(snapshot) {
            *users -= 1;
            if *users == 0 {
                used.remove(snapshot);
            }
        }
        drop(used);
        self.poke();
    }

    pub(crate) fn note_verified(&self, saved_state: &SavedStateId) {
        self.verified().insert(saved_state.clone());
    }

    pub(crate) fn forget_verified(&self, saved_state: &SavedStateId) {
        self.verified().remove(saved_state);
    }

    pub(crate) fn is_verified(&self, saved_state: &SavedStateId) -> bool {
        self.verified().contains(saved_state)
    }

    /// Returns whether an operation is using it.
    pub(crate) fn is_used(&self, snapshot: &SnapshotId) -> bool {
        self.used().contains_key(snapshot)
    }

    pub(crate) fn due(&self) -> MutexGuard<'_, BTreeMap<SnapshotId, Option<Timestamp>>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn verified(&self) -> MutexGuard<'_, BTreeSet<SavedStateId>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> MutexGuard<'_, BTreeMap<SnapshotId, usize>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While it exists, its snapshot is not deleted.
pub(crate) struct Using {
    shared: Arc<Shared>,
    snapshot: SnapshotId,
}

impl Using {
    pub(crate) fn of(shared: &Arc<Shared>, snapshot: &SnapshotId) -> Self {
        shared.removals.begin_use(snapshot);
        Self { shared: shared.clone(), snapshot: snapshot.clone() }
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        self.shared.removals.end_use(&self.snapshot);
    }
}
