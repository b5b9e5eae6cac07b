//! Compares two root file systems that are based on one image.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use dorm_engine::{Content, Entry, EntryKind, FileSink};
use dorm_guest_ids::{GuestIds, capability};

use super::content::{ContentHasher, hash_content};
use super::flatten::{Node, merge};
use super::listing::Listed;
use crate::error::{StorageError, failed};

/// How a path differs from the first root file system to the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Difference {
    /// It exists only in the second.
    Added,
    /// It exists only in the first.
    Removed,
    /// Its kind, content, owner, mode or attributes differ. Differences of timestamps alone do not
    /// count.
    Modified,
}

/// A path that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Differing {
    /// The path relative to the root, in any bytes.
    pub path: Vec<u8>,
    /// How it differs.
    pub difference: Difference,
    /// The length of the file in the first; none for other kinds.
    pub before: Option<u64>,
    /// The length of the file in the second; none for other kinds.
    pub after: Option<u64>,
}

/// Lists changes without keeping their content.
#[derive(Default)]
pub struct Lister(std::sync::Arc<std::sync::Mutex<Vec<Listed>>>);

impl Lister {
    /// Returns a sink that adds its entries to this list.
    pub fn sink(&self) -> Box<dyn FileSink> {
        Box::new(Self(self.0.clone()))
    }

    /// Returns the entries.
    pub fn into_list(self) -> Vec<Listed> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl FileSink for Lister {
    fn take(&mut self, entry: &Entry, content: &mut dyn Content) -> io::Result<()> {
        let mut hash = None;
        if let EntryKind::File { bytes } = entry.kind {
            let mut hasher = ContentHasher::new();
            while let Some((at, piece)) = content.next()? {
                hasher.update(at, piece);
            }
            hash = Some(hasher.finish(bytes));
        }
        let mut list = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        list.push(Listed { entry: entry.clone(), hash });
        Ok(())
    }
}

/// The properties of the entry at one path.
#[derive(PartialEq, Eq)]
struct Facts {
    kind: Kind,
    mode: u32,
    user: u32,
    group: u32,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(PartialEq, Eq)]
enum Kind {
    Directory,
    File { bytes: u64, hash: String },
    Symlink(Vec<u8>),
    Fifo,
    Other,
}

/// A root filesystem: changes on an image.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) changes: BTreeMap<Vec<u8>, Node>,
    pub(super) image: Cow<'a, Path>,
    /// The host ids with which the image was made.
    pub(super) ids: GuestIds,
}

/// Returns the differences between two stacks of changes, each with its lowest layer first, on the
/// image at `image`, whose files have these host ids.
pub(crate) fn diff(
    (image, ids): (&Path, GuestIds),
    first: &[Vec<Listed>],
    second: &[Vec<Listed>],
) -> Result<Vec<Differing>, StorageError> {
    let view = |stack: &[Vec<Listed>]| {
        let changes = merge(stack).map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what));
        changes
            .map(|changes| View { changes, image: Cow::Borrowed(image), ids })
            .map_err(failed("read the changes on", image))
    };
    let (first, second) = (view(first)?, view(second)?);
    let mut paths = BTreeSet::new();
    for view in [&first, &second] {
        view.candidates(&mut paths).map_err(failed("list the image at", image))?;
    }
    let mut all = Vec::new();
    let mut buffer = Vec::new();
    for path in paths {
        let (before, after) = match (first.changes.get(&path), second.changes.get(&path)) {
            (Some(a), Some(b)) if a.is_same(b) => continue,
            _ => (first.facts(&path, &mut buffer), second.facts(&path, &mut buffer)),
        };
        let before = before.map_err(failed("look into the image at", image))?;
        let after = after.map_err(failed("look into the image at", image))?;
        let difference = match (&before, &after) {
            (None, None) => continue,
            (None, Some(_)) => Difference::Added,
            (Some(_), None) => Difference::Removed,
            (Some(before), Some(after)) if before == after => continue,
            (Some(_), Some(_)) => Difference::Modified,
        };
        let length = |facts: Option<Facts>| match facts.map(|facts| facts.kind) {
            Some(Kind::File { bytes, .. }) => Some(bytes),
            _ => None,
        };
        all.push(Differing { path, difference, before: length(before), after: length(after) });
    }
    Ok(all)
}

impl View<'_> {
    /// Adds every path at which this view may differ from the image.
    fn candidates(&self, paths: &mut BTreeSet<Vec<u8>>) -> io::Result<()> {
        for (path, node) in &self.changes {
            paths.insert(path.clone());
            let hides = !matches!(node.entry.kind, EntryKind::Directory { replaces: false });
            let outside = self.outside(path);
            if hides && !path.is_empty() && fs::symlink_metadata(&outside).is_ok_and(|facts| facts.is_dir()) {
                below(&outside, path, paths)?;
            }
        }
        Ok(())
    }

    /// Whether the path is a directory.
    pub(super) fn has_directory(&self, path: &[u8]) -> bool {
        match self.changes.get(path) {
            Some(node) => matches!(node.entry.kind, EntryKind::Directory { .. }),
            None => !self.is_hidden(path) && fs::symlink_metadata(self.outside(path)).is_ok_and(|facts| facts.is_dir()),
        }
    }

    fn facts(&self, path: &[u8], buffer: &mut Vec<u8>) -> io::Result<Option<Facts>> {
        match self.changes.get(path) {
            Some(node) => Ok(of_node(node)),
            None if self.is_hidden(path) => Ok(None),
            None => of_image(&self.outside(path), self.ids, buffer),
        }
    }

    /// Whether an entry above the path replaces that of the image.
    fn is_hidden(&self, path: &[u8]) -> bool {
        let mut above = above(path).filter_map(|above| self.changes.get(above));
        above.any(|node| !matches!(node.entry.kind, EntryKind::Directory { replaces: false }))
    }

    fn outside(&self, path: &[u8]) -> PathBuf {
        self.image.join(std::ffi::OsStr::from_bytes(path))
    }
}

/// Returns the directories above a path, the topmost first, without the root.
pub(super) fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at])
}

impl Node {
    fn is_same(&self, other: &Self) -> bool {
        let Entry { kind, mode, user, group, attributes, .. } = &self.entry;
        let of = &other.entry;
        self.hash == other.hash
            && (kind, mode, user, group, attributes) == (&of.kind, &of.mode, &of.user, &of.group, &of.attributes)
    }
}

fn of_node(node: &Node) -> Option<Facts> {
    let Entry { kind, mode, user, group, attributes, .. } = node.entry.clone();
    let kind = match kind {
        EntryKind::Directory { .. } => Kind::Directory,
        EntryKind::File { bytes } => Kind::File { bytes, hash: node.hash.clone().unwrap_or_default() },
        EntryKind::Symlink(to) => Kind::Symlink(to),
        EntryKind::Fifo => Kind::Fifo,
        EntryKind::HardLink(_) => Kind::Other,
        EntryKind::Removed => return None,
    };
    let mode = if matches!(kind, Kind::Symlink(_)) { 0 } else { mode & 0o7777 };
    Some(Facts { kind, mode, user, group, attributes })
}

fn of_image(path: &Path, ids: GuestIds, buffer: &mut Vec<u8>) -> io::Result<Option<Facts>> {
    let facts = match fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let kind = if facts.is_dir() {
        Kind::Directory
    } else if facts.is_symlink() {
        Kind::Symlink(fs::read_link(path)?.as_os_str().as_bytes().to_vec())
    } else if facts.is_file() {
        let (bytes, hash) = hash_content(&File::open(path)?, buffer)?;
        Kind::File { bytes, hash }
    } else if facts.file_type().is_fifo() {
        Kind::Fifo
    } else {
        Kind::Other
    };
    let mode = if facts.is_symlink() { 0 } else { facts.mode() & 0o7777 };
    let inside = |id: u32| ids.guest(id).unwrap_or(0);
    let attributes = attributes_of(path, ids)?;
    Ok(Some(Facts { kind, mode, user: inside(facts.uid()), group: inside(facts.gid()), attributes }))
}

/// Returns the extended attributes of a file of an image as a guest sees them.
fn attributes_of(path: &Path, ids: GuestIds) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; 64 << 10];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Err(rustix::io::Errno::NOTSUP) => return Ok(BTreeMap::new()),
        other => other?,
    };
    let mut all = BTreeMap::new();
    for name in names.get(..length).unwrap_or_default().split(|byte| *byte == 0) {
        if !name.starts_with(b"user.") && name != capability::NAME.as_bytes() {
            continue;
        }
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(length);
        if name == capability::NAME.as_bytes() {
            value = capability::unbound(value, ids);
        }
        all.insert(name.to_vec(), value);
    }
    Ok(all)
}

fn below(outside: &Path, path: &[u8], paths: &mut BTreeSet<Vec<u8>>) -> io::Result<()> {
    let mut open = vec![(outside.to_owned(), path.to_vec())];
    while let Some((outside, path)) = open.pop() {
        for entry in fs::read_dir(&outside)? {
            let entry = entry?;
            let mut inside = path.clone();
            inside.push(b'/');
            inside.extend_from_slice(entry.file_name().as_bytes());
            if entry.file_type()?.is_dir() {
                open.push((entry.path(), inside.clone()));
            }
            paths.insert(inside);
        }
    }
    Ok(())
}
