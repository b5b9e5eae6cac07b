//! Removing trees.
//!
//! A guest can make a tree of any depth, so at most [`LEVELS_MAX`] directories are open at once:
//! deeper ones are moved up into the directory that is being removed, and removed by another pass.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::open_parent;
use crate::files::draft_name;
use crate::{EntryPath, Inner};

/// The most directories that are open at once.
const LEVELS_MAX: usize = 32;
/// The most passes over a directory. One pass removes [`LEVELS_MAX`] levels.
const PASSES_MAX: usize = 65_536;
/// The most passes after which the directory is not empty only because a sandbox adds to it.
const RACES_MAX: usize = 16;

/// Removes an entry and everything below it.
pub(super) fn remove(inner: &Inner, top: &OwnedFd, path: &EntryPath) -> io::Result<()> {
    let Some((above, name)) = path.split() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is the top of the volume; remove its entries"));
    };
    let parent = open_parent(top, above)?;
    let name = CString::new(name)?;
    let facts = rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(facts.st_mode) {
        FileType::Directory => {
            remove_directory(inner, &parent, &name)?;
        }
        _ => rustix::fs::unlinkat(&parent, &name, AtFlags::empty())?,
    }
    inner.steps.reach("volume: entry removed")?;
    Ok(rustix::fs::fsync(&parent)?)
}

fn remove_directory(inner: &Inner, parent: &OwnedFd, name: &CStr) -> io::Result<()> {
    let root = open_directory(parent, name)?;
    let mut races = 0;
    for _ in 0..PASSES_MAX {
        let moved = clear(&root)?;
        inner.steps.reach("volume: tree cleared")?;
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            // The name may be of another directory by now, which a sandbox has put there.
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) if moved > 0 => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) if races < RACES_MAX => races += 1,
            Err(Errno::NOTEMPTY | Errno::EXIST) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "a sandbox adds entries to it meanwhile"))
}

/// A directory that is being emptied.
struct Level {
    directory: Dir,
    name: CString,
}

/// Removes the entries of `root`. Returns how many directories were moved up into it.
fn clear(root: &OwnedFd) -> io::Result<usize> {
    let mut moved = 0;
    let mut levels = vec![Level { directory: Dir::read_from(root)?, name: CString::default() }];
    loop {
        let is_deepest = levels.len() == LEVELS_MAX;
        let Some(level) = levels.last_mut() else { return Ok(moved) };
        let Some(entry) = level.directory.read() else {
            let done = levels.pop();
            if let (Some(done), Some(above)) = (done, levels.last()) {
                ignoring(rustix::fs::unlinkat(above.directory.fd()?, &done.name, AtFlags::REMOVEDIR))?;
            }
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let directory = level.directory.fd()?;
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        let name = name.to_owned();
        let below = match open_directory(directory, &name) {
            Ok(below) => below,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        if !is_deepest {
            levels.push(Level { directory: Dir::new(below)?, name });
        } else if ignoring(rustix::fs::renameat(directory, &name, root, draft_name()?))? {
            moved += 1;
        }
    }
}

/// Whether a change was made. A change by a sandbox meanwhile is no error: another pass sees it.
fn ignoring(changed: Result<(), Errno>) -> io::Result<bool> {
    match changed {
        Ok(()) => Ok(true),
        Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn open_directory(above: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty())
}
