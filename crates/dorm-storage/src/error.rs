//! The errors of the storage. Every message names the operation, the file and the next step.

use std::io;
use std::path::{Path, PathBuf};

use dorm_disk::DiskError;
use dorm_guest_ids::GuestIds;
use dorm_lifecycle::{ByteSize, Digest, SavedStateId};
use dorm_worker::WorkerError;
use thiserror::Error;

use crate::foreign::Foreign;
use crate::reread;

/// Why an operation of the storage failed.
#[derive(Debug, Error)]
pub enum StorageError {
    /// An operation on a file failed.
    #[error("cannot {operation} {path}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The disk became full during the operation.
    #[error("cannot {operation} {path}: the disk is full; remove snapshots, images or other files there")]
    DiskFull {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// There is too little room to begin.
    #[error(
        "not enough room in {path}: {} are needed, and {} are free and not reserved by others; remove snapshots, \
         images or other files there",
        ByteSize(*need_bytes),
        ByteSize(*free_bytes)
    )]
    NoRoom {
        /// The directory.
        path: PathBuf,
        /// The bytes needed.
        need_bytes: u64,
        /// The bytes available.
        free_bytes: u64,
    },
    /// The write would use room that must stay free on the disk.
    #[error(
        "the disk of {path} is nearly full: {free} {what} are free, and {reserve} must stay free; nothing was kept; \
         remove snapshots, images or other files there"
    )]
    Reserve {
        /// The directory.
        path: PathBuf,
        /// The scarce resource: `bytes` or `inodes`.
        what: &'static str,
        /// How many are free.
        free: u64,
        /// How many must stay free.
        reserve: u64,
    },
    /// A saved state with that id exists already, or is being written.
    #[error("saved state {0} exists already: choose a new id")]
    Exists(SavedStateId),
    /// There is no such saved state.
    #[error("there is no saved state {0}: it was removed, or never completed")]
    Missing(SavedStateId),
    /// A file of a saved state does not match its manifest.
    #[error("saved state {saved_state} is damaged: {file} {what}; rewind to an older snapshot, and check the disk")]
    Damaged {
        /// The saved state.
        saved_state: SavedStateId,
        /// Its damaged file.
        file: PathBuf,
        /// The damage, a phrase whose subject is the file.
        what: String,
    },
    /// The saved state is undamaged, but this host cannot use it.
    #[error(
        "saved state {saved_state} needs another {what}: it was made with '{needs}', this host has '{has}'; use it on \
         a host that has it, or use its files alone: `dorm sbx checkpoint files` for a snapshot, `dorm sbx checkpoint` \
         for a suspended sandbox"
    )]
    Incompatible {
        /// The saved state.
        saved_state: SavedStateId,
        /// The property that differs: `engine`, `build` or `cpu`.
        what: &'static str,
        /// The value of this host.
        has: String,
        /// The value with which the saved state was made.
        needs: String,
    },
    /// The image of a saved state is missing.
    #[error("saved state {saved_state} needs image {image}, which this host does not have: import that image again")]
    MissingImage {
        /// The saved state.
        saved_state: SavedStateId,
        /// The image.
        image: Digest,
    },
    /// A file cannot become part of a saved state.
    #[error("cannot complete saved state {saved_state}: {file} {what}; save again")]
    BadFile {
        /// The saved state.
        saved_state: SavedStateId,
        /// The file.
        file: PathBuf,
        /// The reason, a phrase whose subject is the file.
        what: &'static str,
    },
    /// The length of a file in a draft is not the number of bytes written to it.
    #[error(
        "cannot complete saved state {saved_state}: {file} has {found} bytes, but {written} bytes were written to it; \
         nothing was discarded: check the disk, and save again"
    )]
    Short {
        /// The saved state.
        saved_state: SavedStateId,
        /// The file.
        file: PathBuf,
        /// How many bytes were written.
        written: u64,
        /// The actual length.
        found: u64,
    },
    /// A file has the format of a newer version.
    #[error("{path} has format {found}, this version reads up to {known}: use a newer version of dorm")]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this version reads.
        known: u32,
    },
    /// No image matches a reference.
    #[error("there is no image '{reference}': {}", listed(available))]
    NoImage {
        /// The reference.
        reference: String,
        /// The available images: tags, or digests of images without one.
        available: Vec<String>,
    },
    /// A prefix matches several images.
    #[error("'{reference}' matches several images: {}; give more digits", matches.join(", "))]
    Ambiguous {
        /// The reference.
        reference: String,
        /// The images that match.
        matches: Vec<String>,
    },
    /// The image is in use.
    #[error("image {image} is in use by {}: remove them first", held_by.join(", "))]
    InUse {
        /// The image.
        image: Digest,
        /// Its users.
        held_by: Vec<String>,
    },
    /// Other data directories need the image.
    #[error(
        "image {image} is in use by {}: delete the sandboxes and snapshots there that use it; if such a directory no \
         longer exists, delete {}",
        joined(by, |foreign| foreign.to_string()),
        joined(by, |foreign| foreign.references.display().to_string())
    )]
    Referred {
        /// The image.
        image: Digest,
        /// The data directories that need it.
        by: Vec<Foreign>,
    },
    /// An image does not match its digest.
    #[error("image {image} is damaged: {file} {what}; import or pull it again to repair it, and check the disk")]
    DamagedImage {
        /// The image.
        image: Digest,
        /// Its damaged file.
        file: PathBuf,
        /// The damage, a phrase whose subject is the file.
        what: String,
    },
    /// An image was made for other host ids of guests, and other data directories need it as it is.
    #[error(
        "image {image} was imported for guests with the host ids {made_with}, and this data directory uses {ids}; it stays \
         as it is for {}: use another --images directory and import or pull the image there",
        joined(needed_by, |foreign| foreign.to_string())
    )]
    OtherIds {
        /// The image.
        image: Digest,
        /// The ids for which it was made.
        made_with: GuestIds,
        /// The ids of this storage.
        ids: GuestIds,
        /// The data directories that need images of that directory.
        needed_by: Vec<Foreign>,
    },
    /// Files could not be given to other host ids, or their present ids are unknown.
    #[error("cannot change the owners of {} to the present host ids of guests", path.display())]
    Owners {
        /// The image, or the tree of a saved state.
        path: PathBuf,
        /// The cause.
        #[source]
        source: DiskError,
    },
    /// The text is not a valid tag.
    #[error(
        "'{0}' is not a tag: tags are 1 to 128 letters, digits and '.', '_', '-', ':', '@', the first a letter or digit; \
         several of those may have '/' between them"
    )]
    Tag(String),
    /// A file is not a valid export of a snapshot.
    #[error("cannot import the snapshot from this file: {what}; export it again, and transfer the whole file")]
    Export {
        /// The problem; in this phrase `it` is the file.
        what: String,
        /// The error of the system.
        #[source]
        source: Option<io::Error>,
    },
    /// The source of an import cannot be read.
    #[error("cannot import {path}: {what}")]
    Source {
        /// The archive or directory.
        path: PathBuf,
        /// The problem, and the next step.
        what: String,
        /// The error of the system.
        #[source]
        source: Option<io::Error>,
    },
    /// An entry in the source of an import is refused.
    #[error("cannot import {path}: entry '{entry}' {what}")]
    Entry {
        /// The archive or directory.
        path: PathBuf,
        /// The name of the entry, as written there.
        entry: String,
        /// The problem, a phrase whose subject is the entry.
        what: String,
        /// The error of the system.
        #[source]
        source: Option<io::Error>,
    },
    /// The worker that read the source of an import failed.
    #[error("cannot import {path}: the process that reads it failed; nothing was kept")]
    Worker {
        /// The archive or directory.
        path: PathBuf,
        /// How it failed.
        #[source]
        source: WorkerError,
    },
    /// The task was interrupted: the program is stopping, or the task panicked.
    #[error("the operation of the storage was interrupted; try again")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl StorageError {
    /// Whether the cause is a lack of room on the disk.
    pub fn is_no_room(&self) -> bool {
        matches!(self, Self::NoRoom { .. } | Self::DiskFull { .. } | Self::Reserve { .. })
    }

    /// Whether the disk failed to read something, twice in a row. This says nothing about the data,
    /// which may be read another time.
    pub fn is_unread(&self) -> bool {
        self.unread().is_some()
    }

    /// Returns the path that the disk failed to read, and its error.
    pub(crate) fn unread(&self) -> Option<(&Path, &io::Error)> {
        match self {
            Self::Io { path, source, .. } if reread::is_unread(source) => Some((path, source)),
            _ => None,
        }
    }

    /// For `map_err`: an error that concerns the owners of the files at `path`.
    pub(crate) fn owners(path: &Path) -> impl Fn(DiskError) -> Self {
        let path = path.to_owned();
        move |source| Self::Owners { path: path.clone(), source }
    }

    /// An error of the system about a file beside the images.
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
