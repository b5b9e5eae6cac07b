//! Snapshots, images, and the daemon itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::egress::Egress;
use crate::image::{ImageConfig, ImageSource};
use crate::key::{PortAccess, PortRule};
use crate::resources::Resources;
use crate::text::Time;

/// A snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// ID of the snapshot.
    pub id: String,
    /// Name under which the snapshot serves as an image, if it has one.
    #[serde(default)]
    pub name: Option<String>,
    /// Contents of the snapshot.
    pub kind: SnapshotKind,
    /// Project that the snapshot belongs to.
    pub project: String,
    /// ID of the sandbox that the snapshot was taken from.
    pub source: String,
    /// Generation of that sandbox.
    pub generation: u64,
    /// ID of the snapshot that that sandbox was created from.
    pub parent: Option<String>,
    /// Digest of the image that its root file system is based on.
    pub image: String,
    /// Resource limits of sandboxes that start from the snapshot.
    pub resources: Resources,
    /// Settings that sandboxes that start from the snapshot have by default. Null if they are not
    /// known: then the general defaults hold.
    #[serde(default)]
    pub inherited: Option<InheritedSettings>,
    /// When the snapshot was requested.
    pub created_at: Time,
    /// Size on disk in bytes. 0 until the snapshot is completed.
    pub bytes: u64,
    /// Disk space that deleting the snapshot frees. Only present for completed snapshots in lists
    /// and in `GET /v1/snapshots/{id}`.
    pub alone_bytes: Option<u64>,
    /// Disk space that the snapshot needs and shares with others: layers below it and common files.
    /// Present together with `alone_bytes`.
    pub shared_bytes: Option<u64>,
    /// Whether the snapshot and the sleep image it was made from were one copy on disk when it was
    /// made, because the file system cannot share blocks between files. Damage to one is damage to
    /// the other.
    pub shares_data: bool,
    /// Users of the snapshot, which prevent its deletion. Only present in `GET /v1/snapshots/{id}`.
    pub held_by: Option<Vec<String>>,
    /// Status of the snapshot.
    pub status: SnapshotStatus,
    /// Why the snapshot failed, if it did.
    pub reason: Option<String>,
    /// Error code of that failure.
    #[serde(default)]
    pub code: Option<String>,
    /// Labels: arbitrary strings by key.
    pub labels: BTreeMap<String, String>,
    /// When the snapshot is deleted automatically, if it is.
    pub expires_at: Option<Time>,
    /// Whether the snapshot is deleted as soon as nothing uses it. Nothing can be created from it
    /// any more.
    pub goes_when_free: bool,
    /// Why the snapshot was made.
    pub made_by: Maker,
}

/// Settings of the source of a snapshot when it was taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct InheritedSettings {
    /// Where a sandbox may connect to.
    pub egress: Egress,
    /// Who can reach its ports.
    pub port_access: PortAccess,
    /// `Host` header that programs behind the ports get; null for the host that the client named.
    pub port_host: Option<String>,
    /// Exceptions for single ports, by the number of the port.
    pub port_rules: BTreeMap<u16, PortRule>,
    /// Whether a boot starts the entrypoint and command of the image. In a memory snapshot they ran
    /// already.
    pub start: bool,
}

/// Why a snapshot was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Maker {
    /// A request asked for it.
    Request,
    /// An automatic checkpoint, or the checkpoint before a command. It is deleted by the retention
    /// rule of the policy.
    Policy,
    /// It was imported or pulled.
    Import,
}

/// Takes a snapshot.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointRequest {
    /// Contents of the snapshot. Default `filesystem`.
    pub kind: SnapshotKind,
    /// Name under which the snapshot serves as an image: `NAME` or `NAME:TAG`, unique among the
    /// snapshots of the project that can be used. It must not be the name of an image or a
    /// template. Deleting the snapshot frees it. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Respond when the snapshot is completed. If false, respond as soon as it is in progress.
    /// Default: true.
    pub wait: bool,
    /// Labels: arbitrary strings by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Delete the snapshot automatically after this many seconds. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_secs: Option<f64>,
}

impl Default for CheckpointRequest {
    fn default() -> Self {
        Self { kind: SnapshotKind::default(), name: None, wait: true, labels: BTreeMap::new(), expires_secs: None }
    }
}

/// Contents of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotKind {
    /// Files. A sandbox that starts from it boots.
    #[default]
    Filesystem,
    /// Memory, processes and files. A sandbox that starts from it continues running.
    Memory,
}

/// Status of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotStatus {
    /// Being made.
    InProgress,
    /// Durable and ready to use.
    Completed,
    /// Could not be made.
    Failed,
    /// Being deleted.
    Deleting,
}

/// A page of snapshots, ordered by creation time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotList {
    /// The snapshots.
    pub snapshots: Vec<Snapshot>,
    /// Cursor: `after` of the next page. Null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}

/// An image that sandboxes boot from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Image {
    /// Digest of the contents: 64 hexadecimal digits.
    pub digest: String,
    /// Tags of the image.
    pub tags: Vec<String>,
    /// Total size of its files in bytes.
    pub bytes: u64,
    /// Number of files, directories and links.
    pub files: u64,
    /// When the image was imported.
    pub created_at: Time,
    /// How programs of the image run by default.
    #[serde(default)]
    pub config: ImageConfig,
    /// Where the image came from, if it is known.
    #[serde(default)]
    pub source: ImageSource,
    /// SHA-256 digests of its layers, lowest first.
    #[serde(default)]
    pub layers: Vec<String>,
}

/// A page of images, ordered by digest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImageList {
    /// The images.
    pub images: Vec<Image>,
    /// Cursor: `after` of the next page. Null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}

/// Imports an image from a path on the daemon's host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportImage {
    /// Absolute path of a directory or a tar archive, plain or compressed with gzip or zstd, with a
    /// root file system, an OCI layout or a Docker archive. The format is detected from the
    /// contents.
    pub path: String,
    /// Tag for the image. An image that has this tag loses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Progress of a long operation. Data of the server-sent event `progress`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImportProgress {
    /// Current stage.
    pub stage: ImportStage,
    /// Number of entries written so far.
    pub entries: u64,
    /// Number of bytes read so far.
    pub bytes: u64,
    /// Total number of bytes. Null if the source is a directory.
    pub bytes_total: Option<u64>,
}

/// Stage of a long operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImportStage {
    /// Another request is fetching the same data.
    Waiting,
    /// Fetching data from a registry.
    Fetching,
    /// Reading and writing entries.
    Unpacking,
    /// Computing the digest.
    Hashing,
    /// Making the data durable.
    Syncing,
    /// Suspending and resuming a sandbox of the image.
    Trying,
}

/// Version and engine of the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Info {
    /// Version of the daemon.
    pub version: String,
    /// Project of the API key.
    pub project: String,
    /// The engine.
    pub engine: Engine,
    /// Addresses of the listeners for other clients, by name, such as `e2b`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub doors: BTreeMap<String, String>,
}

/// An engine and its capabilities.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Engine {
    /// Name, such as `gvisor`.
    pub name: String,
    /// Exact build.
    pub build: String,
    /// Format of the build's memory snapshots. They can be restored by every build with the same
    /// format. Left out if it is not known: then only the same build can restore them, and
    /// filesystem snapshots may fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Other builds on this host. They are used only for memory that `build` cannot restore.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// Release date of the build, such as `2024-07-29`. Left out if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<String>,
    /// Digest of the CPU features that memory snapshots of this host depend on.
    pub cpu: String,
    /// Whether the memory of a resumed sandbox is mapped from its saved state, and a page is copied
    /// only when it is written. Forks of one snapshot then share it.
    pub maps_memory: bool,
    /// Why memory is copied instead. Left out if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies_memory_because: Option<String>,
    /// Whether the file system of the data directory can share blocks between images.
    pub shares_blocks: bool,
    /// Whether user code is paused after a resume until the sandbox knows its new generation. If
    /// not, it may run for some milliseconds before.
    pub holds_after_restore: bool,
}

/// Health of the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    pub status: String,
}
