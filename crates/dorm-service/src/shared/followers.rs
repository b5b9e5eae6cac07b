//! Callers that follow logs, and the records that they belong to.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dorm_storage::LogId;
use tokio::sync::watch;

/// Callers that follow logs, and the records that they belong to.
#[derive(Default)]
pub(crate) struct Followers(Mutex<BTreeMap<LogId, watch::Sender<u64>>>);

impl Followers {
    fn all(&self) -> MutexGuard<'_, BTreeMap<LogId, watch::Sender<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what changes with a log and its record.
    pub(crate) fn follow(&self, log: LogId) -> watch::Receiver<u64> {
        self.all().entry(log).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    /// Tells followers that a log or its record has changed.
    pub(crate) fn tell(&self, log: &LogId) {
        let mut all = self.all();
        all.retain(|_, sender| sender.receiver_count() > 0);
        if let Some(sender) = all.get(log) {
            sender.send_modify(|count| *count += 1);
        }
    }
}
