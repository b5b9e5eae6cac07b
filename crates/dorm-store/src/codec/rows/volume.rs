//! The rows of volumes and attachments, to the domain's types and back.

use dorm_lifecycle::{Access, Attachment, MountPath, Name, ProjectId, SubPath, VolumeId, Writers};
use serde::{Deserialize, Serialize};

use crate::codec::word::{Millis, Text};
use crate::{VolumeRecord, VolumeStatus, codec};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct VolumeRow {
    v: u64,
    id: Text<VolumeId>,
    project: Text<ProjectId>,
    name: Text<Name>,
    size_bytes: u64,
    writers: WritersRow,
    created: Millis,
    status: StatusRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WritersRow {
    One,
    Many,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StatusRow {
    Creating,
    Ready,
    Deleting,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttachmentRow {
    volume: Text<VolumeId>,
    path: Text<MountPath>,
    access: AccessRow,
    subpath: Text<SubPath>,
    slot: u8,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AccessRow {
    Write,
    Read,
}

impl From<&VolumeRecord> for VolumeRow {
    fn from(record: &VolumeRecord) -> Self {
        let VolumeRecord { id, project, name, size_bytes, writers, created, status } = record;
        Self {
            v: codec::VOLUME,
            id: Text(id.clone()),
            project: Text(project.clone()),
            name: Text(name.clone()),
            size_bytes: *size_bytes,
            writers: match writers {
                Writers::One => WritersRow::One,
                Writers::Many => WritersRow::Many,
            },
            created: Millis(*created),
            status: match status {
                VolumeStatus::Creating => StatusRow::Creating,
                VolumeStatus::Ready => StatusRow::Ready,
                VolumeStatus::Deleting => StatusRow::Deleting,
            },
        }
    }
}

impl From<VolumeRow> for VolumeRecord {
    fn from(row: VolumeRow) -> Self {
        Self {
            id: row.id.0,
            project: row.project.0,
            name: row.name.0,
            size_bytes: row.size_bytes,
            writers: match row.writers {
                WritersRow::One => Writers::One,
                WritersRow::Many => Writers::Many,
            },
            created: row.created.0,
            status: match row.status {
                StatusRow::Creating => VolumeStatus::Creating,
                StatusRow::Ready => VolumeStatus::Ready,
                StatusRow::Deleting => VolumeStatus::Deleting,
            },
        }
    }
}

impl From<&Attachment> for AttachmentRow {
    fn from(attachment: &Attachment) -> Self {
        let Attachment { volume, path, access, subpath, slot } = attachment;
        Self {
            volume: Text(volume.clone()),
            path: Text(path.clone()),
            access: match access {
                Access::Write => AccessRow::Write,
                Access::Read => AccessRow::Read,
            },
            subpath: Text(subpath.clone()),
            slot: *slot,
        }
    }
}

impl From<AttachmentRow> for Attachment {
    fn from(row: AttachmentRow) -> Self {
        Self {
            volume: row.volume.0,
            path: row.path.0,
            access: match row.access {
                AccessRow::Write => Access::Write,
                AccessRow::Read => Access::Read,
            },
            subpath: row.subpath.0,
            slot: row.slot,
        }
    }
}
