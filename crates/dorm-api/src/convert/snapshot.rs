//! Snapshots, images and imports.

use dorm_lifecycle::SnapshotKind;
use dorm_pool as pool;
use dorm_store::{Maker, Removal, SnapshotRecord, SnapshotStatus};

use super::time;
use crate::wire;

impl From<SnapshotRecord> for wire::Snapshot {
    fn from(snapshot: SnapshotRecord) -> Self {
        let (status, failure) = match snapshot.status {
            SnapshotStatus::InProgress => (wire::SnapshotStatus::InProgress, None),
            SnapshotStatus::Completed => (wire::SnapshotStatus::Completed, None),
            SnapshotStatus::Failed(failure) => (wire::SnapshotStatus::Failed, Some(failure)),
            SnapshotStatus::Deleting => (wire::SnapshotStatus::Deleting, None),
        };
        Self {
            id: snapshot.id.to_string(),
            kind: snapshot.kind.into(),
            project: snapshot.project.to_string(),
            source: snapshot.source.to_string(),
            generation: snapshot.generation,
            parent: snapshot.parent.map(|parent| parent.to_string()),
            image: snapshot.image.to_string(),
            resources: snapshot.resources.into(),
            created_at: time(snapshot.created),
            bytes: snapshot.bytes,
            alone_bytes: None,
            shared_bytes: None,
            shares_data: snapshot.shares_data,
            held_by: None,
            status,
            code: failure.as_ref().map(|failure| failure.code.as_str().to_owned()),
            reason: failure.map(|failure| failure.reason),
            labels: snapshot.labels,
            expires_at: match snapshot.removal {
                Removal::At(at) => Some(time(at)),
                Removal::Asked | Removal::WhenFree => None,
            },
            goes_when_free: snapshot.removal == Removal::WhenFree,
            made_by: match snapshot.made_by {
                Maker::Request => wire::Maker::Request,
                Maker::Policy => wire::Maker::Policy,
                Maker::Import => wire::Maker::Import,
            },
        }
    }
}

impl From<SnapshotKind> for wire::SnapshotKind {
    fn from(kind: SnapshotKind) -> Self {
        match kind {
            SnapshotKind::Filesystem => Self::Filesystem,
            SnapshotKind::Memory => Self::Memory,
        }
    }
}

impl From<wire::SnapshotKind> for SnapshotKind {
    fn from(kind: wire::SnapshotKind) -> Self {
        match kind {
            wire::SnapshotKind::Filesystem => Self::Filesystem,
            wire::SnapshotKind::Memory => Self::Memory,
        }
    }
}

impl From<pool::Image> for wire::Image {
    fn from(image: pool::Image) -> Self {
        Self {
            digest: image.digest.to_string(),
            tags: image.tags,
            bytes: image.bytes,
            files: image.files,
            created_at: time(image.created),
            config: image.config.into(),
            source: image.source.into(),
            layers: image.layers,
        }
    }
}

impl From<pool::Progress> for wire::ImportProgress {
    fn from(progress: pool::Progress) -> Self {
        let pool::Progress { stage, entries, bytes, bytes_total } = progress;
        let stage = match stage {
            pool::Stage::Waiting => wire::ImportStage::Waiting,
            pool::Stage::Fetching => wire::ImportStage::Fetching,
            pool::Stage::Unpacking => wire::ImportStage::Unpacking,
            pool::Stage::Hashing => wire::ImportStage::Hashing,
            pool::Stage::Syncing => wire::ImportStage::Syncing,
            pool::Stage::Trying => wire::ImportStage::Trying,
        };
        Self { stage, entries, bytes, bytes_total }
    }
}
