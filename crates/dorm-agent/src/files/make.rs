//! Creates directories and renames files.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dorm_agent_proto::{Account, Failure, FileStat, GuestPath, Parents, User};
use rustix::fs::{Gid, Uid};

use super::stat::stat;
use crate::{fault, users};

/// Creates a directory.
pub(crate) fn make_directory(path: &GuestPath, parents: Parents, owner: Option<&User>) -> Result<FileStat, Failure> {
    let owner = owner.map(users::account).transpose()?;
    match parents {
        Parents::Require => make_one(path.as_path(), owner.as_ref()),
        Parents::Create => make_missing(path.as_path(), owner.as_ref()).map(drop),
    }
    .map_err(|error| fault::on_path("create directory", path, &error))?;
    stat(path)
}

/// Creates a directory that must not exist, and its missing parents.
pub(crate) fn make_new_directory(path: &GuestPath, owner: Option<&User>) -> Result<FileStat, Failure> {
    let owner = owner.map(users::account).transpose()?;
    let failed = |error: io::Error| fault::on_path("create directory", path, &error);
    let own = without_slashes(path);
    if fs::symlink_metadata(own).is_ok() {
        return Err(Failure::Exists { path: path.clone() });
    }
    let made = make_missing(above(own), owner.as_ref()).map_err(failed)?;
    make_one(own, owner.as_ref()).map_err(|error| {
        undo(&made);
        failed(error)
    })?;
    stat(path)
}

/// Creates a directory and its missing parents, and returns those it has created, the outermost
/// first. All of them belong to `owner`.
pub(super) fn make_missing(path: &Path, owner: Option<&Account>) -> io::Result<Vec<PathBuf>> {
    let mut made = Vec::new();
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
            Ok(()) => made.push(directory.to_owned()),
            // Another process created it first.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(error) => {
                undo(&made);
                return Err(error);
            }
        }
    }
    Ok(made)
}

/// Removes directories that were created for a call that failed, unless they have entries.
fn undo(made: &[PathBuf]) {
    for directory in made.iter().rev() {
        drop(fs::remove_dir(directory));
    }
}

/// Returns the path without slashes at its end, so that its parent is that of the file.
fn without_slashes(path: &GuestPath) -> &Path {
    let bytes = path.as_bytes();
    let length = bytes.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
    Path::new(OsStr::from_bytes(&bytes[..length]))
}

fn above(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
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

/// Renames a path and creates the missing parents of the new one. If it fails, those are removed.
pub(crate) fn move_to(from: &GuestPath, to: &GuestPath, owner: Option<&User>) -> Result<FileStat, Failure> {
    let owner = owner.map(users::account).transpose()?;
    fs::symlink_metadata(without_slashes(from)).map_err(|error| fault::on_path("rename", from, &error))?;
    let made = make_missing(above(without_slashes(to)), owner.as_ref())
        .map_err(|error| fault::on_path("rename", to, &error))?;
    rename(from, to).inspect_err(|_| undo(&made))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use dorm_agent_proto::{Failure, GuestPath};

    use super::{make_new_directory, move_to};

    #[test]
    fn parents_are_made_for_what_succeeds_and_removed_with_what_fails() {
        let directory = std::env::temp_dir().join(format!("dorm-agent-make-{}", std::process::id()));
        let path = |name: &str| GuestPath::try_from(directory.join(name).as_path()).unwrap();
        make_new_directory(&path("a/b/"), None).unwrap();
        assert_eq!(make_new_directory(&path("a/b"), None), Err(Failure::Exists { path: path("a/b") }));
        fs::write(directory.join("file"), "x").unwrap();
        assert_eq!(make_new_directory(&path("file"), None), Err(Failure::Exists { path: path("file") }));
        move_to(&path("file"), &path("c/d/file"), None).unwrap();
        assert_eq!(fs::read(directory.join("c/d/file")).unwrap(), b"x");
        // A directory cannot be moved into itself.
        move_to(&path("a"), &path("a/new/below"), None).unwrap_err();
        assert!(directory.join("a/b").is_dir() && !directory.join("a/new").exists());
        assert_eq!(move_to(&path("none"), &path("e/f"), None), Err(Failure::NotFound { path: path("none") }));
        assert!(!directory.join("e").exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
