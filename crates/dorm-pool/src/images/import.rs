//! An import: unpack beside the images, complete, name by content, make durable, rename.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::node::{GuestPath, Kind, Node, Refusal};
use super::tree::Tree;
use super::{ABOUT, AboutV1, FORMAT, GUEST_ID_BASE, IMPORT, Image, Images, ROOTFS, archive, directory, listing, tags};
use crate::disk;
use crate::error::{PoolError, failed, is_full};
use crate::steps::Step;

/// How many entries there are between two reports.
const REPORT_EVERY: u64 = 500;

/// What an import does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Entries are read and written.
    Unpacking,
    /// The digest is computed.
    Hashing,
    /// The image is made durable.
    Syncing,
}

/// How far an import is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What it does.
    pub stage: Stage,
    /// Entries written so far.
    pub entries: u64,
    /// Bytes of the archive read so far, or bytes of files of a directory.
    pub bytes: u64,
    /// Bytes of the archive; `None` for a directory.
    pub bytes_total: Option<u64>,
}

/// What an import may bring. More is refused before it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 2_000_000, bytes: 64 << 30 }
    }
}

/// The mount points every run needs, since `runsc` would write missing ones into the image, and the agent's place.
const DIRECTORIES: [(&str, u32); 8] = [
    ("proc", 0o555),
    ("sys", 0o555),
    ("dev", 0o755),
    ("tmp", 0o1777),
    ("run", 0o755),
    ("etc", 0o755),
    ("etc/dormouse", 0o755),
    ("etc/dormouse/on-resume.d", 0o755),
];
const AGENT: &str = "dorm-agent";

/// A directory that is being filled; removed when dropped, unless it has been renamed.
struct Staging<'a> {
    images: &'a Images,
    path: PathBuf,
    /// Whether it still has its name: once it is renamed, the name may be somebody else's.
    is_here: bool,
    /// Held for as long as it is being filled.
    _lock: File,
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        if self.is_here
            && self.images.steps.alive()
            && let Err(error) = disk::remove_tree(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a half-imported image is left; the next import clears it");
        }
    }
}

impl Images {
    pub(crate) fn import(
        &self,
        source: &Path,
        tag: Option<&str>,
        progress: &dyn Fn(Progress),
    ) -> Result<Image, PoolError> {
        tag.map_or(Ok(()), tags::check)?;
        let mut staging = self.stage()?;
        let rootfs = staging.path.join(ROOTFS);
        disk::make_directory(&rootfs).map_err(failed("make the directory", &rootfs))?;
        let tree = Tree::open(&rootfs, GUEST_ID_BASE).map_err(failed("open", &rootfs))?;
        let mut sink = Sink { tree, source, staging: &staging.path, limits: self.limits, progress, state: START };
        sink.unpack()?;
        self.steps.reach(Step::Unpacked)?;
        sink.report(Stage::Hashing);
        let listing = listing::list(&rootfs, GUEST_ID_BASE)?;
        self.steps.reach(Step::Listed)?;
        let about = AboutV1 {
            format: FORMAT,
            digest: listing.digest.to_string(),
            bytes: listing.bytes,
            files: listing.files,
            created_ms: now_ms(),
        };
        let path = staging.path.join(ABOUT);
        let text =
            serde_json::to_vec_pretty(&about).map_err(|error| failed("put together", &path)(io::Error::from(error)))?;
        disk::write_new(&path, &text, &self.steps)?;
        disk::let_pass(&staging.path, GUEST_ID_BASE)?;
        sink.report(Stage::Syncing);
        // One call for thousands of small files: syncing each would take minutes on a slow disk.
        File::open(&staging.path)
            .and_then(|directory| Ok(rustix::fs::syncfs(directory)?))
            .map_err(failed("sync the file system of", &staging.path))?;
        self.steps.reach(Step::ImageSynced)?;
        let held = self.lock()?;
        match disk::rename_new(&staging.path, &self.path(&listing.digest)) {
            Ok(()) => staging.is_here = false,
            // Somebody has imported the same: both are right.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("rename the complete image", &staging.path)(error)),
        }
        disk::sync_directory(&self.directory, &self.steps)?;
        self.steps.reach(Step::Published)?;
        if let Some(tag) = tag {
            self.tag(tag, &listing.digest)?;
        }
        let image = self.get(&listing.digest);
        drop(held);
        image
    }

    /// An empty directory of our own, after clearing what dead imports left.
    fn stage(&self) -> Result<Staging<'_>, PoolError> {
        let held = self.lock()?;
        self.clear(&held)?;
        let mut number = 0u64;
        let path = loop {
            let path = self.directory.join(format!("{IMPORT}{number}"));
            match disk::make_directory(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(failed("make the directory", &path)(error)),
            }
        };
        match disk::try_lock_directory(&path)? {
            Some(lock) => Ok(Staging { images: self, path, is_here: true, _lock: lock }),
            None => Err(failed("lock", &path)(io::Error::from(io::ErrorKind::WouldBlock))),
        }
    }
}

const START: Progress = Progress { stage: Stage::Unpacking, entries: 0, bytes: 0, bytes_total: None };

/// Where a source brings its entries.
pub(super) struct Sink<'a> {
    tree: Tree,
    pub(super) source: &'a Path,
    staging: &'a Path,
    limits: Limits,
    progress: &'a dyn Fn(Progress),
    pub(super) state: Progress,
}

impl Sink<'_> {
    fn unpack(&mut self) -> Result<(), PoolError> {
        let facts = fs::metadata(self.source).map_err(|error| self.refused("cannot be read", Some(error)))?;
        self.report(Stage::Unpacking);
        if facts.is_dir() {
            directory::read(self)?;
        } else if facts.is_file() {
            self.state.bytes_total = Some(facts.len());
            archive::read(self)?;
        } else {
            return Err(self.refused("it is neither a directory nor an archive", None));
        }
        if self.state.entries == 0 {
            return Err(self.refused("there is nothing in it", None));
        }
        self.complete()
    }

    /// Adds the mount points and sets the times of directories.
    fn complete(&mut self) -> Result<(), PoolError> {
        let node = |path: &str, kind, mode| {
            GuestPath::parse(path.as_bytes()).map(|path| Node {
                path,
                kind,
                mode,
                user: 0,
                group: 0,
                modified: 0,
                capability: None,
            })
        };
        for (path, mode) in DIRECTORIES {
            let made = node(path, Kind::Directory, mode).and_then(|node| match self.tree.has_directory(&node.path) {
                true => Ok(()),
                false => self.tree.put(&node, &mut io::empty()),
            });
            made.map_err(|refusal| self.entry_refused(path, refusal))?;
        }
        let made = node(AGENT, Kind::File(0), 0o755).and_then(|node| self.tree.put(&node, &mut io::empty()));
        made.map_err(|refusal| self.entry_refused(AGENT, refusal))?;
        self.tree.finish_times();
        Ok(())
    }

    /// Writes one entry, unless it is too much.
    pub(super) fn add(&mut self, name: &str, node: &Node, content: &mut dyn Read) -> Result<(), PoolError> {
        self.count(name)?;
        if let Kind::File(bytes) = node.kind {
            self.limits.bytes =
                self.limits.bytes.checked_sub(bytes).ok_or_else(|| {
                    self.entry_refused(name, Refusal::because("would make the image larger than 64 GiB"))
                })?;
            if bytes >= 64 << 20 {
                let free_bytes = disk::free_bytes(self.staging)?;
                if bytes > free_bytes {
                    return Err(PoolError::NoRoom { path: self.staging.to_owned(), need_bytes: bytes, free_bytes });
                }
            }
        }
        self.tree.put(node, content).map_err(|refusal| self.entry_refused(name, refusal))
    }

    /// Counts an entry, written or left out.
    pub(super) fn count(&mut self, name: &str) -> Result<(), PoolError> {
        self.state.entries += 1;
        if self.state.entries > self.limits.entries {
            return Err(self.entry_refused(name, Refusal::because("is one too many: images have 2,000,000 at most")));
        }
        if self.state.entries.is_multiple_of(REPORT_EVERY) {
            self.report(Stage::Unpacking);
        }
        Ok(())
    }

    fn report(&mut self, stage: Stage) {
        self.state.stage = stage;
        (self.progress)(self.state);
    }

    pub(super) fn refused(&self, what: &str, source: Option<io::Error>) -> PoolError {
        PoolError::Source { path: self.source.to_owned(), what: what.to_owned(), source }
    }

    pub(super) fn entry_refused(&self, entry: &str, refusal: Refusal) -> PoolError {
        match refusal.source {
            Some(source) if is_full(&source) => PoolError::io("unpack into", self.staging, source),
            source => PoolError::Entry {
                path: self.source.to_owned(),
                entry: entry.escape_debug().to_string(),
                what: refusal.what,
                source,
            },
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
