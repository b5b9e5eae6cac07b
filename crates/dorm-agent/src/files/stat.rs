//! The metadata of files.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;

use dorm_agent_proto::{Failure, FileKind, FileStat, GuestPath, GuestString};

use crate::fault;
use crate::users::Users;

/// Returns the metadata of a path. Does not follow a link.
pub(crate) fn stat(path: &GuestPath) -> Result<FileStat, Failure> {
    let at =
        fs::symlink_metadata(path.as_path()).map_err(|error| fault::on_path("read the metadata of", path, &error))?;
    Ok(describe(path, &at, &Users::read()))
}

pub(super) fn describe(path: &GuestPath, at: &Metadata, users: &Users) -> FileStat {
    let kind = kind_of(at);
    let link = match kind {
        FileKind::Link => fs::read_link(path.as_path())
            .ok()
            .and_then(|target| GuestString::new(target.into_os_string().into_vec()).ok()),
        _ => None,
    };
    FileStat {
        kind,
        size: at.size(),
        mode: at.mode() & 0o7777,
        uid: at.uid(),
        gid: at.gid(),
        owner: users.user_name(at.uid()),
        group: users.group_name(at.gid()),
        modified_unix_ms: at.mtime().saturating_mul(1000).saturating_add(at.mtime_nsec() / 1_000_000),
        link,
    }
}

pub(super) fn kind_of(at: &Metadata) -> FileKind {
    if at.is_file() {
        FileKind::File
    } else if at.is_dir() {
        FileKind::Directory
    } else if at.is_symlink() {
        FileKind::Link
    } else {
        FileKind::Other
    }
}
