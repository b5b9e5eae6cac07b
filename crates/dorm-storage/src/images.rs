//! Images: immutable root file systems identified by their content, and their tags.
//!
//! ```text
//! source ─► .import-N/rootfs (unpack, mount points, ownership) ─► digest ─► sync ─► DIGEST/ ─► tags/TAG
//! ```
//!
//! The layers of an image are stored in `layers/`, and its `rootfs` contains hard links to their
//! files.
//!
//! Several processes may share the directory. Short steps that check and then change something hold
//! `.lock`; an import in progress holds its own directory, which distinguishes it from one that a
//! dead process left.
//!
//! Ordinary users of the host must not be able to traverse to a root file system, since it contains
//! set-UID programs: the directories above belong to root and the group of guest root, with mode
//! 0710. Bare `runsc` reaches images through these directories; for it, those above `IMAGES` itself
//! must be open to everybody.

mod archive;
mod bundle;
mod compose;
mod context;
mod directory;
pub(crate) mod documents;
mod export;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod import;
mod layers;
mod limits;
mod listing;
mod node;
mod owners;
mod reader;
mod references;
mod settings;
mod sound;
mod spool;
mod tags;
#[cfg(test)]
mod tests;
mod tree;
mod users;

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dorm_guest_ids::GuestIds;
use dorm_lifecycle::{Digest, Timestamp};
use dorm_ports::Progress;
use serde::{Deserialize, Serialize};

use crate::disk;
use crate::error::{StorageError, failed};
use crate::room::Room;
use crate::steps::{Step, Steps};

pub use export::ExportedImage;
pub use limits::ImportLimits;
pub use reader::READERS;
pub(crate) use reader::Reader;
pub use references::Owner;
pub use settings::{ImageConfig, ImageSource};
pub use spool::Spool;
pub use tags::check as check_tag;
pub use users::numbered_user;

const LOCK: &str = ".lock";
const IMPORT: &str = ".import-";
const GONE: &str = ".gone-";
const ABOUT: &str = "image.json";
pub(crate) const ROOTFS: &str = "rootfs";
/// A list with one line for each entry below `rootfs`.
const FILES: &str = "files.list";
const FORMAT: u32 = 1;

/// An immutable root file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// BLAKE3 over all its content except timestamps.
    pub digest: Digest,
    /// Its tags, sorted.
    pub tags: Vec<String>,
    /// The total length of its files, hard links counted once.
    pub bytes: u64,
    /// The number of its files, directories and links.
    pub files: u64,
    /// When it was imported here.
    pub created: Timestamp,
    /// The directory of its root file system. Owned by guest IDs, and must not be written to.
    pub rootfs: PathBuf,
    /// How its programs are run, if the image specifies it.
    pub config: ImageConfig,
    /// Where it came from, if that is known.
    pub source: ImageSource,
    /// Its layers, the lowest first: the SHA-256 of their archives.
    pub layers: Vec<String>,
}

/// `image.json`.
#[derive(Serialize, Deserialize)]
struct About {
    format: u32,
    digest: String,
    bytes: u64,
    files: u64,
    created_ms: u64,
    /// None for a root filesystem without anything else.
    #[serde(deserialize_with = "Option::deserialize")]
    config: Option<ImageConfig>,
    #[serde(deserialize_with = "Option::deserialize")]
    source: Option<ImageSource>,
    layers: Vec<String>,
}

/// Returns the nearest directory above `directory` that guests' IDs cannot traverse, if there is
/// one: a sandbox can use nothing below it.
pub fn closed_to_guests(directory: &Path, ids: GuestIds) -> Option<PathBuf> {
    let whole = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let lets_pass =
        |facts: &Metadata| facts.mode() & 0o001 != 0 || (facts.gid() == ids.base() && facts.mode() & 0o010 != 0);
    // Missing directories are created so that guests' IDs can traverse them.
    let closed = whole.ancestors().skip(1).find(|above| fs::metadata(above).is_ok_and(|facts| !lets_pass(&facts)));
    closed.map(Path::to_owned)
}

/// All images of one directory.
pub(crate) struct Images {
    directory: PathBuf,
    /// The host IDs of guests. Images with other owners are changed before they are used.
    ids: GuestIds,
    steps: Steps,
    limits: ImportLimits,
    room: Room,
    reader: Reader,
    owner: Option<Owner>,
    known: sound::Known,
}

impl Images {
    pub(crate) fn open(directory: PathBuf, ids: GuestIds, steps: Steps) -> Result<Self, StorageError> {
        disk::make_directories(&directory)?;
        disk::make_directories(&directory.join(tags::DIRECTORY))?;
        // Another group is that of other guests, who may still need it: see `set_owner`.
        let group = fs::metadata(&directory).map_err(failed("read the metadata of", &directory))?.gid();
        if group == 0 || group == ids.base() {
            disk::let_pass(&directory, ids.base())?;
        }
        let known = sound::Known::default();
        let (limits, room, reader) = (ImportLimits::default(), Room::default(), Reader::InProcess);
        let images = Self { directory, ids, steps, limits, room, reader, owner: None, known };
        let held = images.lock()?;
        // A removal that fails now is tried again at the next start.
        if let Err(error) = images.complete_changes(&held) {
            tracing::warn!(%error, "cannot finish changing the owners of images; they stay unusable");
        }
        if let Err(error) = images.clear(&held) {
            tracing::warn!(%error, "cannot remove the remains of interrupted imports");
        }
        drop(held);
        if let Err(error) = images.clear_layers() {
            tracing::warn!(%error, "cannot remove unused layers");
        }
        Ok(images)
    }

    /// Returns the same images without cleaning up again.
    pub(crate) fn reopened(&self) -> Self {
        Self {
            directory: self.directory.clone(),
            ids: self.ids,
            steps: self.steps.clone(),
            limits: self.limits,
            room: self.room.clone(),
            reader: self.reader.clone(),
            owner: self.owner.clone(),
            known: sound::Known::default(),
        }
    }

    /// Returns the same images, with other import limits.
    pub(crate) fn limited(self, limits: ImportLimits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the same images, whose sources are parsed by `reader`.
    pub(crate) fn read_by(self, reader: Reader) -> Self {
        Self { reader, ..self }
    }

    /// Returns the same images; writing to them leaves the reserve of `room` free.
    pub(crate) fn within(self, room: Room) -> Self {
        Self { room, ..self }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn closed_to_guests(&self) -> Option<PathBuf> {
        closed_to_guests(&self.directory, self.ids)
    }

    pub(crate) fn list(&self) -> Result<Vec<Image>, StorageError> {
        let tags = self.tags()?;
        let mut images = Vec::new();
        for digest in self.digests()? {
            match self.read(&digest, &tags) {
                Ok(image) => images.push(image),
                // Removed since the directory was listed.
                Err(StorageError::NoImage { .. }) => {}
                // An error names it when it is needed.
                Err(error) => {
                    tracing::warn!(image = %digest, %error, "cannot read an image; leaving it out of the list")
                }
            }
        }
        Ok(images)
    }

    /// Returns the images whose description cannot be read, each with the reason.
    pub(crate) fn unreadable(&self) -> Result<Vec<(Digest, StorageError)>, StorageError> {
        let mut found = Vec::new();
        for digest in self.digests()? {
            match self.about(&digest) {
                Ok(_) | Err(StorageError::NoImage { .. }) => {}
                Err(error) => found.push((digest, error)),
            }
        }
        Ok(found)
    }

    pub(crate) fn get(&self, digest: &Digest) -> Result<Image, StorageError> {
        match self.read(digest, &self.tags()?) {
            Err(StorageError::NoImage { reference, .. }) => {
                Err(StorageError::NoImage { reference, available: self.available()? })
            }
            other => other,
        }
    }

    pub(crate) fn resolve(&self, reference: &str) -> Result<Image, StorageError> {
        if let Some((_, digest)) = self.tags()?.into_iter().find(|(tag, _)| tag == reference) {
            return self.get(&digest);
        }
        let is_prefix = reference.len() >= 8 && reference.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut matches = if is_prefix { self.digests()? } else { Vec::new() };
        matches.retain(|digest| digest.as_str().starts_with(reference));
        match matches.as_slice() {
            [] => Err(StorageError::NoImage { reference: reference.to_owned(), available: self.available()? }),
            [digest] => self.get(digest),
            several => Err(StorageError::Ambiguous {
                reference: reference.to_owned(),
                matches: several.iter().map(Digest::to_string).collect(),
            }),
        }
    }

    pub(crate) fn remove(&self, digest: &Digest) -> Result<(), StorageError> {
        let held = self.lock()?;
        if self.is_referred(digest) {
            let held_by = vec!["a sandbox or snapshot that is being created".to_owned()];
            return Err(StorageError::InUse { image: digest.clone(), held_by });
        }
        let foreign = self.foreign(digest)?;
        if !foreign.is_empty() {
            return Err(StorageError::Referred { image: digest.clone(), by: foreign });
        }
        self.untag(digest)?;
        self.steps.reach(Step::Untagged)?;
        let gone = self.directory.join(format!("{GONE}{digest}"));
        disk::remove_tree(&gone)?;
        match disk::rename_new(&self.path(digest), &gone) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed("rename before removing", &self.path(digest))(error)),
        }
        self.steps.reach(Step::GoneRenamed)?;
        disk::sync_directory(&self.directory, &self.steps)?;
        disk::remove_tree(&gone)?;
        self.steps.reach(Step::Removed)?;
        drop(held);
        self.clear_layers()
    }

    /// Returns how programs of an image are run.
    pub(crate) fn config(&self, digest: &Digest) -> Result<ImageConfig, StorageError> {
        Ok(self.about(digest)?.config.unwrap_or_default())
    }

    pub(crate) fn digests(&self) -> Result<Vec<Digest>, StorageError> {
        let mut digests: Vec<Digest> =
            disk::names(&self.directory)?.iter().filter_map(|name| name.parse().ok()).collect();
        digests.sort_unstable();
        Ok(digests)
    }

    /// Returns the description of an image.
    fn about(&self, digest: &Digest) -> Result<About, StorageError> {
        let path = self.path(digest).join(ABOUT);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StorageError::NoImage { reference: digest.to_string(), available: Vec::new() });
            }
            Err(error) => return Err(failed("read", &path)(error)),
        };
        let damaged = |error: serde_json::Error| StorageError::DamagedImage {
            image: digest.clone(),
            file: ABOUT.into(),
            what: format!("cannot be parsed ({error})"),
        };
        let about: About = serde_json::from_slice(&text).map_err(damaged)?;
        if about.format > FORMAT {
            return Err(StorageError::Format { path, found: about.format, known: FORMAT });
        }
        Ok(about)
    }

    fn read(&self, digest: &Digest, tags: &[(String, Digest)]) -> Result<Image, StorageError> {
        let about = self.about(digest)?;
        Ok(Image {
            digest: digest.clone(),
            tags: tags.iter().filter(|(_, of)| of == digest).map(|(tag, _)| tag.clone()).collect(),
            bytes: about.bytes,
            files: about.files,
            created: Timestamp::from_millis(about.created_ms),
            rootfs: self.path(digest).join(ROOTFS),
            config: about.config.unwrap_or_default(),
            source: about.source.unwrap_or_default(),
            layers: about.layers,
        })
    }

    /// Returns the possible references for an error: tags, and short digests of untagged images.
    fn available(&self) -> Result<Vec<String>, StorageError> {
        let tags = self.tags()?;
        let digests = self.digests()?;
        let untagged = digests.iter().filter(|digest| !tags.iter().any(|(_, of)| of == *digest));
        let short = untagged.map(|digest| digest.as_str().chars().take(12).collect());
        Ok(tags.iter().map(|(tag, _)| tag.clone()).chain(short).collect())
    }

    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        self.directory.join(digest.as_str())
    }

    fn lock(&self) -> Result<File, StorageError> {
        disk::lock(&self.directory.join(LOCK))
    }

    /// Removes the remains of interrupted imports and removals. The caller holds the lock.
    fn clear(&self, _held: &File) -> Result<(), StorageError> {
        for name in disk::names(&self.directory)? {
            let path = self.directory.join(&name);
            if name.starts_with(GONE) || (name.starts_with(IMPORT) && is_abandoned(&path)?) {
                disk::remove_tree(&path)?;
            }
        }
        Ok(())
    }
}

/// The path of a file of an image, relative to the image's directory.
pub(crate) fn in_rootfs(path: &Path) -> PathBuf {
    Path::new(ROOTFS).join(path)
}

/// Returns whether no process uses the directory of an import. An import that ends removes its own.
fn is_abandoned(directory: &Path) -> Result<bool, StorageError> {
    match disk::try_lock_directory(directory) {
        Err(StorageError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
        locked => Ok(locked?.is_some()),
    }
}
