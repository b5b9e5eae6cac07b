//! Snapshots, images and imports.

use dorm_api_types as wire;
use dorm_lifecycle::{InheritedSettings, SnapshotKind};
use dorm_storage as storage;
use dorm_store::{Maker, Removal, SnapshotRecord, SnapshotStatus};

use super::{Convert, Of, time};

impl Of<SnapshotRecord> for wire::Snapshot {
    fn of(snapshot: SnapshotRecord) -> Self {
        let (status, failure) = match snapshot.status {
            SnapshotStatus::InProgress => (wire::SnapshotStatus::InProgress, None),
            SnapshotStatus::Completed => (wire::SnapshotStatus::Completed, None),
            SnapshotStatus::Failed(failure) => (wire::SnapshotStatus::Failed, Some(failure)),
            SnapshotStatus::Deleting => (wire::SnapshotStatus::Deleting, None),
        };
        Self {
            id: snapshot.id.to_string(),
            name: snapshot.name.map(|name| name.to_string()),
            kind: snapshot.kind.convert(),
            project: snapshot.project.to_string(),
            source: snapshot.source.to_string(),
            generation: snapshot.generation,
            parent: snapshot.parent.map(|parent| parent.to_string()),
            image: snapshot.image.to_string(),
            resources: snapshot.resources.convert(),
            inherited: snapshot.inherited.map(Convert::convert),
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

impl Of<InheritedSettings> for wire::InheritedSettings {
    fn of(settings: InheritedSettings) -> Self {
        let InheritedSettings { egress, port_access, port_host, port_rules, program } = settings;
        Self {
            egress: egress.convert(),
            port_access: port_access.convert(),
            port_host: port_host.map(|host| host.to_string()),
            port_rules: port_rules.convert(),
            start: program.convert(),
        }
    }
}

impl Of<SnapshotKind> for wire::SnapshotKind {
    fn of(kind: SnapshotKind) -> Self {
        match kind {
            SnapshotKind::Filesystem => Self::Filesystem,
            SnapshotKind::Memory => Self::Memory,
        }
    }
}

impl Of<wire::SnapshotKind> for SnapshotKind {
    fn of(kind: wire::SnapshotKind) -> Self {
        match kind {
            wire::SnapshotKind::Filesystem => Self::Filesystem,
            wire::SnapshotKind::Memory => Self::Memory,
        }
    }
}

impl Of<storage::Image> for wire::Image {
    fn of(image: storage::Image) -> Self {
        Self {
            digest: image.digest.to_string(),
            tags: image.tags,
            bytes: image.bytes,
            files: image.files,
            created_at: time(image.created),
            config: image.config.convert(),
            source: image.source.convert(),
            layers: image.layers,
        }
    }
}

impl Of<storage::Progress> for wire::ImportProgress {
    fn of(progress: storage::Progress) -> Self {
        let storage::Progress { stage, entries, bytes, bytes_total } = progress;
        let stage = match stage {
            storage::Stage::Waiting => wire::ImportStage::Waiting,
            storage::Stage::Fetching => wire::ImportStage::Fetching,
            storage::Stage::Unpacking => wire::ImportStage::Unpacking,
            storage::Stage::Hashing => wire::ImportStage::Hashing,
            storage::Stage::Syncing => wire::ImportStage::Syncing,
            storage::Stage::Trying => wire::ImportStage::Trying,
        };
        Self { stage, entries, bytes, bytes_total }
    }
}
