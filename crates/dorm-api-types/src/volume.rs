//! Volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::Time;

/// Creates a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Unique name: 1 to 63 lower-case letters, digits and hyphens.
    pub name: String,
    /// Size in bytes. Default 1 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// How many sandboxes may write to the volume at the same time. Default `one`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writers: Option<Writers>,
}

/// How many sandboxes may write to a volume at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Writers {
    /// One. Others may read at the same time.
    One,
    /// Any number.
    Many,
}

/// Health of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeHealth {
    /// Being created.
    Creating,
    /// Ready and not mounted.
    Idle,
    /// Mounted.
    Mounted,
    /// Its files are missing or unusable.
    Broken,
    /// Being deleted.
    Deleting,
}

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// ID of the volume.
    pub id: String,
    /// Name of the volume.
    pub name: String,
    /// Size in bytes, including the overhead of the file system.
    pub size_bytes: u64,
    /// Used space in bytes. Only known while the volume is mounted.
    pub used_bytes: Option<u64>,
    /// How many sandboxes may write to the volume at the same time.
    pub writers: Writers,
    /// Health of the volume.
    pub health: VolumeHealth,
    /// The problem with the volume, if there is one.
    pub problem: Option<String>,
    /// Sandboxes that the volume is attached to, each with its state.
    pub attached_to: Vec<String>,
    /// When the volume was created.
    pub created_at: Time,
}

/// A page of volumes, ordered by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeList {
    /// The volumes.
    pub volumes: Vec<Volume>,
    /// Cursor: `after` of the next page. Null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}

/// Attaches a volume to a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachVolume {
    /// Name or ID of the volume.
    pub volume: String,
    /// Absolute path in the sandbox at which the volume appears.
    pub path: String,
    /// Attach the volume read-only. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Directory of the volume to attach. It is created if it is missing, unless the volume is
    /// attached read-only. Default: the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subpath: Option<String>,
}

/// A volume that is attached to a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttachedVolume {
    /// ID of the volume.
    pub volume: String,
    /// Path in the sandbox at which the volume appears.
    pub path: String,
    /// Whether the volume is attached read-only.
    pub read_only: bool,
    /// Attached directory of the volume. Null for the whole volume.
    pub subpath: Option<String>,
}

/// How the volumes of a sandbox are attached to its clones and forks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FollowingVolumes {
    /// As in the source. A volume with a single writer to which the source writes cannot be
    /// attached.
    #[default]
    Same,
    /// Read-only.
    ReadOnly,
    /// Not at all.
    None,
}

/// Type of a file on a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeFileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Anything else.
    Other,
}

/// An entry of a directory on a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeFile {
    /// Name of the entry. Bytes that are not UTF-8 are shown as `�`.
    pub name: String,
    /// Type of the file.
    pub kind: VolumeFileKind,
    /// Size in bytes.
    pub bytes: u64,
}

/// Entries of a directory on a volume, ordered by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeFiles {
    /// The entries.
    pub entries: Vec<VolumeFile>,
}
