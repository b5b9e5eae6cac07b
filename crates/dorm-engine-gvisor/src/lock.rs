//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even if it is poisoned: its content is only ever replaced as a whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
