//! Saved states of a sandbox: kinds of snapshots, and sleep images.

use crate::ids::{SavedStateId, SnapshotId};
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

/// The part of a sandbox that a suspend keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Keep {
    /// Its memory, processes and files: it continues where it stopped. The default.
    #[default]
    Memory,
    /// Its files: it boots from them.
    Files,
}

impl Keep {
    /// Returns the word for it in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Files => "files",
        }
    }
}

/// The saved state that a suspended sandbox wakes from. One of memory belongs to the sandbox alone;
/// one of files is the layer that the sandbox is based on from then on, which a snapshot holds.
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
    /// The filesystem snapshot that holds it, if it keeps files only.
    pub files: Option<SnapshotId>,
}

impl SleepImage {
    /// Returns what it keeps.
    pub const fn keeps(&self) -> Keep {
        match self.files {
            Some(_) => Keep::Files,
            None => Keep::Memory,
        }
    }
}
