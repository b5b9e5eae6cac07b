//! An import: unpack beside the images, complete, name by content, make durable, rename.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use dorm_guest_ids::RECORD;
use dorm_lifecycle::Digest;
use dorm_ports::{Progress, Stage};

use super::archive::{self, Entries, Wrong};
use super::bundle::{self, Bundle};
use super::documents::{self, BlobDigest};
use super::layers::{self, Layer, LayerEntries, Links};
use super::limits::{Brought, ImportLimits};
use super::node::{GuestPath, Kind, Node, Refusal};
use super::reader::Reader;
use super::settings::{ImageConfig, ImageSource};
use super::tree::Tree;
use super::{ABOUT, About, FILES, FORMAT, IMPORT, Image, Images, ROOTFS, directory, listing, tags, users};
use crate::disk;
use crate::error::{StorageError, failed};
use crate::room::{self, Meter};
use crate::steps::Step;

/// How many entries are between two progress reports.
const REPORT_EVERY: u64 = 500;

/// The mount points that every run needs, since `runsc` would create missing ones in the image, and
/// the agent's file.
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
pub(super) const AGENT: &str = "dorm-agent";

/// A directory that is being filled; removed when dropped, unless it has been renamed.
pub(super) struct Staging<'a> {
    images: &'a Images,
    path: PathBuf,
    /// Whether it still has its name: once it is renamed, another process may use the name.
    is_here: bool,
    /// The directory, locked as long as it is being filled. It was opened before anything was
    /// written: the kernel reports a failed write to each descriptor that was open then.
    opened: File,
}

impl Staging<'_> {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes everything durable that was written to the file system since this was created.
    pub(super) fn sync(&self) -> Result<(), StorageError> {
        rustix::fs::syncfs(&self.opened).map_err(failed("sync the file system of", &self.path))
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        if self.is_here
            && self.images.steps.alive()
            && let Err(error) = disk::remove_tree(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a partially imported image; the next import removes it");
        }
    }
}

impl Images {
    pub(crate) fn import(
        &self,
        source: &Path,
        tag: Option<&str>,
        architecture: Option<&str>,
        progress: &dyn Fn(Progress),
    ) -> Result<Image, StorageError> {
        tag.map_or(Ok(()), tags::check)?;
        let mut job = Job::start(source, self, progress);
        let architecture = architecture.unwrap_or_else(|| documents::host_architecture());
        match bundle::open(&mut job, architecture, self)? {
            bundle::Found::Rootfs => self.import_rootfs(&mut job, tag),
            bundle::Found::Spooled(file) => self.import_rootfs(&mut Job { source: file.path(), ..job }, tag),
            bundle::Found::Image(bundle, _spooled) => self.import_bundle(*bundle, tag, &mut job),
        }
    }

    /// Imports the image of a manifest and its blobs in `directory`. A blob may be missing if its
    /// layer is already stored.
    pub(crate) fn import_blobs(
        &self,
        directory: &Path,
        manifest: &BlobDigest,
        source: ImageSource,
        tag: Option<&str>,
        progress: &dyn Fn(Progress),
    ) -> Result<Image, StorageError> {
        tag.map_or(Ok(()), tags::check)?;
        let mut job = Job::start(directory, self, progress);
        let bundle = bundle::of_manifest(&job, manifest, source, self)?;
        self.import_bundle(bundle, tag, &mut job)
    }

    /// Imports a directory, or the archive of one.
    fn import_rootfs(&self, job: &mut Job<'_>, tag: Option<&str>) -> Result<Image, StorageError> {
        let staging = self.stage()?;
        let rootfs = staging.path.join(ROOTFS);
        disk::make_directory(&rootfs).map_err(failed("create the directory", &rootfs))?;
        let tree = self.tree(&rootfs).map_err(failed("open", &rootfs))?;
        let mut sink = Sink::new(job, tree, &staging.path).read_by(&self.reader);
        sink.unpack()?;
        sink.complete()?;
        self.publish(staging, Contents::default(), tag, job)
    }

    /// Imports an image with layers.
    pub(super) fn import_bundle(
        &self,
        bundle: Bundle,
        tag: Option<&str>,
        job: &mut Job<'_>,
    ) -> Result<Image, StorageError> {
        if let Some(image) = self.same(&bundle)? {
            if let Some(tag) = tag {
                let _held = self.lock()?;
                self.tag(tag, &image)?;
            }
            return self.get(&image);
        }
        let result = self.import_layers(bundle, tag, job);
        if result.is_err() && self.steps.alive() {
            // Layers that were completed before another step failed belong to no image.
            self.clear_layers()?;
        }
        result
    }

    /// Returns the existing image that is built from the same source.
    fn same(&self, bundle: &Bundle) -> Result<Option<Digest>, StorageError> {
        let layers: Vec<_> = bundle.layers.iter().map(|layer| layer.diff_id.hex()).collect();
        for digest in self.digests()? {
            match self.about(&digest) {
                Ok(about) if about.layers == layers && about.config.as_ref() == Some(&bundle.config) => {
                    return match self.sound(&digest) {
                        Ok(_) => Ok(Some(digest)),
                        // It is imported again, which repairs it.
                        Err(StorageError::DamagedImage { .. }) => Ok(None),
                        Err(error) if error.is_unread() => Ok(None),
                        Err(error) => Err(error),
                    };
                }
                Ok(_) | Err(StorageError::NoImage { .. } | StorageError::DamagedImage { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn import_layers(&self, bundle: Bundle, tag: Option<&str>, job: &mut Job<'_>) -> Result<Image, StorageError> {
        let staging = self.stage()?;
        self.steps.reach(Step::ImportBegun)?;
        let _kept = self.keep_layers()?;
        let rootfs = staging.path.join(ROOTFS);
        disk::make_directory(&rootfs).map_err(failed("create the directory", &rootfs))?;
        let mut tree = self.tree(&rootfs).map_err(failed("open", &rootfs))?;
        let root = GuestPath::parse(b"").and_then(|path| tree.put(&directory_node(path, 0o755), &mut io::empty()));
        root.map_err(|refusal| job.entry_refused("/", refusal, &staging.path))?;
        let mut layers: Vec<Layer> = Vec::new();
        for blob in &bundle.layers {
            // Some images contain a layer several times, most of them the empty one.
            let at = match layers.iter().position(|layer| layer.diff_id == blob.diff_id.hex()) {
                Some(at) => at,
                None => {
                    let found = match self.layer(blob.diff_id.hex())? {
                        Some(layer) => layer,
                        None => layers::unpack(self, blob, job)?,
                    };
                    layers.push(found);
                    layers.len() - 1
                }
            };
            layers::apply(&mut tree, &layers[at])
                .map_err(|(entry, refusal)| job.entry_refused(&entry, refusal, &staging.path))?;
        }
        self.steps.reach(Step::LayersStacked)?;
        let mut config = bundle.config;
        let mut sink = Sink::new(job, tree, &staging.path);
        sink.make_place(&config)?;
        sink.complete()?;
        config.user = config.user.map(|user| users::numbered(&rootfs, user));
        let order = bundle.layers.iter().map(|layer| layer.diff_id.hex().to_owned()).collect();
        let contents = Contents { config: Some(config), source: Some(bundle.source), layers, order, below: None };
        self.publish(staging, contents, tag, job)
    }

    /// Names the unpacked content by its digest, makes it durable, and moves it to its place.
    pub(super) fn publish(
        &self,
        mut staging: Staging<'_>,
        mut contents: Contents,
        tag: Option<&str>,
        job: &mut Job<'_>,
    ) -> Result<Image, StorageError> {
        self.steps.reach(Step::Unpacked)?;
        job.report(Stage::Hashing);
        let path = staging.path.join(ABOUT);
        let listing = listing::list_into(&staging.path.join(ROOTFS), self.ids, &staging.path.join(FILES))?;
        self.steps.reach(Step::Listed)?;
        let listing = self.check_new(&staging.path, listing, contents.below.as_ref())?;
        let digest = match &contents.config {
            Some(config) => config.digest(&listing.digest).map_err(failed("name", &path))?,
            None => listing.digest.clone(),
        };
        let about = About {
            format: FORMAT,
            digest: digest.to_string(),
            bytes: listing.bytes,
            files: listing.files,
            created_ms: now_ms(),
            config: contents.config.take(),
            source: contents.source.take(),
            layers: contents.order,
        };
        let text =
            serde_json::to_vec_pretty(&about).map_err(|error| failed("assemble", &path)(io::Error::from(error)))?;
        disk::write_new(&path, &text, &self.steps)?;
        disk::write_new(&staging.path.join(RECORD), self.ids.to_record().as_bytes(), &self.steps)?;
        disk::let_pass(&staging.path, self.ids.base())?;
        job.report(Stage::Syncing);
        // One call for thousands of small files: syncing each would take minutes on a slow disk.
        staging.sync()?;
        self.steps.reach(Step::ImageSynced)?;
        if !contents.layers.is_empty() {
            self.publish_layers(&mut contents.layers)?;
        }
        let held = self.lock()?;
        match disk::rename_new(&staging.path, &self.path(&digest)) {
            Ok(()) => staging.is_here = false,
            // Another import has created the same image: both are intact, unless the existing one
            // was damaged since.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                match self.give(&digest, &held).and_then(|()| self.sound(&digest)) {
                    Ok(_) => {}
                    Err(StorageError::DamagedImage { .. }) => self.mend(&digest, &staging)?,
                    Err(error) if error.is_unread() => self.mend(&digest, &staging)?,
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(failed("rename the complete image", &staging.path)(error)),
        }
        disk::sync_directory(&self.directory, &self.steps)?;
        self.steps.reach(Step::Published)?;
        if let Some(tag) = tag {
            self.tag(tag, &digest)?;
        }
        let image = self.get(&digest);
        drop(held);
        image
    }

    /// Opens a tree in the empty directory `root`; writing to it leaves the disk's reserve free.
    pub(super) fn tree(&self, root: &Path) -> io::Result<Tree> {
        Tree::open(root, self.ids, self.meter())
    }

    /// Returns a meter of what one import writes.
    pub(super) fn meter(&self) -> Meter {
        self.room.meter(&self.directory)
    }

    /// Creates an empty staging directory, after removing the remains of interrupted imports.
    pub(super) fn stage(&self) -> Result<Staging<'_>, StorageError> {
        let (path, lock) = self.claim()?;
        Ok(Staging { images: self, path, is_here: true, opened: lock })
    }

    /// Creates a directory that belongs to this process as long as it holds the lock.
    pub(super) fn claim(&self) -> Result<(PathBuf, File), StorageError> {
        let held = self.lock()?;
        self.clear(&held)?;
        let mut number = 0u64;
        let path = loop {
            let path = self.directory.join(format!("{IMPORT}{number}"));
            match disk::make_directory(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(failed("create the directory", &path)(error)),
            }
        };
        match disk::try_lock_directory(&path)? {
            Some(lock) => Ok((path, lock)),
            None => Err(failed("lock", &path)(io::Error::from(io::ErrorKind::WouldBlock))),
        }
    }
}

/// The content of an image beside its files.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) config: Option<ImageConfig>,
    pub(super) source: Option<ImageSource>,
    pub(super) layers: Vec<Layer>,
    /// The names of the layers, the lowest first; one may occur several times.
    pub(super) order: Vec<String>,
    /// The image whose files the new one shares.
    pub(super) below: Option<Image>,
}

/// One import: its source, its progress, and the amount imported so far.
pub(super) struct Job<'a> {
    pub(super) source: &'a Path,
    pub(super) limits: ImportLimits,
    pub(super) brought: Brought,
    /// How many bytes of the source have been read.
    pub(super) read: Arc<AtomicU64>,
    pub(super) bytes_total: Option<u64>,
    progress: &'a dyn Fn(Progress),
}

impl<'a> Job<'a> {
    /// Creates a job that has just begun.
    pub(super) fn start(source: &'a Path, images: &Images, progress: &'a dyn Fn(Progress)) -> Self {
        let (limits, brought, read) = (images.limits, Brought::default(), Arc::default());
        let job = Self { source, limits, brought, read, bytes_total: None, progress };
        job.report(Stage::Unpacking);
        job
    }

    pub(super) fn report(&self, stage: Stage) {
        let (entries, bytes) = (self.brought.entries(), self.read.load(Ordering::Relaxed));
        (self.progress)(Progress { stage, entries, bytes, bytes_total: self.bytes_total });
    }

    pub(super) fn refused(&self, what: &str, source: Option<io::Error>) -> StorageError {
        let refused = |source| StorageError::Source { path: self.source.to_owned(), what: what.to_owned(), source };
        match source.map(|source| room::full("unpack into", self.source, source)) {
            Some(Ok(full)) => full,
            Some(Err(source)) => refused(Some(source)),
            None => refused(None),
        }
    }

    pub(super) fn entry_refused(&self, entry: &str, refusal: Refusal, into: &Path) -> StorageError {
        let refused = |source| StorageError::Entry {
            path: self.source.to_owned(),
            entry: entry.escape_debug().to_string(),
            what: refusal.what,
            source,
        };
        match refusal.source.map(|source| room::full("unpack into", into, source)) {
            Some(Ok(full)) => full,
            Some(Err(source)) => refused(Some(source)),
            None => refused(None),
        }
    }
}

/// The destination of a source's entries.
pub(super) struct Sink<'j, 'a> {
    pub(super) job: &'j mut Job<'a>,
    pub(super) tree: Tree,
    staging: &'j Path,
    /// The parser of the source.
    pub(super) reader: Reader,
    /// The parts of a layer's entries that files cannot represent.
    entries: Option<LayerEntries>,
}

impl<'j, 'a> Sink<'j, 'a> {
    pub(super) fn new(job: &'j mut Job<'a>, tree: Tree, staging: &'j Path) -> Self {
        Self { job, tree, staging, reader: Reader::InProcess, entries: None }
    }

    /// Returns the same sink, whose source is parsed by `reader`.
    pub(super) fn read_by(self, reader: &Reader) -> Self {
        Self { reader: reader.clone(), ..self }
    }

    /// Returns the same sink, whose entries are changes to lower layers.
    pub(super) fn of_layer(self) -> Self {
        Self { entries: Some(LayerEntries::default()), ..self }
    }

    fn unpack(&mut self) -> Result<(), StorageError> {
        let source = self.job.source;
        let facts = fs::metadata(source).map_err(|error| self.refused("cannot be read", Some(error)))?;
        if facts.is_dir() {
            directory::read(self)?;
        } else if facts.is_file() {
            self.job.bytes_total = Some(facts.len());
            archive::read(self)?;
        } else {
            return Err(self.refused("it is neither a directory nor an archive", None));
        }
        if self.job.brought.entries() == 0 {
            return Err(self.refused("it is empty", None));
        }
        Ok(())
    }

    /// Creates the working directory of the image's programs, if it is missing.
    pub(super) fn make_place(&mut self, config: &ImageConfig) -> Result<(), StorageError> {
        let Some(directory) = &config.directory else { return Ok(()) };
        let Ok(path) = GuestPath::parse(directory.as_bytes()) else { return Ok(()) };
        if self.tree.has(&path) {
            return Ok(());
        }
        let made = self.tree.put(&directory_node(path, 0o755), &mut io::empty());
        made.map_err(|refusal| self.entry_refused(directory, refusal))
    }

    /// Adds the mount points and sets the times of directories.
    pub(super) fn complete(&mut self) -> Result<(), StorageError> {
        for (path, mode) in DIRECTORIES {
            let made = GuestPath::parse(path.as_bytes()).and_then(|parsed| match self.tree.has_directory(&parsed) {
                true => Ok(()),
                false => self.tree.put(&directory_node(parsed, mode), &mut io::empty()),
            });
            made.map_err(|refusal| self.entry_refused(path, refusal))?;
        }
        let made = GuestPath::parse(AGENT.as_bytes()).and_then(|path| {
            let node = Node { kind: Kind::File(0), ..directory_node(path, 0o755) };
            self.tree.put(&node, &mut io::empty())
        });
        made.map_err(|refusal| self.entry_refused(AGENT, refusal))?;
        self.finish_times();
        Ok(())
    }

    pub(super) fn finish_times(&mut self) {
        self.tree.finish_times();
    }

    /// Returns the hard links to files of lower layers.
    pub(super) fn links(&mut self) -> Links {
        self.entries.take().map(|entries| entries.links).unwrap_or_default()
    }

    /// Writes one entry, if the limits allow it.
    pub(super) fn add(&mut self, name: &str, node: Node, content: &mut dyn Read) -> Result<(), StorageError> {
        let bytes = if let Kind::File(bytes) = node.kind { bytes } else { 0 };
        self.count(name, bytes)?;
        let node = match &mut self.entries {
            None => Some(node),
            Some(entries) => {
                let read = entries.read(node, &self.tree);
                read.map_err(|refusal| self.job.entry_refused(name, refusal, self.staging))?
            }
        };
        let Some(node) = node else { return Ok(()) };
        self.tree.put(&node, content).map_err(|refusal| self.entry_refused(name, refusal))
    }

    /// Counts an entry with this many bytes, written or skipped: skipped content is read, too.
    pub(super) fn count(&mut self, name: &str, bytes: u64) -> Result<(), StorageError> {
        let job = &mut *self.job;
        let counted = job.brought.entry(&job.limits).and_then(|()| job.brought.content(bytes, &job.limits));
        // In addition to the entry there will be a line for it in the list.
        let counted = counted.and_then(|()| self.tree.charge_line(name));
        counted.map_err(|refusal| self.entry_refused(name, refusal))?;
        if self.job.brought.entries().is_multiple_of(REPORT_EVERY) {
            self.job.report(Stage::Unpacking);
        }
        Ok(())
    }

    /// Returns the error for the archive that is being read.
    pub(super) fn wrong(&self, wrong: Wrong<StorageError>) -> StorageError {
        match wrong {
            Wrong::Archive { what, source } => self.refused(&what, source),
            Wrong::Entry { name, refusal } => self.entry_refused(&name, refusal),
            Wrong::Taker(error) => error,
        }
    }

    pub(super) fn refused(&self, what: &str, source: Option<io::Error>) -> StorageError {
        self.job.refused(what, source)
    }

    pub(super) fn entry_refused(&self, entry: &str, refusal: Refusal) -> StorageError {
        self.job.entry_refused(entry, refusal, self.staging)
    }
}

impl Entries for Sink<'_, '_> {
    type Error = StorageError;

    fn entry(&mut self, name: &str, node: Node, content: &mut dyn Read) -> Result<(), StorageError> {
        self.add(name, node, content)
    }

    fn left_out(&mut self, name: &str, bytes: u64) -> Result<(), StorageError> {
        self.count(name, bytes)
    }
}

fn directory_node(path: GuestPath, mode: u32) -> Node {
    Node { path, kind: Kind::Directory, mode, user: 0, group: 0, modified: 0, capability: None }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
