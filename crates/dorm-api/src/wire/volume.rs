//! Volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::text::Time;

/// Asks for a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Its name, unique: 1 to 63 lower-case letters, digits and hyphens.
    pub name: String,
    /// What fits on it. Default 1 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// How many sandboxes may write to it at a time. Default `one`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writers: Option<Writers>,
}

/// How many sandboxes may write to a volume at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Writers {
    /// One; others may read meanwhile.
    One,
    /// Any number.
    Many,
}

/// How a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeHealth {
    /// It is being made.
    Creating,
    /// It is whole, and nobody has it mounted.
    Idle,
    /// It is mounted.
    Mounted,
    /// Its files are gone or cannot be used.
    Broken,
    /// It is being removed.
    Deleting,
}

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What fits on it, the file system's own needs included.
    pub size_bytes: u64,
    /// What is used of it; only while it is mounted.
    pub used_bytes: Option<u64>,
    /// How many sandboxes may write to it at a time.
    pub writers: Writers,
    /// How it is.
    pub health: VolumeHealth,
    /// What is wrong with it, if anything is.
    pub problem: Option<String>,
    /// The sandboxes it is attached to, each with its state.
    pub attached_to: Vec<String>,
    /// When it was made.
    pub created_at: Time,
}

/// Some volumes, in the order of names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeList {
    /// The volumes.
    pub volumes: Vec<Volume>,
    /// `after` for the next page; none on the last one.
    #[serde(default)]
    pub next: Option<String>,
}

/// Asks for a volume in a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachVolume {
    /// Its name or id.
    pub volume: String,
    /// Where it appears: an absolute path.
    pub path: String,
    /// Whether it can only be read. Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Which directory of it appears; made where it is missing, unless it can only be read. Default: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subpath: Option<String>,
}

/// A volume that is attached to a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttachedVolume {
    /// Its id.
    pub volume: String,
    /// Where it appears.
    pub path: String,
    /// Whether it can only be read.
    pub read_only: bool,
    /// Which directory of it appears; none for all of it.
    pub subpath: Option<String>,
}

/// What becomes of the volumes of a sandbox in those that are made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FollowingVolumes {
    /// They are attached as to the source. One that takes a single writer, and to which the source writes, cannot be.
    #[default]
    Same,
    /// They are attached to be read.
    ReadOnly,
    /// None is attached.
    None,
}

/// What an entry of a directory on a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeFileKind {
    /// A plain file.
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
    /// Its name; bytes that are not UTF-8 are shown as `�`.
    pub name: String,
    /// What it is.
    pub kind: VolumeFileKind,
    /// How long it is.
    pub bytes: u64,
}

/// What is in a directory on a volume, in the order of names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeFiles {
    /// The entries.
    pub entries: Vec<VolumeFile>,
}
