//! Where calls that may wait for a disk are executed.

use crate::error::GvisorError;

/// Runs blocking `work` on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GvisorError> + Send + 'static,
) -> Result<T, GvisorError> {
    tokio::task::spawn_blocking(work).await?
}

/// Runs `work`, which may wait for a disk, on this thread and moves the thread's other tasks
/// elsewhere meanwhile. For the few calls between two awaits; longer work belongs into
/// [`blocking`].
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let is_shared = Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_shared { tokio::task::block_in_place(work) } else { work() }
}
