//! The record of a volume. Its mounts are not stored here: they follow from the records of
//! sandboxes.

use dorm_lifecycle::{Name, ProjectId, Timestamp, VolumeId, Writers};

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeRecord {
    /// Its id.
    pub id: VolumeId,
    /// The project it belongs to.
    pub project: ProjectId,
    /// Its name, unique per project.
    pub name: Name,
    /// Its capacity in bytes.
    pub size_bytes: u64,
    /// How many sandboxes may write to it at a time.
    pub writers: Writers,
    /// When it was created.
    pub created: Timestamp,
    /// Its status.
    pub status: VolumeStatus,
}

/// The status of a volume. A change that is on record as in progress is finished by the next
/// daemon.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VolumeStatus {
    /// Its files are being created; after a crash they are removed.
    Creating,
    /// It can be used.
    Ready,
    /// It is being deleted and can no longer be used.
    Deleting,
}
