//! Writes entries below one directory and nowhere else.
//!
//! The kernel resolves every path as if that directory were `/` (`openat2` with `RESOLVE_IN_ROOT`):
//! absolute links and links with `..` in a hostile archive lead to paths in the image. The last
//! part of a path is never followed.

mod apply;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use dorm_guest_ids::{GuestIds, capability};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::node::{GuestPath, Kind, Node, Refusal};
use crate::error::StorageError;
use crate::room::{Meter, as_io};
use crate::sparse::{SparseFile, read_full};

const BUFFER: usize = 256 << 10;
/// `openat2` fails if something is renamed anywhere while it follows a `..`.
const TRIES: usize = 256;

pub(super) struct Tree {
    root: OwnedFd,
    ids: GuestIds,
    /// The owner of directories that no entry names.
    implied_owner: u32,
    /// The directory that was used last.
    parent: Option<(Vec<u8>, OwnedFd)>,
    /// The times of directories, to be set when nothing is added to them any more.
    directories: Vec<(GuestPath, i64)>,
    buffer: Vec<u8>,
    /// Charges everything that is created here.
    meter: Meter,
}

impl Tree {
    pub(super) fn open(root: &Path, ids: GuestIds, meter: Meter) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY | OFlags::NOFOLLOW;
        let root = rustix::fs::openat(CWD, root, flags, Mode::empty())?;
        Ok(Self {
            root,
            ids,
            implied_owner: ids.base(),
            parent: None,
            directories: Vec::new(),
            buffer: vec![0; BUFFER],
            meter,
        })
    }

    /// Returns the host IDs of what is written.
    pub(super) fn ids(&self) -> GuestIds {
        self.ids
    }

    /// Writes one entry, replacing an existing one with that path, as is usual for archives.
    pub(super) fn put(&mut self, node: &Node, content: &mut dyn Read) -> Result<(), Refusal> {
        let Some((directory, name)) = node.path.split() else {
            return match node.kind {
                Kind::Directory => self.finish_directory(node, None),
                _ => Err(Refusal::because("is the root of the image, but not a directory")),
            };
        };
        self.enter(directory)?;
        match node.kind {
            Kind::HardLink(_) => self.meter.charge_name(name),
            Kind::Directory | Kind::File(_) | Kind::Symlink(_) | Kind::Fifo => self.meter.charge_inode(),
        }
        .map_err(no_room)?;
        match &node.kind {
            Kind::Directory => {
                self.make_directory(name)?;
                self.finish_directory(node, Some(name))
            }
            Kind::File(bytes) => self.put_file(node, name, *bytes, content),
            Kind::Symlink(target) => {
                self.make(name, |parent| rustix::fs::symlinkat(&target[..], parent, name))?;
                self.finish_special(node, name)
            }
            Kind::Fifo => {
                let make =
                    |parent: &OwnedFd| rustix::fs::mknodat(parent, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0);
                self.make(name, make)?;
                self.finish_special(node, name)?;
                // Nothing else writes here, so the name still refers to the pipe.
                rustix::fs::chmodat(self.parent()?, name, mode(node), AtFlags::empty())
                    .map_err(|error| Refusal::system("cannot be given its mode", error))
            }
            Kind::HardLink(target) => self.put_link(name, target),
        }
    }

    /// Accounts for a line about an entry in a list.
    pub(super) fn charge_line(&mut self, name: &str) -> Result<(), Refusal> {
        self.meter.charge_name(name.as_bytes()).map_err(no_room)
    }

    /// Returns whether the path is a directory that can be entered, following links inside the
    /// image.
    pub(super) fn has_directory(&self, path: &GuestPath) -> bool {
        self.resolve(path.as_bytes()).is_ok()
    }

    /// Sets the times of directories; later entries change them again.
    pub(super) fn finish_times(&mut self) {
        for (path, modified) in std::mem::take(&mut self.directories) {
            let Some((directory, name)) = path.split() else {
                let _ = rustix::fs::futimens(&self.root, &times(modified));
                continue;
            };
            // A time that cannot be set is skipped, since the directory has been removed or
            // replaced meanwhile. A removed directory must not be created again for it, and a file
            // in its place may belong to a layer, too.
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
            let open = |parent| rustix::fs::openat(parent, name, flags, Mode::empty());
            if let Ok(directory) = self.resolve(directory).and_then(open) {
                let _ = rustix::fs::futimens(directory, &times(modified));
            }
        }
    }

    fn put_file(&mut self, node: &Node, name: &[u8], bytes: u64, content: &mut dyn Read) -> Result<(), Refusal> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = self.make(name, |parent| rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600)))?;
        let file = File::from(file);
        let mut sparse = SparseFile::new(&file);
        let mut left = bytes;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            let free = &mut self.buffer[..want];
            let read = read_full(content, free).map_err(|error| Refusal::system("cannot be read", error))?;
            left -= read as u64;
            if read < want {
                return Err(Refusal::because(format!("is truncated: {left} of {bytes} bytes are missing")));
            }
            let added = sparse.add(&self.buffer[..want], &mut self.meter);
            added.map_err(|error| Refusal::system("cannot be written", error))?;
        }
        sparse.finish().map_err(|error| Refusal::system("cannot be given its length", error))?;
        self.finish_open(node, file.as_fd())?;
        rustix::fs::futimens(&file, &times(node.modified))
            .map_err(|error| Refusal::system("cannot be given its time", error))
    }

    fn put_link(&mut self, name: &[u8], target: &GuestPath) -> Result<(), Refusal> {
        let Some((directory, original)) = target.split() else {
            return Err(Refusal::because("is a hard link to the root of the image"));
        };
        let from =
            self.resolve(directory).map_err(|error| Refusal::system("is a hard link to a missing file", error))?;
        if self.is_same(&from, original, name)? {
            return Ok(());
        }
        self.make(name, |parent| rustix::fs::linkat(&from, original, parent, name, AtFlags::empty())).map_err(
            |refusal| match refusal.source {
                Some(error) if error.kind() == io::ErrorKind::NotFound => {
                    Refusal::system("is a hard link to an entry that does not precede it", error)
                }
                source => Refusal { source, ..refusal },
            },
        )
    }

    /// Returns whether both names are already links to the same file.
    fn is_same(&self, from: &OwnedFd, original: &[u8], name: &[u8]) -> Result<bool, Refusal> {
        let original = rustix::fs::statat(from, original, AtFlags::SYMLINK_NOFOLLOW);
        let found = rustix::fs::statat(self.parent()?, name, AtFlags::SYMLINK_NOFOLLOW);
        Ok(matches!((original, found), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)))
    }

    /// Runs `make` in the entered directory; if the name is taken, removes the existing entry and
    /// runs it again.
    fn make<T>(&self, name: &[u8], make: impl Fn(&OwnedFd) -> Result<T, Errno>) -> Result<T, Refusal> {
        match make(self.parent()?) {
            Err(Errno::EXIST) => {
                self.unlink(name)?;
                make(self.parent()?).map_err(cannot_be_made)
            }
            other => other.map_err(cannot_be_made),
        }
    }

    /// Creates a directory; an existing one is kept with its content.
    fn make_directory(&self, name: &[u8]) -> Result<(), Refusal> {
        let make = || Ok(rustix::fs::mkdirat(self.parent()?, name, Mode::from_raw_mode(0o700)));
        match make()? {
            Err(Errno::EXIST) if self.is_directory(name)? => Ok(()),
            Err(Errno::EXIST) => {
                self.unlink(name)?;
                make()?.map_err(cannot_be_made)
            }
            other => other.map_err(cannot_be_made),
        }
    }

    fn is_directory(&self, name: &[u8]) -> Result<bool, Refusal> {
        let found = rustix::fs::statat(self.parent()?, name, AtFlags::SYMLINK_NOFOLLOW).map_err(cannot_be_made)?;
        Ok(FileType::from_raw_mode(found.st_mode) == FileType::Directory)
    }

    fn unlink(&self, name: &[u8]) -> Result<(), Refusal> {
        let flags = if self.is_directory(name)? { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(self.parent()?, name, flags)
            .map_err(|error| Refusal::system("cannot replace the existing entry", error))
    }

    fn finish_directory(&mut self, node: &Node, name: Option<&[u8]>) -> Result<(), Refusal> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = match name {
            Some(name) => rustix::fs::openat(self.parent()?, name, flags, Mode::empty()),
            None => self.root.try_clone().map_err(|_| Errno::MFILE),
        };
        let directory = directory.map_err(|error| Refusal::system("cannot be opened", error))?;
        self.finish_open(node, directory.as_fd())?;
        self.directories.push((node.path.clone(), node.modified));
        Ok(())
    }

    /// Sets the owner before mode and capability, since a change of owner clears both.
    fn finish_open(&self, node: &Node, file: impl AsFd) -> Result<(), Refusal> {
        let (user, group) = self.owner(node)?;
        rustix::fs::fchown(&file, Some(user), Some(group)).map_err(owner_refused)?;
        rustix::fs::fchmod(&file, mode(node)).map_err(|error| Refusal::system("cannot be given its mode", error))?;
        // Only in the form that has no effect outside of sandboxes.
        match node.capability.as_deref().and_then(|value| capability::bound(value, self.ids)) {
            None => Ok(()),
            Some(value) => match rustix::fs::fsetxattr(&file, capability::NAME, &value, XattrFlags::empty()) {
                // Kept if possible: a host without support still runs everything as root.
                Err(Errno::NOTSUP | Errno::PERM) | Ok(()) => Ok(()),
                Err(error) => Err(Refusal::system("cannot be given its capabilities", error)),
            },
        }
    }

    fn finish_special(&self, node: &Node, name: &[u8]) -> Result<(), Refusal> {
        let (user, group) = self.owner(node)?;
        rustix::fs::chownat(self.parent()?, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(owner_refused)?;
        rustix::fs::utimensat(self.parent()?, name, &times(node.modified), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| Refusal::system("cannot be given its time", error))
    }

    fn owner(&self, node: &Node) -> Result<(Uid, Gid), Refusal> {
        let id = |id: u32| {
            let because = || Refusal::because(format!("belongs to ID {id}: sandboxes have the IDs 0 to 65535"));
            self.ids.host(id).ok_or_else(because)
        };
        Ok((Uid::from_raw(id(node.user)?), Gid::from_raw(id(node.group)?)))
    }

    fn parent(&self) -> Result<&OwnedFd, Refusal> {
        self.parent.as_ref().map(|(_, parent)| parent).ok_or_else(|| Refusal::because("has no directory"))
    }

    /// Opens a directory of the image and creates missing ones.
    fn enter(&mut self, directory: &[u8]) -> Result<(), Refusal> {
        if self.parent.as_ref().is_some_and(|(entered, _)| entered == directory) {
            return Ok(());
        }
        let opened = match self.resolve(directory) {
            Err(Errno::NOENT) => self.make_all(directory),
            other => other.map_err(|error| Refusal::system("is in a directory that cannot be entered", error)),
        }?;
        self.parent = Some((directory.to_owned(), opened));
        Ok(())
    }

    fn make_all(&mut self, directory: &[u8]) -> Result<OwnedFd, Refusal> {
        let refused = |error| Refusal::system("is in a directory that cannot be created", error);
        let ends = directory.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let mut above = self.resolve(b"").map_err(refused)?;
        let mut start = 0;
        for end in ends.chain([directory.len()]) {
            above = match self.resolve(&directory[..end]) {
                Err(Errno::NOENT) => {
                    self.meter.charge_inode().map_err(no_room)?;
                    let name = &directory[start..end];
                    rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o755)).map_err(refused)?;
                    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
                    let made = rustix::fs::openat(&above, name, flags, Mode::empty()).map_err(refused)?;
                    let base = (Uid::from_raw(self.implied_owner), Gid::from_raw(self.implied_owner));
                    rustix::fs::fchown(&made, Some(base.0), Some(base.1)).map_err(owner_refused)?;
                    rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755)).map_err(refused)?;
                    made
                }
                other => other.map_err(refused)?,
            };
            start = end + 1;
        }
        Ok(above)
    }

    fn resolve(&self, directory: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let path = if directory.is_empty() { b"." } else { directory };
        for _ in 1..TRIES {
            match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => std::thread::yield_now(),
                other => return other,
            }
        }
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)
    }
}

fn no_room(error: StorageError) -> Refusal {
    Refusal::system("cannot be created", as_io(error))
}

fn cannot_be_made(error: Errno) -> Refusal {
    Refusal::system("cannot be created", error)
}

fn mode(node: &Node) -> Mode {
    Mode::from_raw_mode(node.mode & 0o7777)
}

fn times(seconds: i64) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

fn owner_refused(error: Errno) -> Refusal {
    match error {
        Errno::PERM => Refusal::system("cannot be given to its owner: run as root", error),
        _ => Refusal::system("cannot be given to its owner", error),
    }
}
