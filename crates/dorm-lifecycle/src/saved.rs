//! Saved states of a sandbox: kinds of snapshots, and sleep images.

use crate::ids::SavedStateId;
use crate::time::Timestamp;

/// The content of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SnapshotKind {
    /// Files: a sandbox that starts from it boots. The default.
    #[default]
    Filesystem,
    /// Files, memory and processes: a sandbox that starts from it continues where the snapshot was
    /// taken.
    Memory,
}

impl SnapshotKind {
    /// Returns the word for it in records, answers and documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Filesystem => "filesystem",
            Self::Memory => "memory",
        }
    }
}

/// The private saved state that a suspended sandbox wakes from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SleepImage {
    /// Its saved state on disk.
    pub saved_state: SavedStateId,
    /// The generation that was saved; 0 if it belonged to another sandbox, to whose snapshot this
    /// one was rewound.
    pub generation: u64,
    /// When the guest was paused for it.
    pub taken: Timestamp,
    /// Its size in bytes.
    pub bytes: u64,
}
