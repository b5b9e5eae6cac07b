//! What is remembered of a volume. Who has it mounted is not here: that follows from the records of sandboxes.

use dorm_lifecycle::{Name, ProjectId, Timestamp, VolumeId, Writers};

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeRecord {
    /// Its id.
    pub id: VolumeId,
    /// Whose it is.
    pub project: ProjectId,
    /// Its name, unique per project.
    pub name: Name,
    /// What fits on it, in bytes.
    pub size_bytes: u64,
    /// How many may write to it at a time.
    pub writers: Writers,
    /// When it was made.
    pub created: Timestamp,
    /// How far its life is.
    pub status: VolumeStatus,
}

/// How far the life of a volume is. What is recorded as on its way is brought to its end by the next daemon.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VolumeStatus {
    /// Its files are being made; after a crash what there is of them goes.
    Creating,
    /// It can be used.
    Ready,
    /// It goes, and nobody can use it any more.
    Deleting,
}
