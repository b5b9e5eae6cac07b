//! Reads and writes files of a volume without a sandbox.
//!
//! The content of a volume was written by guests: no path leads out of it, whatever links exist
//! (`RESOLVE_BENEATH`), and only regular files and directories are opened.

#![allow(clippy::disallowed_methods, reason = "every call is made on a thread that may block")]

pub(crate) mod entries;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;

use dorm_guest_ids::GuestIds;
use dorm_lifecycle::VolumeId;
use dorm_steps::AnySteps;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use self::entries::{EntryStat, IfExists, NewEntry, Ownership, Parents, give, open_parent, shown};
use crate::{EntryPath, Inner, VolumeError, Volumes};

/// The owner and mode of a file or directory for which the caller names none.
const FILE: Ownership = Ownership { uid: 0, gid: 0, mode: 0o644 };
const DIRECTORY: Ownership = Ownership { uid: 0, gid: 0, mode: 0o755 };

/// The kind of a directory entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Anything else.
    Other,
}

impl FileKind {
    pub(crate) fn of(facts: &Stat) -> Self {
        match FileType::from_raw_mode(facts.st_mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            _ => Self::Other,
        }
    }
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileEntry {
    /// Its name; bytes that are not UTF-8 are shown as `�`.
    pub name: String,
    /// Its kind.
    pub kind: FileKind,
    /// Its size.
    pub bytes: u64,
}

/// A file that is being written. It appears under its name, complete, when [`NewFile::finish`]
/// returns; if it is dropped before, it disappears.
#[derive(Debug)]
pub struct NewFile {
    id: VolumeId,
    path: String,
    parent: OwnedFd,
    /// Its name until it is complete; `None` if it needs none.
    draft: Option<String>,
    name: String,
    file: Option<File>,
    if_exists: IfExists,
    ids: GuestIds,
    steps: AnySteps,
}

impl Volumes {
    /// Opens a regular file for reading. The volume must stay mounted meanwhile.
    ///
    /// # Errors
    /// [`VolumeError::Path`].
    pub async fn read(&self, id: &VolumeId, path: &str) -> Result<(File, u64), VolumeError> {
        let (key, id, path) = (id.clone(), id.clone(), path.to_owned());
        self.at_work(&key, move |inner| {
            let top = inner.mount(&id)?;
            let wrong = |source| wrong("read", &id, &path, source);
            let file = open(&top, &path, OFlags::RDONLY | OFlags::NONBLOCK).map_err(wrong)?;
            let facts = rustix::fs::fstat(&file).map_err(|error| wrong(error.into()))?;
            match FileType::from_raw_mode(facts.st_mode) {
                FileType::RegularFile => Ok((File::from(file), facts.st_size.unsigned_abs())),
                FileType::Directory => Err(wrong(io::ErrorKind::IsADirectory.into())),
                _ => Err(wrong(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))),
            }
        })
        .await
    }

    /// Begins to write a file. Creates missing directories, and replaces an existing file.
    ///
    /// # Errors
    /// [`VolumeError::Path`].
    pub async fn write(&self, id: &VolumeId, path: &str) -> Result<NewFile, VolumeError> {
        let (key, id, path) = (id.clone(), id.clone(), path.to_owned());
        let new = NewEntry { ownership: FILE, parents: Parents::Created(DIRECTORY), if_exists: IfExists::Accept };
        self.at_work(&key, move |inner| {
            let top = inner.mount(&id)?;
            let relative = path.trim_start_matches('/');
            let (above, name) = relative.rsplit_once('/').unwrap_or(("", relative));
            if matches!(name, "" | "." | "..") {
                return Err(wrong("write", &id, &path, io::ErrorKind::InvalidInput.into()));
            }
            begin(inner, &top, &id, (above, name), new)
        })
        .await
    }

    /// Begins to write a file with an owner and a mode.
    ///
    /// # Errors
    /// [`VolumeError::Path`].
    pub async fn write_entry(&self, id: &VolumeId, path: &EntryPath, new: NewEntry) -> Result<NewFile, VolumeError> {
        let (key, id, path) = (id.clone(), id.clone(), path.clone());
        self.with_content(&key, move |inner, top| {
            let Some(parts) = path.split() else {
                return Err(wrong("write", &id, "/", io::ErrorKind::IsADirectory.into()));
            };
            begin(inner, &top.path, &id, parts, new)
        })
        .await
    }

    /// Returns the entries of a directory, sorted by name.
    ///
    /// # Errors
    /// [`VolumeError::Path`].
    pub async fn list(&self, id: &VolumeId, path: &str) -> Result<Vec<FileEntry>, VolumeError> {
        let (key, id, path) = (id.clone(), id.clone(), path.to_owned());
        self.at_work(&key, move |inner| {
            let top = inner.mount(&id)?;
            let wrong = |source| wrong("list", &id, &path, source);
            let directory = open(&top, &path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(wrong)?;
            list(&directory).map_err(|error| wrong(error.into()))
        })
        .await
    }
}

impl NewFile {
    /// Returns the file to write to.
    ///
    /// # Errors
    /// Only if it was taken before.
    pub fn take(&mut self) -> Result<File, VolumeError> {
        let gone = || wrong("write", &self.id, &self.path, io::ErrorKind::NotFound.into());
        let file = self.file.as_ref().ok_or_else(gone)?;
        file.try_clone().map_err(|source| wrong("write", &self.id, &self.path, source))
    }

    /// Makes the file durable, gives it its name and returns it.
    ///
    /// # Errors
    /// When the disk is full, or a directory has that name, or a file that may not be replaced.
    pub fn finish(mut self) -> Result<EntryStat, VolumeError> {
        let (id, path) = (self.id.clone(), self.path.clone());
        let wrong = |source| wrong("write", &id, &path, source);
        let file = self.take()?;
        file.sync_all().map_err(wrong)?;
        self.steps.reach("volume: file written").map_err(|stopped| wrong(stopped.into()))?;
        self.put().map_err(wrong)?;
        self.file = None;
        self.steps.reach("volume: file named").map_err(|stopped| wrong(stopped.into()))?;
        rustix::fs::fsync(&self.parent).map_err(|error| wrong(error.into()))?;
        let facts = rustix::fs::fstat(&file).map_err(|error| wrong(error.into()))?;
        Ok(shown(self.name.clone(), format!("/{}", path.trim_start_matches('/')), &facts, None, self.ids))
    }

    /// Gives the file its name.
    fn put(&mut self) -> io::Result<()> {
        if let (None, Some(file)) = (&self.draft, &self.file) {
            let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
            let link =
                |name: &str| rustix::fs::linkat(rustix::fs::CWD, &opened, &self.parent, name, AtFlags::SYMLINK_FOLLOW);
            match link(&self.name) {
                // Only a file with another name can replace an existing one.
                Err(Errno::EXIST) if self.if_exists == IfExists::Accept => {
                    let draft = draft_name()?;
                    link(&draft)?;
                    self.draft = Some(draft);
                }
                linked => return Ok(linked?),
            }
        }
        let draft = self.draft.as_deref().unwrap_or_default();
        let flags = match self.if_exists {
            IfExists::Accept => RenameFlags::empty(),
            IfExists::Refuse => RenameFlags::NOREPLACE,
        };
        Ok(rustix::fs::renameat_with(&self.parent, draft, &self.parent, self.name.as_str(), flags)?)
    }
}

impl Drop for NewFile {
    /// Closes the file of an interrupted upload on another thread, since the disk may be slow.
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        let (parent, draft) = (self.parent.try_clone(), self.draft.take());
        let remove = move || {
            drop(file);
            if let (Ok(parent), Some(draft)) = (parent, draft) {
                let _ = rustix::fs::unlinkat(&parent, draft.as_str(), AtFlags::empty());
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// Begins to write a file with this name in the directory `above`.
fn begin(
    inner: &Inner,
    top: &Path,
    id: &VolumeId,
    (above, name): (&str, &str),
    new: NewEntry,
) -> Result<NewFile, VolumeError> {
    let path = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
    if let Parents::Created(owner) = new.parents {
        make_directories(inner, top, id, above, owner)?;
    }
    let wrong = |source| wrong("write", id, &path, source);
    let parent = open_top(top).and_then(|top| open_parent(top, above)).map_err(wrong)?;
    // It is found out again at the end; this is for a client with much to send.
    refuse_existing(&parent, name, new.if_exists).map_err(wrong)?;
    // A file without a name disappears with its process.
    let mode = Mode::from_raw_mode(0o600);
    let nameless = rustix::fs::openat(&parent, ".", OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC, mode);
    let (file, draft) = match nameless {
        Ok(file) => (file, None),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let draft = draft_name().map_err(wrong)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&parent, draft.as_str(), flags, mode);
            (file.map_err(|error| wrong(error.into()))?, Some(draft))
        }
        Err(error) => return Err(wrong(error.into())),
    };
    let (name, steps, if_exists) = (name.to_owned(), inner.steps.clone(), new.if_exists);
    let (id, ids) = (id.clone(), inner.ids);
    let made =
        NewFile { id, path: path.clone(), parent, draft, name, file: Some(File::from(file)), if_exists, ids, steps };
    if let Some(file) = &made.file {
        give(file, new.ownership, ids).map_err(wrong)?;
    }
    Ok(made)
}

/// Refuses a name that is taken, and one of a directory in any case: a file cannot replace it.
fn refuse_existing(parent: &OwnedFd, name: &str, if_exists: IfExists) -> io::Result<()> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(facts) if FileKind::of(&facts) == FileKind::Directory => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => match if_exists {
            IfExists::Accept => Ok(()),
            IfExists::Refuse => Err(io::ErrorKind::AlreadyExists.into()),
        },
    }
}

/// Creates the missing directories of `path`, each with this owner and mode.
///
/// Their names are then durable, including those that an earlier call created but did not sync.
pub(crate) fn make_directories(
    inner: &Inner,
    top: &Path,
    id: &VolumeId,
    path: &str,
    owner: Ownership,
) -> Result<(), VolumeError> {
    let wrong = |source| wrong("create the directory", id, path, source);
    let volume = open_top(top).map_err(wrong)?;
    let mut below = String::new();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let parent = open_below(&volume, &below, OFlags::RDONLY | OFlags::DIRECTORY).map_err(wrong)?;
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(owner.mode)) {
            Ok(()) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = rustix::fs::openat(&parent, name, flags, Mode::empty());
                give(made.map_err(|error| wrong(error.into()))?, owner, inner.ids).map_err(wrong)?;
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(wrong(error.into())),
        }
        rustix::fs::fsync(&parent).map_err(|error| wrong(error.into()))?;
        inner.steps.durable(&top.join(&below));
        if !below.is_empty() {
            below.push('/');
        }
        below.push_str(name);
    }
    open_below(&volume, path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(wrong).map(drop)
}

/// Creates the missing directories of a part of a volume, owned by the guests' root.
pub(crate) fn make_part(inner: &Inner, top: &Path, id: &VolumeId, part: &str) -> Result<(), VolumeError> {
    make_directories(inner, top, id, part, DIRECTORY)
}

/// Opens the top of a volume, which stays mounted as long as the descriptor exists.
pub(crate) fn open_top(top: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(top, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn open(top: &Path, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    open_below(open_top(top)?, path, flags)
}

/// Opens a path below `top` and nothing else. `path` may begin with a slash, which means the top of
/// the volume.
pub(crate) fn open_below(top: impl AsFd, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let path = match path.trim_start_matches('/') {
        "" => ".",
        path => path,
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // The kernel asks to try again if something is renamed meanwhile.
    for _ in 0..64 {
        match rustix::fs::openat2(&top, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            Err(Errno::XDEV) => {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the path leads out of the volume"));
            }
            other => return Ok(other?),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

fn list(directory: &OwnedFd) -> Result<Vec<FileEntry>, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let facts = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        let kind = FileKind::of(&facts);
        let name = name.to_string_lossy().into_owned();
        entries.push(FileEntry { name, kind, bytes: facts.st_size.unsigned_abs() });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

pub(crate) fn draft_name() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!(".dorm-new-{:016x}", u64::from_ne_bytes(bytes)))
}

pub(crate) fn wrong(operation: &'static str, id: &VolumeId, path: &str, source: io::Error) -> VolumeError {
    VolumeError::Path { operation, id: id.clone(), path: path.to_owned(), source }
}
