//! Trees of entries.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use dorm_guest_ids::GuestIds;
use dorm_lifecycle::VolumeId;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{EntryStat, shown, target};
use crate::files::{FileKind, open_below, wrong};
use crate::{EntryPath, VolumeError, Volumes};

/// The most entries that [`Volumes::list_tree`] returns.
pub const ENTRIES_MAX: usize = 10_000;
/// The most levels that [`Volumes::list_tree`] descends.
pub const DEPTH_MAX: u32 = 64;
/// The most bytes of paths that [`Volumes::list_tree`] returns.
const TEXT_BYTES_MAX: usize = 8 << 20;

impl Volumes {
    /// Returns the entries of a directory, and those below it to a depth of `depth` levels, at most
    /// [`DEPTH_MAX`]. Entries are sorted by name, and each directory is followed by its own.
    /// Symbolic links are not followed below `path`.
    ///
    /// # Errors
    /// [`VolumeError::Path`]; [`VolumeError::TooMany`] for more than [`ENTRIES_MAX`] entries, or
    /// paths that are too long altogether.
    pub async fn list_tree(&self, id: &VolumeId, path: &EntryPath, depth: u32) -> Result<Vec<EntryStat>, VolumeError> {
        let (key, id, path) = (id.clone(), id.clone(), path.clone());
        self.with_content(&key, move |inner, top| {
            let failed = |stopped| match stopped {
                Stop::Failed(source) => wrong("list", &id, &path.to_string(), source),
                Stop::TooMany => VolumeError::TooMany { id: id.clone(), path: path.to_string(), most: ENTRIES_MAX },
            };
            let opened = open_below(&top.fd, path.relative(), OFlags::RDONLY | OFlags::DIRECTORY);
            let directory = opened.map_err(|error| failed(Stop::Failed(error)))?;
            let mut tree = Tree { ids: inner.ids, entries: Vec::new(), count: 0, bytes: 0 };
            let above = if path.is_top() { String::new() } else { path.to_string() };
            tree.add(directory, &above, depth.clamp(1, DEPTH_MAX)).map_err(failed)?;
            Ok(tree.entries)
        })
        .await
    }
}

enum Stop {
    Failed(io::Error),
    TooMany,
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Self {
        Self::Failed(error.into())
    }
}

struct Tree {
    ids: GuestIds,
    entries: Vec<EntryStat>,
    /// The number of names that were read, also of those that are not in `entries` yet.
    count: usize,
    /// The bytes of their paths.
    bytes: usize,
}

impl Tree {
    /// Adds the entries of a directory; `above` is its path. The recursion ends with `depth`.
    fn add(&mut self, directory: OwnedFd, above: &str, depth: u32) -> Result<(), Stop> {
        for (name, facts) in self.names(&directory, above)? {
            let text = name.to_string_lossy().into_owned();
            let path = format!("{above}/{text}");
            let entry = shown(text, path.clone(), &facts, target(&directory, &name, &facts), self.ids);
            self.bytes += entry.target.as_ref().map_or(0, String::len);
            let is_directory = entry.kind == FileKind::Directory;
            self.entries.push(entry);
            if !is_directory || depth <= 1 {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(&directory, &name, flags, Mode::empty()) {
                Ok(below) => self.add(below, &path, depth - 1)?,
                // It was removed or replaced meanwhile.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The names in a directory with their facts, sorted.
    fn names(&mut self, directory: impl AsFd, above: &str) -> Result<Vec<(CString, Stat)>, Stop> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(facts) => names.push((name.to_owned(), facts)),
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            }
            self.count += 1;
            self.bytes += above.len() + name.to_bytes().len();
            if self.count > ENTRIES_MAX || self.bytes > TEXT_BYTES_MAX {
                return Err(Stop::TooMany);
            }
        }
        names.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }
}
