//! Requests that carry a key, and locks by key: work for one key waits for other work for the same
//! key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dorm_lifecycle::{ProjectId, RequestId, Timestamp};
use dorm_store::{Made, RequestRecord};
use tokio::sync::OwnedMutexGuard;

/// A lock for each key that is in use.
pub(crate) struct KeyedLocks<K>(Mutex<BTreeMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone> KeyedLocks<K> {
    /// Returns the lock of a key, and forgets those that are no longer used.
    pub(crate) fn of(&self, key: &K) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(key.clone()).or_default().clone()
    }
}

/// A request with an idempotency key, while it has its turn.
pub(crate) struct KeyedRequest {
    pub(crate) id: RequestId,
    pub(crate) project: ProjectId,
    pub(crate) fingerprint: [u8; 32],
    /// The object that an earlier request with the key has made.
    pub(crate) earlier: Option<Made>,
    pub(crate) _turn: OwnedMutexGuard<()>,
}

impl KeyedRequest {
    /// Returns the record that belongs to the change that records what was made.
    pub(crate) fn record(&self, made: Made, at: Timestamp) -> RequestRecord {
        let (id, project) = (self.id.clone(), self.project.clone());
        RequestRecord { id, project, fingerprint: self.fingerprint, made, at }
    }
}
