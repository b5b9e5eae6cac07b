//! Writes a tree of files that is based on an image: a directory in the form of the upper layer of
//! Linux's overlay file system, and a listing of its entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use dorm_engine::{Content, Entry, EntryKind, FileSink};
use dorm_guest_ids::{GuestIds, capability};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags};

use super::batch::{Batch, kept};
use super::diff::{View, above};
use super::listing;
use crate::room::{Meter, as_io};

/// The directory of the tree in a saved state.
pub(super) const ROOT: &str = "root";
/// The file with the listing.
pub(super) const LISTING: &str = "listing";
pub(super) const OPAQUE: &str = "trusted.overlay.opaque";
const NAME_MAX: usize = 255;
const PATH_MAX: usize = 4095;

/// The totals of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeFacts {
    /// The number of entries.
    pub entries: u64,
    /// The total length of all files in bytes, hard links counted once.
    pub bytes: u64,
}

/// Writes one tree. Cheap to clone; all clones write the same tree.
#[derive(Clone)]
pub struct TreeWriter(Arc<Mutex<Writer>>);

struct Writer {
    ids: GuestIds,
    below: Below,
    /// Directories of this tree that replace those below.
    replacing: BTreeSet<Vec<u8>>,
    root: OwnedFd,
    listing: BufWriter<File>,
    batch: Batch,
    /// The directory that was used last.
    parent: Option<(Vec<u8>, Arc<OwnedFd>)>,
    /// The times of directories, to be set when nothing is added to them any more.
    directories: Vec<(Vec<u8>, Timestamps)>,
    facts: TreeFacts,
    /// Charges everything that is created here.
    meter: Meter,
}

/// The base of a tree.
#[derive(Debug, Default)]
pub struct Below(pub(super) Option<View<'static>>);

impl Below {
    /// Whether anything of a directory shows through, so that removals from it must be recorded. In
    /// any other directory, an overlay shows a recorded removal as a name without a file.
    fn shows_in(&self, directory: &[u8]) -> bool {
        directory.is_empty() || self.0.as_ref().is_none_or(|view| view.has_directory(directory))
    }
}

impl TreeWriter {
    /// Creates an empty tree in `directory`.
    pub(super) fn create(directory: &Path, below: Below, ids: GuestIds, meter: Meter) -> io::Result<Self> {
        let path = directory.join(ROOT);
        fs::create_dir(&path)?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY | OFlags::NOFOLLOW;
        let root = rustix::fs::openat(CWD, &path, flags, Mode::empty())?;
        // The owner that a guest sees on its root if no entry sets one.
        let owner = (Uid::from_raw(ids.base()), Gid::from_raw(ids.base()));
        rustix::fs::fchown(&root, Some(owner.0), Some(owner.1))?;
        rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755))?;
        let listing = BufWriter::with_capacity(64 << 10, File::create_new(directory.join(LISTING))?);
        let replacing = BTreeSet::new();
        let writer = Writer {
            ids,
            below,
            replacing,
            root,
            listing,
            batch: Batch::new(ids),
            parent: None,
            directories: Vec::new(),
            facts: TreeFacts::default(),
            meter,
        };
        Ok(Self(Arc::new(Mutex::new(writer))))
    }

    /// Writes the pending entries.
    pub(super) fn settle(&self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).settle()
    }

    /// Writes the rest and returns the totals. Nothing is synced yet.
    pub(super) fn finish(&self) -> io::Result<TreeFacts> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writer.settle()?;
        for (path, times) in std::mem::take(&mut writer.directories).into_iter().rev() {
            let directory = writer.directory(&path)?;
            rustix::fs::futimens(directory, &times)?;
        }
        writer.listing.flush()?;
        Ok(writer.facts)
    }
}

impl FileSink for TreeWriter {
    fn take(&mut self, entry: &Entry, content: &mut dyn Content) -> io::Result<()> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The target of the link may still be in the batch.
        if let EntryKind::HardLink(_) = entry.kind {
            writer.settle()?;
        }
        writer.put(entry, content).map_err(|error| kept(entry, error))?;
        if writer.batch.is_full() { writer.settle() } else { Ok(()) }
    }
}

impl Writer {
    /// Writes the pending entries of the batch.
    fn settle(&mut self) -> io::Result<()> {
        let listed = self.batch.write()?;
        listed.iter().try_for_each(|listed| listing::write(&mut self.listing, listed))
    }

    fn put(&mut self, entry: &Entry, content: &mut dyn Content) -> io::Result<()> {
        check(&entry.path)?;
        if let EntryKind::Directory { replaces: true } = entry.kind {
            self.replacing.insert(entry.path.clone());
        }
        if entry.kind == EntryKind::Removed && !self.shows_through(&entry.path) {
            return Ok(());
        }
        // The listing contains the name, too.
        self.meter.charge_name(&entry.path).and_then(|()| self.meter.charge_inode()).map_err(as_io)?;
        match entry.path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => self.put_in(entry, &entry.path[..at], &entry.path[at + 1..], content)?,
            None if entry.path.is_empty() => {
                let EntryKind::Directory { .. } = entry.kind else {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the root is no directory"));
                };
                set_metadata(self.root.as_fd(), entry, self.ids)?;
                self.directories.push((Vec::new(), times(entry)));
                self.batch.made(entry, None);
            }
            None => self.put_in(entry, b"", &entry.path, content)?,
        }
        self.facts.entries += 1;
        Ok(())
    }

    /// Whether something at `path` would be visible without a recorded removal.
    fn shows_through(&self, path: &[u8]) -> bool {
        let directory = path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |at| &path[..at]);
        self.below.shows_in(directory) && !above(path).any(|above| self.replacing.contains(above))
    }

    fn put_in(&mut self, entry: &Entry, above: &[u8], name: &[u8], content: &mut dyn Content) -> io::Result<()> {
        if self.parent.as_ref().is_none_or(|(path, _)| path != above) {
            let parent = self.directory(above)?;
            self.parent = Some((above.to_vec(), Arc::new(parent)));
        }
        let Some((_, parent)) = &self.parent else { return Err(io::ErrorKind::NotFound.into()) };
        match &entry.kind {
            EntryKind::Directory { replaces } => {
                rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o700))?;
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
                let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
                set_metadata(directory.as_fd(), entry, self.ids)?;
                if *replaces {
                    rustix::fs::fsetxattr(&directory, OPAQUE, b"y", XattrFlags::empty())?;
                }
                self.directories.push((entry.path.clone(), times(entry)));
            }
            EntryKind::File { bytes } => {
                self.facts.bytes += bytes;
                let content = &mut Charged { content, meter: &mut self.meter };
                return self.batch.file(entry, (parent, name), *bytes, content);
            }
            EntryKind::Symlink(target) => {
                rustix::fs::symlinkat(&target[..], parent, name)?;
                set_metadata_of_special(parent, name, entry, self.ids)?;
            }
            EntryKind::Fifo => {
                rustix::fs::mknodat(parent, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
                set_metadata_of_special(parent, name, entry, self.ids)?;
                rustix::fs::chmodat(parent, name, mode(entry), AtFlags::empty())?;
            }
            EntryKind::HardLink(of) => {
                check(of)?;
                let (above, original) = match of.iter().rposition(|byte| *byte == b'/') {
                    Some(at) => (&of[..at], &of[at + 1..]),
                    None => (&b""[..], &of[..]),
                };
                let from = self.directory(above)?;
                rustix::fs::linkat(&from, original, parent, name, AtFlags::empty())?;
            }
            EntryKind::Removed => {
                rustix::fs::mknodat(parent, name, FileType::CharacterDevice, Mode::empty(), 0)?;
            }
        }
        self.batch.made(entry, None);
        Ok(())
    }

    /// Opens a directory of the tree without following links.
    fn directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let path = if path.is_empty() { b"." } else { path };
        Ok(rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)?)
    }
}

/// Content that is charged piece by piece before it is written.
struct Charged<'a> {
    content: &'a mut dyn Content,
    meter: &'a mut Meter,
}

impl Content for Charged<'_> {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        let piece = self.content.next()?;
        if let Some((_, bytes)) = piece {
            self.meter.charge_bytes(bytes.len() as u64).map_err(as_io)?;
        }
        Ok(piece)
    }
}

/// Sets the owner before mode and attributes, because a change of owner clears some of both.
pub(super) fn set_metadata(file: impl AsFd, entry: &Entry, ids: GuestIds) -> io::Result<()> {
    let (user, group) = owner(entry, ids)?;
    rustix::fs::fchown(&file, Some(user), Some(group))?;
    rustix::fs::fchmod(&file, mode(entry))?;
    set_attributes(&file, entry, ids)
}

/// Sets the extended attributes of a file or directory that its guest has set.
pub(crate) fn set_attributes(file: impl AsFd, entry: &Entry, ids: GuestIds) -> io::Result<()> {
    for (name, value) in own_attributes(&entry.attributes, ids) {
        rustix::fs::fsetxattr(&file, name, &value, XattrFlags::empty())
            .map_err(|error| attribute_refused(name, error.into()))?;
    }
    Ok(())
}

fn set_metadata_of_special(parent: &OwnedFd, name: &[u8], entry: &Entry, ids: GuestIds) -> io::Result<()> {
    let (user, group) = owner(entry, ids)?;
    rustix::fs::chownat(parent, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    let mut path = format!("/proc/self/fd/{}/", parent.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    for (attribute, value) in own_attributes(&entry.attributes, ids) {
        rustix::fs::lsetxattr(&path[..], attribute, &value, XattrFlags::empty())
            .map_err(|error| attribute_refused(attribute, error.into()))?;
    }
    Ok(rustix::fs::utimensat(parent, name, &times(entry), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Returns the extended attributes that the guest itself has set, in their form on the host.
fn own_attributes(all: &BTreeMap<Vec<u8>, Vec<u8>>, ids: GuestIds) -> impl Iterator<Item = (&[u8], Vec<u8>)> {
    all.iter().filter_map(move |(name, value)| Some((&name[..], on_host(name, value, ids)?)))
}

/// Returns the form on the host of an extended attribute that a guest has set; `None` for one that
/// would have another meaning there: attributes of overlays and of the host's security modules, and
/// capabilities that cannot be bound to the ids of guests.
pub(super) fn on_host(name: &[u8], value: &[u8], ids: GuestIds) -> Option<Vec<u8>> {
    if name == capability::NAME.as_bytes() {
        return capability::bound(value, ids);
    }
    let is_of_host = name.starts_with(b"trusted.overlay.") || name.starts_with(b"security.");
    (!is_of_host).then(|| value.to_vec())
}

fn attribute_refused(name: &[u8], error: io::Error) -> io::Error {
    let what = format!("the host refuses its attribute '{}': {error}", listing::text(name));
    io::Error::new(error.kind(), what)
}

fn owner(entry: &Entry, ids: GuestIds) -> io::Result<(Uid, Gid)> {
    let id = |id: u32| {
        let what = || format!("it belongs to id {id}: sandboxes have the ids 0 to 65535");
        ids.host(id).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, what()))
    };
    Ok((Uid::from_raw(id(entry.user)?), Gid::from_raw(id(entry.group)?)))
}

fn mode(entry: &Entry) -> Mode {
    Mode::from_raw_mode(entry.mode & 0o7777)
}

pub(super) fn times(entry: &Entry) -> Timestamps {
    let (tv_sec, nanos) = entry.modified;
    let time = Timespec { tv_sec, tv_nsec: nanos.into() };
    Timestamps { last_access: time, last_modification: time }
}

fn check(path: &[u8]) -> io::Result<()> {
    let legal = |part: &[u8]| !part.is_empty() && part != b"." && part != b".." && part.len() <= NAME_MAX;
    let is_legal = path.is_empty()
        || (path.len() <= PATH_MAX && !path.contains(&0) && path.split(|byte| *byte == b'/').all(legal));
    match is_legal {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not the path of something in a sandbox")),
    }
}
