//! Volumes.

use dorm_api_types as wire;
use dorm_lifecycle as life;
use dorm_service::{FileEntry, FileKind, Health, VolumeView};
use dorm_store::VolumeStatus;

use super::{Of, time};
use crate::error::ApiError;

/// A volume to attach.
pub(crate) fn attach(asked: wire::AttachVolume) -> Result<dorm_service::AttachmentSpec, ApiError> {
    let wrong = |error: life::PlaceError| ApiError::invalid(error.to_string(), "");
    let path = asked.path.parse().map_err(wrong)?;
    let subpath = asked.subpath.unwrap_or_default().parse().map_err(wrong)?;
    let access = if asked.read_only { life::Access::Read } else { life::Access::Write };
    let mut attach = dorm_service::AttachmentSpec::new(asked.volume, path);
    (attach.access, attach.subpath) = (access, subpath);
    Ok(attach)
}

impl Of<life::Attachment> for wire::AttachedVolume {
    fn of(attachment: life::Attachment) -> Self {
        let life::Attachment { volume, path, access, subpath, slot: _ } = attachment;
        Self {
            volume: volume.to_string(),
            path: path.to_string(),
            read_only: access == life::Access::Read,
            subpath: (!subpath.is_whole()).then(|| subpath.to_string()),
        }
    }
}

impl Of<wire::FollowingVolumes> for dorm_service::FollowingVolumes {
    fn of(how: wire::FollowingVolumes) -> Self {
        match how {
            wire::FollowingVolumes::Same => Self::Same,
            wire::FollowingVolumes::ReadOnly => Self::ReadOnly,
            wire::FollowingVolumes::None => Self::None,
        }
    }
}

impl Of<wire::Writers> for life::Writers {
    fn of(writers: wire::Writers) -> Self {
        match writers {
            wire::Writers::One => Self::One,
            wire::Writers::Many => Self::Many,
        }
    }
}

impl Of<VolumeView> for wire::Volume {
    fn of(view: VolumeView) -> Self {
        let VolumeView { volume, health, attached_to } = view;
        let (health, used_bytes, problem) = match (volume.status, health) {
            (VolumeStatus::Creating, _) => (wire::VolumeHealth::Creating, None, None),
            (VolumeStatus::Deleting, _) => (wire::VolumeHealth::Deleting, None, None),
            (VolumeStatus::Ready, Health::Idle) => (wire::VolumeHealth::Idle, None, None),
            (VolumeStatus::Ready, Health::Mounted { used_bytes, size_bytes: _ }) => {
                (wire::VolumeHealth::Mounted, Some(used_bytes), None)
            }
            (VolumeStatus::Ready, Health::Broken(problem)) => (wire::VolumeHealth::Broken, None, Some(problem)),
        };
        Self {
            id: volume.id.to_string(),
            name: volume.name.to_string(),
            size_bytes: volume.size_bytes,
            used_bytes,
            writers: match volume.writers {
                life::Writers::One => wire::Writers::One,
                life::Writers::Many => wire::Writers::Many,
            },
            health,
            problem,
            attached_to,
            created_at: time(volume.created),
        }
    }
}

impl Of<FileEntry> for wire::VolumeFile {
    fn of(entry: FileEntry) -> Self {
        let kind = match entry.kind {
            FileKind::File => wire::VolumeFileKind::File,
            FileKind::Directory => wire::VolumeFileKind::Directory,
            FileKind::Symlink => wire::VolumeFileKind::Symlink,
            FileKind::Other => wire::VolumeFileKind::Other,
        };
        Self { name: entry.name, kind, bytes: entry.bytes }
    }
}
