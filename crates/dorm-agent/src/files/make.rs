//! Creates directories and renames files.

use std::fs;
use std::io;
use std::path::Path;

use dorm_agent_proto::{Account, Failure, FileStat, GuestPath, Parents, User};
use rustix::fs::{Gid, Uid};

use super::stat::stat;
use crate::{fault, users};

/// Creates a directory.
pub(crate) fn make_directory(path: &GuestPath, parents: Parents, owner: Option<&User>) -> Result<FileStat, Failure> {
    let owner = owner.map(users::account).transpose()?;
    match parents {
        Parents::Require => make_one(path.as_path(), owner.as_ref()),
        Parents::Create => make_missing(path.as_path(), owner.as_ref()),
    }
    .map_err(|error| fault::on_path("create directory", path, &error))?;
    stat(path)
}

/// Creates a directory and its missing parents. All new ones belong to `owner`.
pub(super) fn make_missing(path: &Path, owner: Option<&Account>) -> io::Result<()> {
    let mut missing = Vec::new();
    for ancestor in path.ancestors() {
        match fs::metadata(ancestor) {
            Ok(at) if at.is_dir() => break,
            Ok(_) => return Err(io::Error::from(rustix::io::Errno::NOTDIR)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(ancestor),
            Err(error) => return Err(error),
        }
    }
    for directory in missing.into_iter().rev() {
        match make_one(directory, owner) {
            // Another process created it first.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            result => result?,
        }
    }
    Ok(())
}

fn make_one(path: &Path, owner: Option<&Account>) -> io::Result<()> {
    fs::create_dir(path)?;
    match owner {
        Some(owner) => Ok(rustix::fs::chown(path, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?),
        None => Ok(()),
    }
}

/// Renames a path. The failure names the path that caused it.
pub(crate) fn rename(from: &GuestPath, to: &GuestPath) -> Result<FileStat, Failure> {
    fs::rename(from.as_path(), to.as_path()).map_err(|error| {
        let source_is_there = fs::symlink_metadata(from.as_path()).is_ok();
        fault::on_path("rename", if source_is_there { to } else { from }, &error)
    })?;
    stat(to)
}
