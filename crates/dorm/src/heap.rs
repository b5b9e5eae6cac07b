//! The heap of the daemon. Without the rules here, the C library gives each thread a heap of its
//! own, in which memory that was freed stays: an idle daemon had twice the memory it needs.

use std::time::Duration;

/// How many heaps the threads share.
const HEAPS: libc::c_int = 2;
/// A heap without much to return is looked through in less than a millisecond.
const EVERY: Duration = Duration::from_secs(10);

/// Makes all threads share two heaps. To be called before there is a second thread.
pub(crate) fn share() {
    // SAFETY: two numbers; if the C library refuses them, nothing changes.
    #[allow(unsafe_code)]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS)
    };
}

/// Returns free memory to the host every ten seconds.
pub(crate) async fn keep_small() {
    loop {
        tokio::time::sleep(EVERY).await;
        let trimmed = tokio::task::spawn_blocking(|| {
            // SAFETY: the C library locks each heap meanwhile, and touches only what is free.
            #[allow(unsafe_code)]
            unsafe {
                libc::malloc_trim(0)
            };
        });
        if trimmed.await.is_err() {
            return;
        }
    }
}
