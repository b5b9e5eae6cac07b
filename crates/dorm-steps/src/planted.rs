//! Faults planted on purpose, which the simulator must find. No shipped build contains them.
//!
//! One of them is active in a process, chosen at run time.

use std::sync::atomic::{AtomicU8, Ordering};

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// No fault.
    None,
    /// The storage reports a saved state as durable without having synced its files.
    AcknowledgedBeforeSync,
    /// The previous sleep image is discarded when a suspend begins, not when the new one is
    /// recorded.
    ImageReleasedEarly,
    /// A guest that was paused for a saved state is not resumed if saving fails.
    MissedUndo,
    /// Snapshots are deleted at their deadline by the wall clock, even if the clock was changed.
    DeletionByWallClock,
    /// One file of a saved state is not synced before the saved state gets its name.
    FileNotSynced,
    /// The manifest of a saved state is not synced before the saved state gets its name.
    ManifestNotSynced,
    /// The directory of a saved state is not synced before the saved state gets its name.
    DraftNotSynced,
    /// The name of a saved state is not synced before the saved state is reported as durable.
    NameNotSynced,
    /// A commit that reports a failure is assumed not to have happened, and its image is removed
    /// first.
    CommitReportedFailed,
    /// A webhook gets no more events after one error of the store.
    WebhookTaskDead,
    /// A run that could not be saved is ended instead of resumed.
    RunEndedOnFailedSave,
}

static AT_WORK: AtomicU8 = AtomicU8::new(0);

/// Chooses the fault of this process.
pub fn plant(fault: Planted) {
    AT_WORK.store(fault as u8, Ordering::SeqCst);
}

/// Whether this fault was chosen.
pub fn is(fault: Planted) -> bool {
    AT_WORK.load(Ordering::SeqCst) == fault as u8
}
