//! Entries of a volume as a guest sees them: their owners, modes and times, whole trees of them,
//! and changes to them without a sandbox.
//!
//! Sandboxes may use the volume meanwhile, so every entry can be replaced between two calls: work
//! is done on open descriptors, and no link is followed that leads out of the volume.

#![allow(clippy::disallowed_methods, reason = "every call is made on a thread that may block")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::{Duration, SystemTime};

use dorm_guest_ids::GuestIds;
use dorm_lifecycle::VolumeId;
use rustix::ffi::CStr;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use crate::files::{FileKind, make_directories, open_below, wrong};
use crate::{EntryPath, Inner, VolumeError, Volumes};

mod list;
mod remove;

pub use list::{DEPTH_MAX, ENTRIES_MAX};

/// The guest id that is shown for an owner whom no guest has.
const NOBODY: u32 = 65_534;
/// The bits of a mode that a caller can set.
const MODE_BITS: u32 = 0o7777;

/// An entry, as a guest sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryStat {
    /// Its name; `/` for the top. Bytes that are not UTF-8 are shown as `�`.
    pub name: String,
    /// Its path from the top of the volume, with a slash at its beginning.
    pub path: String,
    /// Its kind.
    pub kind: FileKind,
    /// Its size.
    pub bytes: u64,
    /// Its permissions, with the set-ID bits and the sticky bit.
    pub mode: u32,
    /// The owner, as an id of the guest.
    pub uid: u32,
    /// The group, as an id of the guest.
    pub gid: u32,
    /// When it was read last.
    pub accessed: SystemTime,
    /// When its content was changed last.
    pub modified: SystemTime,
    /// When the entry itself was changed last.
    pub changed: SystemTime,
    /// Where a symbolic link leads.
    pub target: Option<String>,
}

/// The owner and the mode of an entry, as guests see them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The permissions.
    pub mode: u32,
}

/// The treatment of missing directories above a new entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parents {
    /// They are an error.
    Required,
    /// They are created, with this owner and mode.
    Created(Ownership),
}

/// The treatment of an existing entry at the path of a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfExists {
    /// It is an error.
    Refuse,
    /// A file is replaced, and a directory stays as it is.
    Accept,
}

/// A file or directory to create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewEntry {
    /// Its owner and mode.
    pub ownership: Ownership,
    /// The treatment of missing directories above it.
    pub parents: Parents,
    /// The treatment of an existing entry.
    pub if_exists: IfExists,
}

/// A change of an entry; what is `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EntryChange {
    /// The owner, as an id of the guest.
    pub uid: Option<u32>,
    /// The group, as an id of the guest.
    pub gid: Option<u32>,
    /// The permissions.
    pub mode: Option<u32>,
}

impl Volumes {
    /// Returns an entry. A symbolic link is returned itself, not the entry it leads to.
    ///
    /// # Errors
    /// [`VolumeError::Path`].
    pub async fn stat(&self, id: &VolumeId, path: &EntryPath) -> Result<EntryStat, VolumeError> {
        let (key, id, path) = (id.clone(), id.clone(), path.clone());
        self.with_content(&key, move |inner, top| {
            stat(&top.fd, &path, inner.ids).map_err(|source| wrong("find", &id, &path.to_string(), source))
        })
        .await
    }

    /// Creates a directory, durably.
    ///
    /// # Errors
    /// [`VolumeError::Path`].
    pub async fn make_directory(
        &self,
        id: &VolumeId,
        path: &EntryPath,
        new: NewEntry,
    ) -> Result<EntryStat, VolumeError> {
        let (key, id, path) = (id.clone(), id.clone(), path.clone());
        self.with_content(&key, move |inner, top| {
            if let (Parents::Created(owner), Some((above, _))) = (new.parents, path.split()) {
                make_directories(inner, &top.path, &id, above, owner)?;
            }
            let wrong = |source| wrong("create the directory", &id, &path.to_string(), source);
            make_directory(inner, &top.fd, &path, new).map_err(wrong)?;
            stat(&top.fd, &path, inner.ids).map_err(wrong)
        })
        .await
    }

    /// Changes the owner or the mode of an entry, durably. Follows symbolic links on the volume.
    ///
    /// # Errors
    /// [`VolumeError::Path`].
    pub async fn change(&self, id: &VolumeId, path: &EntryPath, change: EntryChange) -> Result<EntryStat, VolumeError> {
        let (key, id, path) = (id.clone(), id.clone(), path.clone());
        self.with_content(&key, move |inner, top| {
            let wrong = |source| wrong("change", &id, &path.to_string(), source);
            apply(inner, &top.fd, &path, change).map_err(wrong)
        })
        .await
    }

    /// Removes a file, or a directory with everything below it, durably. Links are removed, never
    /// followed. If it fails or the daemon dies, part of the directory may be left; another call
    /// removes the rest.
    ///
    /// # Errors
    /// [`VolumeError::Path`]; also for the top of the volume.
    pub async fn remove_entry(&self, id: &VolumeId, path: &EntryPath) -> Result<(), VolumeError> {
        let (key, id, path) = (id.clone(), id.clone(), path.clone());
        self.with_content(&key, move |inner, top| {
            let wrong = |source| wrong("remove", &id, &path.to_string(), source);
            remove::remove(inner, &top.fd, &path).map_err(wrong)
        })
        .await
    }
}

/// Opens the directory above an entry. A missing one and a file in its place are the same: the
/// entry does not exist.
pub(crate) fn open_parent(top: impl AsFd, above: &str) -> io::Result<OwnedFd> {
    open_below(top, above, OFlags::RDONLY | OFlags::DIRECTORY).map_err(absent)
}

/// The error for an entry below something that is not a directory.
fn absent(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotADirectory => io::ErrorKind::NotFound.into(),
        _ => error,
    }
}

fn stat(top: &OwnedFd, path: &EntryPath, ids: GuestIds) -> io::Result<EntryStat> {
    let Some((above, name)) = path.split() else {
        return Ok(shown("/".to_owned(), "/".to_owned(), &rustix::fs::fstat(top)?, None, ids));
    };
    let parent = open_parent(top, above)?;
    let name_of_entry = std::ffi::CString::new(name)?;
    let facts = rustix::fs::statat(&parent, &name_of_entry, AtFlags::SYMLINK_NOFOLLOW)?;
    let target = target(&parent, &name_of_entry, &facts);
    Ok(shown(name.to_owned(), path.to_string(), &facts, target, ids))
}

/// Where a symbolic link leads; `None` for anything else, and for a link that is gone meanwhile.
fn target(directory: impl AsFd, name: &CStr, facts: &Stat) -> Option<String> {
    if FileType::from_raw_mode(facts.st_mode) != FileType::Symlink {
        return None;
    }
    let target = rustix::fs::readlinkat(directory, name, Vec::new()).ok()?;
    Some(target.to_string_lossy().into_owned())
}

/// An entry with these facts, as a guest sees it.
pub(crate) fn shown(name: String, path: String, facts: &Stat, target: Option<String>, ids: GuestIds) -> EntryStat {
    EntryStat {
        name,
        path,
        kind: FileKind::of(facts),
        bytes: facts.st_size.unsigned_abs(),
        mode: facts.st_mode & MODE_BITS,
        uid: ids.guest(facts.st_uid).unwrap_or(NOBODY),
        gid: ids.guest(facts.st_gid).unwrap_or(NOBODY),
        accessed: moment(facts.st_atime, facts.st_atime_nsec),
        modified: moment(facts.st_mtime, facts.st_mtime_nsec),
        changed: moment(facts.st_ctime, facts.st_ctime_nsec),
        target,
    }
}

/// A time of a file. Guests can set any, also one that cannot be represented: it becomes 1970.
fn moment(seconds: i64, nanoseconds: impl TryInto<u32>) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let at = match seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
        _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
    };
    let part = Duration::from_nanos(nanoseconds.try_into().unwrap_or(0).into());
    at.and_then(|at| at.checked_add(part)).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn make_directory(inner: &Inner, top: &OwnedFd, path: &EntryPath, new: NewEntry) -> io::Result<()> {
    let Some((above, name)) = path.split() else { return accept(new, true) };
    let parent = open_parent(top, above)?;
    let mode = Mode::from_raw_mode(new.ownership.mode);
    match rustix::fs::mkdirat(&parent, name, mode) {
        Ok(()) => {
            inner.steps.reach("volume: directory made")?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = rustix::fs::openat(&parent, name, flags, Mode::empty())?;
            give(&made, new.ownership, inner.ids)?;
            rustix::fs::fsync(&made)?;
        }
        Err(Errno::EXIST) => {
            let facts = rustix::fs::statat(&parent, name, AtFlags::empty()).or_else(|error| match error {
                // A link that leads nowhere.
                Errno::NOENT | Errno::LOOP => rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW),
                error => Err(error),
            })?;
            accept(new, FileType::from_raw_mode(facts.st_mode) == FileType::Directory)?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(rustix::fs::fsync(&parent)?)
}

fn accept(new: NewEntry, is_directory: bool) -> io::Result<()> {
    match new.if_exists {
        IfExists::Accept if is_directory => Ok(()),
        IfExists::Accept | IfExists::Refuse => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

fn apply(inner: &Inner, top: &OwnedFd, path: &EntryPath, change: EntryChange) -> io::Result<EntryStat> {
    // Nothing is opened but a reference: a device or a pipe must not be touched.
    let entry = open_below(top, path.relative(), OFlags::PATH).map_err(absent)?;
    let facts = rustix::fs::fstat(&entry)?;
    let opened = format!("/proc/self/fd/{}", entry.as_raw_fd());
    if change.uid.is_some() || change.gid.is_some() {
        let host = |id: Option<u32>| id.map(|id| host(id, inner.ids)).transpose();
        let (owner, group) = (host(change.uid)?.map(Uid::from_raw), host(change.gid)?.map(Gid::from_raw));
        allowed(rustix::fs::chownat(&entry, "", owner, group, AtFlags::EMPTY_PATH))?;
    }
    if let Some(mode) = change.mode {
        rustix::fs::chmodat(CWD, &opened, Mode::from_raw_mode(mode & MODE_BITS), AtFlags::empty())?;
    }
    inner.steps.reach("volume: entry changed")?;
    match FileType::from_raw_mode(facts.st_mode) {
        FileType::RegularFile | FileType::Directory => {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            rustix::fs::fsync(rustix::fs::open(&opened, flags, Mode::empty())?)?;
        }
        _ => rustix::fs::syncfs(rustix::fs::openat(top, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)?,
    }
    let name = path.split().map_or("/", |(_, name)| name);
    Ok(shown(name.to_owned(), path.to_string(), &rustix::fs::fstat(&entry)?, None, inner.ids))
}

/// Gives a new file or directory its owner and mode, since the umask may have cleared bits.
pub(crate) fn give(file: impl AsFd, ownership: Ownership, ids: GuestIds) -> io::Result<()> {
    let Ownership { uid, gid, mode } = ownership;
    let (owner, group) = (Uid::from_raw(host(uid, ids)?), Gid::from_raw(host(gid, ids)?));
    allowed(rustix::fs::fchown(&file, Some(owner), Some(group)))?;
    // A change of the owner clears the set-ID bits, so this is last.
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode & MODE_BITS))?)
}

fn host(id: u32, ids: GuestIds) -> io::Result<u32> {
    let none = || io::Error::new(io::ErrorKind::InvalidInput, format!("no guest has the id {id}"));
    ids.host(id).ok_or_else(none)
}

/// Without the permission to change owners (in tests) they stay unchanged.
fn allowed(changed: Result<(), Errno>) -> io::Result<()> {
    match changed {
        Ok(()) | Err(Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
