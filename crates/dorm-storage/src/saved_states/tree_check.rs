//! Checks whether a tree matches its listing.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use dorm_engine::EntryKind;
use dorm_guest_ids::GuestIds;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::content::hash_content;
use super::listing::Listed;
use super::tree::{OPAQUE, ROOT, on_host};

/// Why a tree fails the check.
pub(super) enum Wrong {
    /// An entry, and a phrase whose subject it is.
    Damaged(Vec<u8>, String),
    /// It could not be read; whether it is damaged is unknown.
    Unread(io::Error),
}

struct Checker {
    ids: GuestIds,
    root: OwnedFd,
    parent: Option<(Vec<u8>, OwnedFd)>,
    buffer: Vec<u8>,
    found: u64,
}

/// Checks the tree in the directory of a saved state, whose files have host ids of `ids`.
pub(super) fn check(directory: &Path, listing: &[Listed], ids: GuestIds) -> Result<(), Wrong> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY | OFlags::NOFOLLOW;
    let root = rustix::fs::openat(CWD, directory.join(ROOT), flags, Mode::empty());
    let root = root.map_err(|error| lost(&[], error.into()))?;
    let mut checker = Checker { ids, root, parent: None, buffer: Vec::new(), found: 0 };
    let is_listed = listing.first().is_some_and(|first| first.entry.path.is_empty());
    if !is_listed {
        checker.count(b"")?;
    }
    for listed in listing {
        checker.check(listed)?;
    }
    let expected = listing.len() as u64 - u64::from(is_listed);
    if checker.found != expected {
        let what = format!("has {} entries instead of {expected}", checker.found);
        return Err(Wrong::Damaged(Vec::new(), what));
    }
    Ok(())
}

fn lost(path: &[u8], error: io::Error) -> Wrong {
    match error.kind() {
        io::ErrorKind::NotFound => Wrong::Damaged(path.to_vec(), "is missing".to_owned()),
        io::ErrorKind::UnexpectedEof => Wrong::Damaged(path.to_vec(), "is shorter than it was".to_owned()),
        io::ErrorKind::NotADirectory => Wrong::Damaged(path.to_vec(), "has another type or owner".to_owned()),
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            Wrong::Damaged(path.to_vec(), "has another type or owner".to_owned())
        }
        _ => Wrong::Unread(error),
    }
}

impl Checker {
    fn check(&mut self, Listed { entry, hash }: &Listed) -> Result<(), Wrong> {
        let path = &entry.path[..];
        let damaged = |what: &str| Err(Wrong::Damaged(path.to_vec(), what.to_owned()));
        let (above, name) = split(path);
        if self.parent.as_ref().is_none_or(|(known, _)| known != above) {
            let parent = self.directory(above)?;
            self.parent = Some((above.to_vec(), parent));
        }
        let Some((_, parent)) = &self.parent else { return damaged("is missing") };
        let facts = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        let facts = facts.map_err(|error| lost(path, error.into()))?;
        let kind = FileType::from_raw_mode(facts.st_mode);
        let owner = (self.ids.host(entry.user), self.ids.host(entry.group));
        let is_own = |facts: &Stat| (Some(facts.st_uid), Some(facts.st_gid)) == owner;
        match &entry.kind {
            EntryKind::Removed if kind == FileType::CharacterDevice && facts.st_rdev == 0 => return Ok(()),
            EntryKind::HardLink(of) => {
                let (above, original) = split(of);
                let of = rustix::fs::statat(self.directory(above)?, original, AtFlags::SYMLINK_NOFOLLOW);
                let of = of.map_err(|error| lost(path, error.into()))?;
                return match (of.st_dev, of.st_ino) == (facts.st_dev, facts.st_ino) {
                    true => Ok(()),
                    false => damaged("is no longer the same hard link"),
                };
            }
            EntryKind::Symlink(target) if kind == FileType::Symlink && is_own(&facts) => {
                let found = rustix::fs::readlinkat(parent, name, Vec::new());
                return match found.map_err(|error| lost(path, error.into()))?.as_bytes() == &target[..] {
                    true => Ok(()),
                    false => damaged("is a link to another target"),
                };
            }
            EntryKind::File { .. } if kind == FileType::RegularFile => {}
            EntryKind::Directory { .. } if kind == FileType::Directory => {}
            EntryKind::Fifo if kind == FileType::Fifo => {}
            EntryKind::Removed
            | EntryKind::Symlink(_)
            | EntryKind::File { .. }
            | EntryKind::Directory { .. }
            | EntryKind::Fifo => return damaged("has another type or owner"),
        }
        if !is_own(&facts) || facts.st_mode & 0o7777 != entry.mode & 0o7777 {
            return damaged("has another owner or mode");
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match &entry.kind {
            EntryKind::File { bytes } => {
                let file = rustix::fs::openat(parent, name, flags, Mode::empty());
                let file = File::from(file.map_err(|error| lost(path, error.into()))?);
                self.attributes(entry, &file)?;
                let found = hash_content(&file, &mut self.buffer).map_err(|error| lost(path, error))?;
                match (found.0, Some(&found.1)) == (*bytes, hash.as_ref()) {
                    true => Ok(()),
                    false => damaged("has other content than was written"),
                }
            }
            EntryKind::Directory { replaces } => {
                let directory = File::from(self.directory(path)?);
                self.attributes(entry, &directory)?;
                let mut value = [0; 4];
                let is_opaque = rustix::fs::fgetxattr(&directory, OPAQUE, &mut value[..]).is_ok();
                if is_opaque != *replaces {
                    return damaged("does not hide the same files as before");
                }
                self.count(path)
            }
            EntryKind::Fifo | EntryKind::Removed | EntryKind::Symlink(_) | EntryKind::HardLink(_) => Ok(()),
        }
    }

    fn attributes(&self, entry: &dorm_engine::Entry, file: &File) -> Result<(), Wrong> {
        for (name, value) in &entry.attributes {
            let Some(value) = on_host(name, value, self.ids) else { continue };
            let mut found = vec![0; value.len() + 1];
            let length = rustix::fs::fgetxattr(file, &name[..], &mut found[..]);
            if let Err(Errno::IO) = length {
                return Err(Wrong::Unread(Errno::IO.into()));
            }
            let found = length.ok().and_then(|length| found.get(..length));
            if found != Some(&value[..]) {
                return Err(Wrong::Damaged(entry.path.clone(), "has another attribute than it had".to_owned()));
            }
        }
        Ok(())
    }

    /// Adds the entries of a directory to those found.
    fn count(&mut self, path: &[u8]) -> Result<(), Wrong> {
        let unread = |error: Errno| lost(path, error.into());
        for entry in Dir::read_from(self.directory(path)?).map_err(unread)? {
            let entry = entry.map_err(unread)?;
            self.found += u64::from(!matches!(entry.file_name().to_bytes(), b"." | b".."));
        }
        Ok(())
    }

    fn directory(&self, path: &[u8]) -> Result<OwnedFd, Wrong> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let name = if path.is_empty() { b"." } else { path };
        rustix::fs::openat2(&self.root, name, flags, Mode::empty(), resolve).map_err(|error| lost(path, error.into()))
    }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None if path.is_empty() => (b"", b"."),
        None => (b"", path),
    }
}
