//! Snapshots, images, and the daemon itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::image::{ImageConfig, ImageSource};
use super::sandbox::Resources;
use super::text::Time;

/// A snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// Its id.
    pub id: String,
    /// What is in it.
    pub kind: SnapshotKind,
    /// Whose it is.
    pub project: String,
    /// The sandbox it was taken of.
    pub source: String,
    /// That sandbox's generation.
    pub generation: u64,
    /// The snapshot that sandbox itself came from.
    pub parent: Option<String>,
    /// The digest of the image of its root filesystem.
    pub image: String,
    /// The limits of whatever starts from it.
    pub resources: Resources,
    /// When it was asked for.
    pub created_at: Time,
    /// Its size on disk; 0 until it is completed.
    pub bytes: u64,
    /// What of the disk is free again when it is deleted. Only told where snapshots are listed or described, of one that
    /// is completed.
    pub alone_bytes: Option<u64>,
    /// What it needs and shares with others: layers below it, files it has in common with them. Told with `alone_bytes`.
    pub shared_bytes: Option<u64>,
    /// Whether its files and those of the sleep image it was made of were one copy on the disk when it was made, since the
    /// file system cannot share blocks between files: damage to one is damage to the other.
    pub shares_data: bool,
    /// Who needs it, so that it cannot be deleted. Only told where it is described.
    pub held_by: Option<Vec<String>>,
    /// Its state.
    pub status: SnapshotStatus,
    /// Why it failed, if it did.
    pub reason: Option<String>,
    /// The kind of that failure, a code of errors.
    #[serde(default)]
    pub code: Option<String>,
    /// Free text, by key.
    pub labels: BTreeMap<String, String>,
    /// When it goes by itself, if it does.
    pub expires_at: Option<Time>,
    /// Whether it goes as soon as nobody uses it. Nothing can be created from it any more.
    pub goes_when_free: bool,
    /// On whose behalf it was made.
    pub made_by: Maker,
}

/// On whose behalf a snapshot was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Maker {
    /// Somebody asked for it.
    Request,
    /// The policy of its source, or a command that was to be run only after it was taken. It goes when the ladder of that
    /// policy does not keep it any more.
    Policy,
    /// Nobody here: it came in a file.
    Import,
}

/// Asks for a snapshot.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointRequest {
    /// What is to be in it. By default files alone.
    pub kind: SnapshotKind,
    /// Whether to answer when it is complete, which is the default, or as soon as it is being taken.
    pub wait: bool,
    /// Free text, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// After how many seconds it goes by itself; by default never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_secs: Option<f64>,
}

impl Default for CheckpointRequest {
    fn default() -> Self {
        Self { kind: SnapshotKind::default(), wait: true, labels: BTreeMap::new(), expires_secs: None }
    }
}

/// What is in a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotKind {
    /// Files: what starts from it boots.
    #[default]
    Filesystem,
    /// Memory, processes and files: what starts from it goes on.
    Memory,
}

/// The state of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotStatus {
    /// It is being made.
    InProgress,
    /// It is durable and can be used.
    Completed,
    /// It could not be made.
    Failed,
    /// It is being deleted.
    Deleting,
}

/// Some snapshots, in the order they were made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotList {
    /// The snapshots.
    pub snapshots: Vec<Snapshot>,
    /// `after` for the next page; none on the last one.
    #[serde(default)]
    pub next: Option<String>,
}

/// An image that sandboxes start from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Image {
    /// Its name by its content: 64 hexadecimal digits.
    pub digest: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// The length of all its files together.
    pub bytes: u64,
    /// How many files, directories and links it has.
    pub files: u64,
    /// When it was imported.
    pub created_at: Time,
    /// How programs in it are run, where it says so.
    #[serde(default)]
    pub config: ImageConfig,
    /// Where it came from, where that is known.
    #[serde(default)]
    pub source: ImageSource,
    /// The layers it is made of, the lowest first, by the SHA-256 of each.
    #[serde(default)]
    pub layers: Vec<String>,
}

/// All images, ordered by digest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImageList {
    /// The images.
    pub images: Vec<Image>,
}

/// Imports an image from the daemon's own host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportImage {
    /// A root filesystem, an OCI layout or a docker archive, as a directory or a tar archive, plain or compressed by
    /// gzip or zstd: an absolute path on the daemon's host. What it is is told by what is in it.
    pub path: String,
    /// The tag it gets. Another image may have had it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// How far an import is: data of the server-sent event `progress`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImportProgress {
    /// What it does.
    pub stage: ImportStage,
    /// Entries written so far.
    pub entries: u64,
    /// Bytes read so far.
    pub bytes: u64,
    /// Bytes there are to read; not known of a directory.
    pub bytes_total: Option<u64>,
}

/// What an import does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImportStage {
    /// Somebody else fetches the same.
    Waiting,
    /// Blobs are fetched from a registry.
    Fetching,
    /// Entries are read and written.
    Unpacking,
    /// The digest is computed.
    Hashing,
    /// The image is made durable.
    Syncing,
    /// A sandbox of it is suspended and resumed.
    Trying,
}

/// What answers here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Info {
    /// The daemon's version.
    pub version: String,
    /// The project that the key belongs to.
    pub project: String,
    /// The engine.
    pub engine: Engine,
}

/// What an engine is and can do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Engine {
    /// Its name, such as `gvisor`.
    pub name: String,
    /// Its exact build: memory snapshots are only good for the same one.
    pub build: String,
    /// Other builds whose memory snapshots can be used on this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The day on which that build was released, such as `2024-07-29`. Left out when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<String>,
    /// The CPU features that memory snapshots of this host depend on, as a digest.
    pub cpu: String,
    /// Whether user code is held back after a resume until the sandbox knows its new generation. If not, there is a
    /// window of some milliseconds.
    pub holds_after_restore: bool,
}

/// That the daemon answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`.
    pub status: String,
}
