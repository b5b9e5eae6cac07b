//! Creates an image from the state of a sandbox: the files of an image with those of filesystem
//! snapshots above them. Files are linked instead of copied where possible; afterwards neither the
//! image nor the saved states are needed. A damaged file is refused: the digest of the new image
//! would say that it is intact.

use std::io;
use std::path::Path;

use dorm_engine::{Entry, EntryKind};
use dorm_lifecycle::Digest;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};

use super::import::{Contents, Job, Sink};
use super::node::{GuestPath, Kind, Node, Refusal};
use super::settings::{ImageConfig, ImageSource};
use super::tree::Tree;
use super::{Image, Images, Progress, ROOTFS, layers, users};
use crate::disk;
use crate::error::{StorageError, failed};
use crate::saved_states::Merged;

/// Files below this directory belong to one sandbox and not to its content.
const IDENTITY: &[u8] = b"run/dormouse/";

impl Images {
    /// Creates an image of `base`, with `over` above it if given, and with these settings.
    pub(crate) fn compose(
        &self,
        base: &Digest,
        over: Option<&Merged>,
        mut config: ImageConfig,
        build: Option<String>,
        progress: &dyn Fn(Progress),
    ) -> Result<Image, StorageError> {
        let below = self.owned(base)?;
        let mut job = Job::start(&below.rootfs, self, progress);
        let staging = self.stage()?;
        let rootfs = staging.path().join(ROOTFS);
        disk::make_directory(&rootfs).map_err(failed("create the directory", &rootfs))?;
        let tree = self.tree(&rootfs).map_err(failed("open", &rootfs))?;
        let mut sink = Sink::new(&mut job, tree, staging.path());
        layers::link_all(&mut sink.tree, &below.rootfs)
            .map_err(|(entry, refusal)| sink.entry_refused(&entry, refusal))?;
        for (entry, root, path) in over.into_iter().flat_map(Merged::each) {
            // The identity of the sandbox is written anew in each sandbox.
            if entry.path.starts_with(IDENTITY) {
                continue;
            }
            let name = String::from_utf8_lossy(&entry.path);
            sink.count(&name, 0)?;
            put(&mut sink.tree, entry, root, path).map_err(|refusal| sink.entry_refused(&name, refusal))?;
        }
        sink.make_place(&config)?;
        sink.complete()?;
        config.user = config.user.map(|user| users::numbered(&rootfs, user));
        let source = ImageSource { build, ..ImageSource::default() };
        let below = Some(below.clone());
        let contents = Contents { config: Some(config), source: Some(source), below, ..Contents::default() };
        self.publish(staging, contents, None, &mut job)
    }
}

/// Writes one entry of a saved state, whose content is below `root` at `path`.
fn put(tree: &mut Tree, entry: &Entry, root: &Path, path: &[u8]) -> Result<(), Refusal> {
    let at = GuestPath::parse(&entry.path)?;
    let kind = match &entry.kind {
        EntryKind::Directory { replaces } => {
            if *replaces {
                tree.clear_way(&at)?;
            }
            tree.put(&node(entry, at.clone(), Kind::Directory), &mut io::empty())?;
            return tree.set_attributes(&at, entry);
        }
        EntryKind::File { .. } | EntryKind::Symlink(_) => return link(tree, &at, root, path),
        EntryKind::Removed => return tree.clear_way(&at),
        EntryKind::HardLink(of) => Kind::HardLink(GuestPath::parse(of)?),
        EntryKind::Fifo => Kind::Fifo,
    };
    tree.clear_way(&at)?;
    tree.put(&node(entry, at, kind), &mut io::empty())
}

fn node(entry: &Entry, path: GuestPath, kind: Kind) -> Node {
    let Entry { mode, user, group, modified, .. } = *entry;
    Node { path, kind, mode, user, group, modified: modified.0, capability: None }
}

/// Creates a hard link at `at` to a file of a saved state.
fn link(tree: &mut Tree, at: &GuestPath, root: &Path, path: &[u8]) -> Result<(), Refusal> {
    let unreadable = |error| Refusal::system("cannot be found in its saved state", error);
    let source = GuestPath::parse(path)?;
    let (directory, name) = source.split().ok_or_else(|| Refusal::because("has no name in its saved state"))?;
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let root = rustix::fs::openat(CWD, root, flags, Mode::empty()).map_err(unreadable)?;
    let directory = if directory.is_empty() { b"." } else { directory };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let from = rustix::fs::openat2(&root, directory, flags, Mode::empty(), resolve).map_err(unreadable)?;
    let facts = rustix::fs::statat(&from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(unreadable)?;
    tree.link_from(at, (&from, name), &facts)
}
