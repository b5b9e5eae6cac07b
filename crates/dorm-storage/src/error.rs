//! What can go wrong on the disk. Every text names what was done to which file and what to do next.

use std::io;
use std::path::{Path, PathBuf};

use dorm_disk::DiskError;
use dorm_guest_ids::GuestIds;
use dorm_lifecycle::{Digest, SavedStateId};
use dorm_worker::WorkerError;
use thiserror::Error;

use crate::images::Foreign;

/// Why the storage could not do what it was asked to.
#[derive(Debug, Error)]
pub enum StorageError {
    /// The disk refused something.
    #[error("cannot {operation} {path}")]
    Io {
        /// What was done.
        operation: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The disk became full on the way.
    #[error("cannot {operation} {path}: the disk is full; remove snapshots, images or other files there")]
    DiskFull {
        /// What was done.
        operation: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is too little room to begin.
    #[error(
        "not enough room in {path}: {need_bytes} bytes are needed, {free_bytes} are free and not promised to others; \
         remove snapshots, images or other files there"
    )]
    NoRoom {
        /// Where.
        path: PathBuf,
        /// What is needed.
        need_bytes: u64,
        /// What could be had.
        free_bytes: u64,
    },
    /// What is written would take the room that the disk must keep.
    #[error(
        "the disk of {path} is nearly full: {free} {what} are free, of which {reserve} must stay so; nothing of it was \
         kept: remove snapshots, images or other files there"
    )]
    Reserve {
        /// Where.
        path: PathBuf,
        /// What is short: `bytes` or `inodes`.
        what: &'static str,
        /// How many are free.
        free: u64,
        /// How many must stay so.
        reserve: u64,
    },
    /// A saved state of that id is there already, or is being written.
    #[error("saved state {0} exists already: choose a new id")]
    Exists(SavedStateId),
    /// There is no such saved state.
    #[error("there is no saved state {0}: it was removed, or never completed")]
    Missing(SavedStateId),
    /// A file of a saved state is not what was written.
    #[error("saved state {saved_state} is damaged: {file} {what}; go back to an older snapshot, and check the disk")]
    Damaged {
        /// Which saved state.
        saved_state: SavedStateId,
        /// Which file of it.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The saved state is sound, but this host cannot use it.
    #[error(
        "saved state {saved_state} needs another {what}: it was made with '{needs}', this host has '{has}'; \
         resume it on a host that has it"
    )]
    Incompatible {
        /// Which saved state.
        saved_state: SavedStateId,
        /// What differs: `engine`, `build` or `cpu`.
        what: &'static str,
        /// What this host has.
        has: String,
        /// What the saved state was made with.
        needs: String,
    },
    /// The image below a saved state is not there.
    #[error("saved state {saved_state} stands on image {image}, which is not here: import that image again")]
    MissingImage {
        /// Which saved state.
        saved_state: SavedStateId,
        /// Which image.
        image: Digest,
    },
    /// A file that was to become part of a saved state cannot.
    #[error("cannot complete saved state {saved_state}: {file} {what}; save again")]
    BadFile {
        /// Which saved state.
        saved_state: SavedStateId,
        /// Which file of it.
        file: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A file that was to become part of a saved state is not as long as what was written into it.
    #[error(
        "cannot complete saved state {saved_state}: {file} has {found} bytes, and {written} were written into it; nothing was \
         discarded: check the disk, and save again"
    )]
    Short {
        /// Which saved state.
        saved_state: SavedStateId,
        /// Which file of it.
        file: PathBuf,
        /// How many bytes were written.
        written: u64,
        /// How many there are.
        found: u64,
    },
    /// A description was written by a newer version.
    #[error("{path} has format {found}, this version reads up to {known}: use a newer version of dorm")]
    Format {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// Nothing fits a reference to an image.
    #[error("there is no image '{reference}': {}", listed(available))]
    NoImage {
        /// What was asked for.
        reference: String,
        /// What there is: tags, or digests of images without one.
        available: Vec<String>,
    },
    /// A prefix fits several images.
    #[error("'{reference}' is the beginning of several images: {}; give more digits", matches.join(", "))]
    Ambiguous {
        /// What was asked for.
        reference: String,
        /// What it could be.
        matches: Vec<String>,
    },
    /// The image is needed.
    #[error("image {image} is in use by {}: remove them first", held_by.join(", "))]
    InUse {
        /// Which image.
        image: Digest,
        /// Who needs it.
        held_by: Vec<String>,
    },
    /// Other data directories need the image.
    #[error(
        "image {image} is in use by {}: remove there what stands on it; if such a directory is gone for good, delete {}",
        joined(by, |foreign| foreign.to_string()),
        joined(by, |foreign| foreign.references.display().to_string())
    )]
    Referred {
        /// Which image.
        image: Digest,
        /// Who needs it.
        by: Vec<Foreign>,
    },
    /// An image is not what its digest says.
    #[error("image {image} is damaged: {file} {what}; import or pull it again, which mends it, and check the disk")]
    DamagedImage {
        /// Which image.
        image: Digest,
        /// Which file of it.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// An image was made with other host ids of guests, and others need it as it is.
    #[error(
        "image {image} was imported for guests with the host ids {made_with}, and this data directory uses {ids}; it stays \
         as it is for {}: use another --images directory and import or pull the image there",
        joined(needed_by, |foreign| foreign.to_string())
    )]
    OtherIds {
        /// Which image.
        image: Digest,
        /// The ids it was made with.
        made_with: GuestIds,
        /// The ids of this storage.
        ids: GuestIds,
        /// Who needs images of that directory.
        needed_by: Vec<Foreign>,
    },
    /// Files could not be given to other host ids, or it is not known whose they are.
    #[error("cannot give {} to the host ids that guests have now", path.display())]
    Owners {
        /// The image, or the tree of a saved state.
        path: PathBuf,
        /// Why.
        #[source]
        source: DiskError,
    },
    /// Not a legal tag.
    #[error(
        "'{0}' is not a tag: tags are 1 to 128 letters, digits and '.', '_', '-', ':', '@', the first a letter or digit; \
         several of those may have '/' between them"
    )]
    Tag(String),
    /// The file of a snapshot is not one that was exported.
    #[error("this is no file of a snapshot that can be imported: {what}; export it again, and pass it on whole")]
    Export {
        /// What is wrong with it; `it` is the file.
        what: String,
        /// What the system said.
        #[source]
        source: Option<io::Error>,
    },
    /// What was to be imported cannot be read.
    #[error("cannot import {path}: {what}")]
    Source {
        /// The archive or directory.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
        /// What the system said.
        #[source]
        source: Option<io::Error>,
    },
    /// One entry of what was to be imported is refused.
    #[error("cannot import {path}: entry '{entry}' {what}")]
    Entry {
        /// The archive or directory.
        path: PathBuf,
        /// The entry, as it is written there.
        entry: String,
        /// What is wrong with it.
        what: String,
        /// What the system said.
        #[source]
        source: Option<io::Error>,
    },
    /// The worker that read what was to be imported has failed.
    #[error("cannot import {path}: a worker failed while it read it; nothing was kept")]
    Worker {
        /// The archive or directory.
        path: PathBuf,
        /// How it failed.
        #[source]
        source: WorkerError,
    },
    /// The work itself was interrupted: the program is being stopped, or has an error.
    #[error("the work on the storage was interrupted; try again")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl StorageError {
    /// Whether room on the disk is what is missing.
    pub fn is_no_room(&self) -> bool {
        matches!(self, Self::NoRoom { .. } | Self::DiskFull { .. } | Self::Reserve { .. })
    }

    /// For `map_err`: what went wrong with the owners of what is at `path`.
    pub(crate) fn owners(path: &Path) -> impl Fn(DiskError) -> Self {
        let path = path.to_owned();
        move |source| Self::Owners { path: path.clone(), source }
    }

    /// An error of the host on a file that lies beside the images.
    pub fn of_file(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::io(operation, path, source)
    }

    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if is_full(&source) { Self::DiskFull { operation, path, source } } else { Self::Io { operation, path, source } }
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// For `map_err`: an [`io::Error`] of `operation` on `path`.
pub(crate) fn failed<E: Into<io::Error>>(operation: &'static str, path: &Path) -> impl FnOnce(E) -> StorageError {
    move |source| StorageError::io(operation, path, source.into())
}

fn joined<T>(all: &[T], text: impl Fn(&T) -> String) -> String {
    all.iter().map(text).collect::<Vec<_>>().join(" and ")
}

fn listed(available: &[String]) -> String {
    if available.is_empty() {
        "there are none; import one with `dorm image import`".to_owned()
    } else {
        format!("there are {}", available.join(", "))
    }
}
