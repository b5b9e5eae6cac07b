//! Blocking work on a thread that runs tasks.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs work that may wait for the disk, and moves the other tasks of this thread elsewhere
/// meanwhile.
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    let is_shared = Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_shared { tokio::task::block_in_place(work) } else { work() }
}
