//! Merges several trees that are based on each other into one with the same content.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dorm_engine::{Content, Entry, EntryKind, FileSink, NoContent};
use dorm_lifecycle::{Digest, SavedStateId};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::content::next_data;
use super::diff::above;
use super::listing::Listed;
use super::tree::{LISTING, ROOT, TreeWriter};
use super::{Below, SavedState, SavedStateFacts, SavedStates};
use crate::error::{StorageError, failed};

const BUFFER: usize = 256 << 10;

/// An entry of the merged tree.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) entry: Entry,
    pub(super) hash: Option<String>,
    /// The layer with its content, and its path there: the same for all names of one file.
    source: (usize, Vec<u8>),
}

/// Merges several trees, the lowest first.
pub(super) fn merge(layers: &[Vec<Listed>]) -> Result<BTreeMap<Vec<u8>, Node>, String> {
    let mut all: BTreeMap<Vec<u8>, Node> = BTreeMap::new();
    for (number, listing) in layers.iter().enumerate() {
        let firsts: HashMap<&[u8], &Listed> = listing.iter().map(|listed| (&listed.entry.path[..], listed)).collect();
        for Listed { entry, hash } in listing {
            let path = entry.path.clone();
            let mut node = Node { entry: entry.clone(), hash: hash.clone(), source: (number, path.clone()) };
            match &entry.kind {
                EntryKind::Directory { replaces } => {
                    let hides = match all.get(&path).map(|below| &below.entry.kind) {
                        Some(EntryKind::Directory { replaces: below }) if !replaces => *below,
                        Some(_) => true,
                        None => *replaces,
                    };
                    if *replaces {
                        forget(&mut all, &path);
                    }
                    node.entry.kind = EntryKind::Directory { replaces: hides };
                }
                EntryKind::HardLink(of) => {
                    let first = firsts.get(&of[..]).ok_or("names a hard link to nothing")?;
                    node = Node {
                        entry: Entry { path: path.clone(), ..first.entry.clone() },
                        hash: first.hash.clone(),
                        source: (number, of.clone()),
                    };
                    forget(&mut all, &path);
                }
                EntryKind::File { .. } | EntryKind::Symlink(_) | EntryKind::Fifo | EntryKind::Removed => {
                    forget(&mut all, &path);
                }
            }
            all.insert(path, node);
        }
    }
    Ok(all)
}

/// Removes everything below a directory that has been replaced or removed.
fn forget(all: &mut BTreeMap<Vec<u8>, Node>, path: &[u8]) {
    let (mut from, mut to) = (path.to_vec(), path.to_vec());
    if path.is_empty() {
        return;
    }
    from.push(b'/');
    to.push(b'/' + 1);
    let below: Vec<Vec<u8>> = all.range(from..to).map(|(path, _)| path.clone()).collect();
    for path in below {
        all.remove(&path);
    }
}

/// Returns the entries of `all` in the order in which they are written: the first name of a file is
/// the file, later ones are hard links to it.
fn entries(all: BTreeMap<Vec<u8>, Node>) -> Vec<(Listed, Source)> {
    let mut firsts: HashMap<(usize, Vec<u8>), Vec<u8>> = HashMap::new();
    let mut list = Vec::with_capacity(all.len());
    for (path, Node { mut entry, mut hash, source }) in all {
        if !matches!(entry.kind, EntryKind::Directory { .. } | EntryKind::Removed) {
            match firsts.get(&source) {
                Some(first) => {
                    entry.kind = EntryKind::HardLink(first.clone());
                    hash = None;
                }
                None => _ = firsts.insert(source.clone(), path),
            }
        }
        list.push((Listed { entry, hash }, source));
    }
    list
}

/// Leaves out removals where nothing of the image shows through.
fn over(mut all: BTreeMap<Vec<u8>, Node>, image: &Path) -> BTreeMap<Vec<u8>, Node> {
    let replaces = |path: &[u8]| {
        all.get(path).is_some_and(|node| !matches!(node.entry.kind, EntryKind::Directory { replaces: false }))
    };
    let shows = |path: &[u8]| {
        let directory = above(path).last().unwrap_or_default();
        let outside = image.join(std::ffi::OsStr::from_bytes(directory));
        !above(path).any(replaces) && outside.symlink_metadata().is_ok_and(|facts| facts.is_dir())
    };
    let idle: Vec<Vec<u8>> = all
        .iter()
        .filter(|(path, node)| node.entry.kind == EntryKind::Removed && !shows(path))
        .map(|(path, _)| path.clone())
        .collect();
    for path in idle {
        all.remove(&path);
    }
    all
}

/// The content of a file of a layer.
struct Copied {
    file: File,
    at: u64,
    /// The end of the current piece.
    end: u64,
    length: u64,
    buffer: Vec<u8>,
}

impl Content for Copied {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        if self.at >= self.end {
            if self.at >= self.length {
                return Ok(None);
            }
            match next_data(&self.file, self.at)? {
                Some((start, end)) => (self.at, self.end) = (start, end.min(self.length)),
                None => return Ok(None),
            }
        }
        let want = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(BUFFER);
        self.buffer.resize(want, 0);
        self.file.read_exact_at(&mut self.buffer, self.at)?;
        let at = self.at;
        self.at += want as u64;
        Ok(Some((at, &self.buffer)))
    }
}

/// The merged entries of a stack of layers, and the place of their content.
pub(crate) struct Merged {
    pub(super) entries: Vec<(Listed, Source)>,
    /// The directories of the trees, the lowest first.
    roots: Vec<PathBuf>,
}

/// The layer with the content of an entry, and its path there.
pub(super) type Source = (usize, Vec<u8>);

impl Merged {
    /// Returns each entry, a directory before its entries, with the root of the tree that holds its
    /// content, and its path there.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Entry, &Path, &[u8])> {
        let root = |number: usize| self.roots.get(number).map_or(Path::new(""), PathBuf::as_path);
        self.entries.iter().map(move |(listed, (number, path))| (&listed.entry, root(*number), &path[..]))
    }

    /// Writes all entries.
    pub(super) fn write(&self, tree: &TreeWriter) -> io::Result<()> {
        let mut tree = tree.clone();
        for (listed, source) in &self.entries {
            match &listed.entry.kind {
                EntryKind::File { bytes } => {
                    let file = open(&self.root(source), &source.1)?;
                    let content = Copied { file, at: 0, end: 0, length: *bytes, buffer: Vec::new() };
                    tree.take(&listed.entry, &mut { content })?;
                }
                _ => tree.take(&listed.entry, &mut NoContent)?,
            }
        }
        Ok(())
    }

    /// Returns the root of the tree that holds the content.
    pub(super) fn root(&self, source: &Source) -> PathBuf {
        self.roots.get(source.0).cloned().unwrap_or_default()
    }
}

impl SavedStates {
    /// Merges `top` and all layers below it, on the image at `image`.
    pub(crate) fn merged(&self, top: &SavedStateId, image: &Path) -> Result<Merged, StorageError> {
        let layers = self.layers(top)?;
        let mut listings = Vec::new();
        for layer in layers.iter().rev() {
            listings.push(self.listing(layer)?);
        }
        let damaged = |what: String| StorageError::Damaged { saved_state: top.clone(), file: LISTING.into(), what };
        let entries = entries(over(merge(&listings).map_err(damaged)?, image));
        Ok(Merged { entries, roots: layers.iter().rev().map(SavedState::root).collect() })
    }

    /// Makes `to` a filesystem saved state that is based on the image itself and has the same
    /// content as `top` with all layers below it. These do not change.
    pub(crate) fn flatten(
        self: &Arc<Self>,
        top: &SavedStateId,
        to: &SavedStateId,
        image: &dyn Fn(&Digest) -> Result<PathBuf, StorageError>,
    ) -> Result<SavedState, StorageError> {
        let layers = self.layers(top)?;
        let Some(topmost) = layers.first() else { return Err(StorageError::Missing(top.clone())) };
        let image = image(&topmost.facts.image)?;
        let merged = self.merged(top, &image)?;
        let need = merged.entries.iter().map(|(listed, _)| bytes_of(&listed.entry)).sum();
        let draft = self.begin(to, need)?;
        let tree = draft.tree(Below::default())?;
        merged.write(&tree).map_err(failed("merge layers into", draft.directory()))?;
        let facts = SavedStateFacts { layer: None, ..topmost.facts.clone() };
        self.read_back(&draft.commit_tree_now(&facts, &tree)?, &merged)
    }

    /// Merges a tree that was just written in the draft of `id` with the layers below it.
    pub(super) fn merged_with(
        &self,
        id: &SavedStateId,
        draft: &Path,
        (facts, tree): (&SavedStateFacts, &TreeWriter),
        image: &Path,
    ) -> Result<Merged, StorageError> {
        tree.finish().map_err(failed("complete the tree in", draft))?;
        let layers = facts.layer.as_ref().map_or(Ok(Vec::new()), |layer| self.layers(layer))?;
        let mut listings = Vec::new();
        for layer in layers.iter().rev() {
            listings.push(self.listing(layer)?);
        }
        let damaged = |what: String| StorageError::Damaged { saved_state: id.clone(), file: LISTING.into(), what };
        listings.push(Self::listing_in(draft, id)?);
        let entries = entries(over(merge(&listings).map_err(damaged)?, image));
        let roots = layers.iter().rev().map(SavedState::root).chain([draft.join(ROOT)]);
        Ok(Merged { entries, roots: roots.collect() })
    }

    /// Compares a merged saved state with what was written, as read back from the disk: only then
    /// may it replace anything. One that differs is removed.
    pub(super) fn read_back(&self, flat: &SavedState, wanted: &Merged) -> Result<SavedState, StorageError> {
        let found = self.listing(flat)?;
        let is_same =
            found.len() == wanted.entries.len() && found.iter().eq(wanted.entries.iter().map(|(listed, _)| listed));
        let checked = match is_same {
            true => self.check_content(flat),
            false => Err(StorageError::Damaged {
                saved_state: flat.id.clone(),
                file: LISTING.into(),
                what: "differs from what was written when its layers were merged".to_owned(),
            }),
        };
        if let Err(error) = checked {
            self.remove(&flat.id)?;
            return Err(error);
        }
        Ok(flat.clone())
    }
}

fn bytes_of(entry: &Entry) -> u64 {
    match entry.kind {
        EntryKind::File { bytes } => bytes,
        _ => 0,
    }
}

/// Opens a file of a layer without following links.
pub(super) fn open(root: &Path, path: &[u8]) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let root = rustix::fs::openat(CWD, root, flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(File::from(rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve)?))
}
