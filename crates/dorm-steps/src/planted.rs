//! Faults planted on purpose, which the simulator must find. Nothing that is shipped is built with them.
//!
//! One at a time is at work in a process, chosen at run time.

use std::sync::atomic::{AtomicU8, Ordering};

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// There is none.
    None,
    /// The storage says that a saved state is durable without having synced its files.
    AcknowledgedBeforeSync,
    /// The image before is discarded when a suspend begins, not when the new one is recorded.
    ImageReleasedEarly,
    /// A guest that was held still for a saved state is not let go on when that failed.
    MissedUndo,
    /// Snapshots are deleted at their time by the wall clock, whatever that was set to.
    DeletionByWallClock,
    /// One of a saved state's files is not synced before the saved state is named.
    FileNotSynced,
    /// A saved state's manifest is not synced before the saved state is named.
    ManifestNotSynced,
    /// What a saved state's directory lists is not synced before the saved state is named.
    DraftNotSynced,
    /// The name of a saved state is not synced before it is said to be durable.
    NameNotSynced,
    /// A commit that reports a failure is taken for one that was not made, and its image is removed first.
    CommitReportedFailed,
    /// A webhook is sent nothing any more after one error of the store.
    WebhookTaskDead,
    /// A run that could not be saved is ended instead of let go on.
    RunEndedOnFailedSave,
}

static AT_WORK: AtomicU8 = AtomicU8::new(0);

/// Chooses the fault of this process.
pub fn plant(fault: Planted) {
    AT_WORK.store(fault as u8, Ordering::SeqCst);
}

/// Whether this is the one.
pub fn is(fault: Planted) -> bool {
    AT_WORK.load(Ordering::SeqCst) == fault as u8
}
