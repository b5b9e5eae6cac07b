//! Work that waits for a disk, on threads that may block.

use std::cell::Cell;

use crate::error::StorageError;
use crate::steps::Steps;

/// Does blocking work without blocking other tasks. Work that belongs to a dead process does not
/// begin.
pub(crate) async fn blocking<T: Send + 'static>(
    steps: &Steps,
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    if !steps.in_place() {
        return tokio::task::spawn_blocking(|| may_block(work))
            .await
            .unwrap_or_else(|error| Err(StorageError::Interrupted(error)));
    }
    let done = if steps.alive() { Some(work()) } else { None };
    match done {
        Some(done) if steps.alive() => done,
        Some(_) | None => std::future::pending().await,
    }
}

thread_local! {
    /// Whether this thread may block, although it belongs to a runtime.
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
}

fn may_block<T>(work: impl FnOnce() -> T) -> T {
    let before = MAY_BLOCK.replace(true);
    let done = work();
    MAY_BLOCK.set(before);
    done
}

/// Does blocking work without waiting for its end. A thread that may block does it at once.
pub(crate) fn elsewhere(steps: &Steps, work: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) if !steps.in_place() && !MAY_BLOCK.get() => drop(runtime.spawn_blocking(|| may_block(work))),
        Ok(_) | Err(_) => work(),
    }
}
