//! The operations of a tree that applying layers needs: entries that are linked instead of written,
//! and removals.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use dorm_engine::Entry;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{Tree, cannot_be_made, no_room};
use crate::images::listing;
use crate::images::node::{GuestPath, Kind, Node, Refusal};
use crate::saved_states::set_attributes;

/// The user of the daemon, which is no user in a sandbox.
const HOST_ROOT: u32 = 0;

impl Tree {
    /// Returns the tree for one layer, in which directories that no entry names can be
    /// distinguished.
    pub(in crate::images) fn for_layer(mut self) -> Self {
        self.implied_owner = HOST_ROOT;
        self
    }

    /// Returns whether the path exists. Links on the way are followed inside the image, the last
    /// part is not.
    pub(in crate::images) fn has(&self, path: &GuestPath) -> bool {
        let Some((directory, name)) = path.split() else { return true };
        self.resolve(directory).is_ok_and(|parent| rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// Creates a directory unless it exists, possibly through a link.
    pub(in crate::images) fn imply(&mut self, path: &GuestPath) -> Result<(), Refusal> {
        if !self.has_directory(path) {
            self.clear_way(path)?;
        }
        self.enter(path.as_bytes())
    }

    /// Removes everything in a directory.
    pub(in crate::images) fn empty(&mut self, path: &GuestPath) -> Result<(), Refusal> {
        self.enter(path.as_bytes())?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let cannot = |error: Errno| Refusal::system("cannot be emptied", error);
        let directory = rustix::fs::openat(self.parent()?, ".", flags, Mode::empty()).map_err(cannot)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory).map_err(cannot)? {
            names.push(entry.map_err(cannot)?.file_name().to_owned());
        }
        for name in names.iter().map(|name| name.to_bytes()).filter(|name| !matches!(*name, b"." | b"..")) {
            self.take_away(name)?;
        }
        Ok(())
    }

    /// Removes `name` from a directory. A missing name is no error.
    pub(in crate::images) fn remove(&mut self, directory: &GuestPath, name: &[u8]) -> Result<(), Refusal> {
        self.enter(directory.as_bytes())?;
        self.take_away(name)
    }

    /// Removes the entry at a path, so that something else can be written there.
    pub(in crate::images) fn clear_way(&mut self, path: &GuestPath) -> Result<(), Refusal> {
        let Some((directory, name)) = path.split() else { return Ok(()) };
        self.enter(directory)?;
        self.take_away(name)
    }

    /// Creates an entry that is not a directory as a hard link to one in another directory, by its
    /// name there, or as a copy if the file has the maximum number of links. An existing entry is
    /// replaced.
    pub(in crate::images) fn link_from(
        &mut self,
        path: &GuestPath,
        (from, original): (&OwnedFd, &[u8]),
        facts: &Stat,
    ) -> Result<(), Refusal> {
        let Some((directory, name)) = path.split() else {
            return Err(Refusal::because("is the root of the image, but not a directory"));
        };
        self.enter(directory)?;
        let kind = FileType::from_raw_mode(facts.st_mode);
        if kind != FileType::Fifo {
            self.meter.charge_name(name).map_err(no_room)?;
            let link = |parent: &OwnedFd| rustix::fs::linkat(from, original, parent, name, AtFlags::empty());
            let linked = match link(self.parent()?) {
                Err(Errno::EXIST) => {
                    self.take_away(name)?;
                    link(self.parent()?)
                }
                other => other,
            };
            match linked {
                Ok(()) => return Ok(()),
                Err(Errno::MLINK | Errno::XDEV | Errno::PERM) => {}
                Err(error) => return Err(cannot_be_made(error)),
            }
        }
        self.take_away(name)?;
        self.copy_from(path, (from, original), facts)
    }

    fn copy_from(&mut self, path: &GuestPath, (from, name): (&OwnedFd, &[u8]), facts: &Stat) -> Result<(), Refusal> {
        let unreadable = |error: Errno| Refusal::system("cannot be read back", error);
        let mut node = Node {
            path: path.clone(),
            kind: Kind::Fifo,
            mode: facts.st_mode,
            user: self.ids.guest(facts.st_uid).unwrap_or(0),
            group: self.ids.guest(facts.st_gid).unwrap_or(0),
            modified: facts.st_mtime,
            capability: None,
        };
        match FileType::from_raw_mode(facts.st_mode) {
            FileType::Fifo => self.put(&node, &mut io::empty()),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(from, name, Vec::new()).map_err(unreadable)?;
                node.kind = Kind::Symlink(target.into_bytes());
                self.put(&node, &mut io::empty())
            }
            _ => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(from, name, flags, Mode::empty()).map_err(unreadable)?;
                let mut file = File::from(file);
                node.kind = Kind::File(u64::try_from(facts.st_size).unwrap_or(0));
                node.capability = Some(listing::capability(&file, self.ids)).filter(|value| !value.is_empty());
                self.put(&node, &mut file)
            }
        }
    }

    /// Gives a directory the attributes that its guest has set.
    pub(in crate::images) fn set_attributes(&mut self, path: &GuestPath, entry: &Entry) -> Result<(), Refusal> {
        if entry.attributes.is_empty() {
            return Ok(());
        }
        self.enter(path.as_bytes())?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(self.parent()?, ".", flags, Mode::empty());
        let directory = directory.map_err(|error| Refusal::system("cannot be opened", error))?;
        set_attributes(&directory, entry, self.ids)
            .map_err(|error| Refusal { what: "cannot be given its attributes".to_owned(), source: Some(error) })
    }

    /// Removes `name` from the entered directory, with all its content. Does not follow links.
    fn take_away(&self, name: &[u8]) -> Result<(), Refusal> {
        let refused =
            |error: io::Error| Refusal::system("cannot be removed to make place for an entry of a layer", error);
        if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
            return Err(Refusal::because("is a whiteout with an invalid name"));
        }
        let parent = self.parent()?;
        match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(refused(error.into())),
        }
        // Below this descriptor the standard library follows no link.
        let path = PathBuf::from(format!("/proc/self/fd/{}", parent.as_raw_fd()));
        std::fs::remove_dir_all(path.join(OsStr::from_bytes(name))).map_err(refused)
    }
}
