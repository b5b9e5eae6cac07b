//! The runs on this host that the daemon leaves alone.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dorm_engine::ForeignRun;
use dorm_lifecycle::RunId;

/// The runs that are left alone.
#[derive(Debug, Default)]
pub(crate) struct LeftAlone(Mutex<BTreeMap<RunId, Option<String>>>);

impl LeftAlone {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, Option<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a run of this data directory.
    pub(crate) fn note(&self, run: RunId) {
        self.lock().insert(run, None);
    }

    /// Adds a run of another data directory.
    pub(crate) fn note_foreign(&self, ForeignRun { run, owner }: ForeignRun) {
        self.lock().insert(run, Some(owner));
    }

    /// Returns the runs of this data directory.
    pub(crate) fn own(&self) -> Vec<RunId> {
        self.lock().iter().filter(|(_, owner)| owner.is_none()).map(|(run, _)| run.clone()).collect()
    }

    pub(crate) fn is_own(&self, run: &RunId) -> bool {
        self.lock().get(run).is_some_and(Option::is_none)
    }

    pub(crate) fn forget(&self, run: &RunId) {
        self.lock().remove(run);
    }

    /// Returns how many runs belong to this data directory, and to others.
    pub(crate) fn count(&self) -> (usize, usize) {
        let all = self.lock();
        let own = all.values().filter(|owner| owner.is_none()).count();
        (own, all.len() - own)
    }

    /// Returns every run, with the data directory that it belongs to if that is another one.
    pub(crate) fn all(&self) -> BTreeMap<RunId, Option<String>> {
        self.lock().clone()
    }
}
