//! The sandboxes that are paused for lack of disk space, and how much there was.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dorm_lifecycle::SandboxId;

/// The sandboxes that are paused for lack of disk space.
#[derive(Debug, Default)]
pub(crate) struct PausedForDisk {
    sandboxes: Mutex<BTreeSet<SandboxId>>,
    free: AtomicU64,
}

impl PausedForDisk {
    pub(crate) fn holds(&self, sandbox: &SandboxId) -> bool {
        self.lock().contains(sandbox)
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn enter(&self, sandbox: &SandboxId) {
        self.lock().insert(sandbox.clone());
    }

    /// Returns whether it was paused.
    pub(crate) fn leave(&self, sandbox: &SandboxId) -> bool {
        self.lock().remove(sandbox)
    }

    /// Returns the number of free bytes at the last check.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    pub(crate) fn all(&self) -> Vec<SandboxId> {
        self.lock().iter().cloned().collect()
    }

    /// Records the number of free bytes.
    pub(crate) fn set_free_bytes(&self, free: u64) {
        self.free.store(free, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<SandboxId>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
