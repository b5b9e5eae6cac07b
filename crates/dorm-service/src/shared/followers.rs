//! Callers that follow logs, and the records that they belong to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dorm_storage::LogId;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// Callers that follow logs, and the records that they belong to.
#[derive(Default)]
pub(crate) struct Followers(Mutex<BTreeMap<LogId, Arc<Notify>>>);

impl Followers {
    fn all(&self) -> MutexGuard<'_, BTreeMap<LogId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what ends with the next change of a log or its record.
    pub(crate) fn follow(&self, log: LogId) -> OwnedNotified {
        self.all().entry(log).or_default().clone().notified_owned()
    }

    /// Tells followers that a log or its record has changed.
    pub(crate) fn tell(&self, log: &LogId) {
        let mut all = self.all();
        if let Some(followers) = all.get(log) {
            followers.notify_waiters();
        }
        all.retain(|_, followers| Arc::strong_count(followers) > 1);
    }
}
