//! Records which data directories need which images.
//!
//! Several daemons may share one directory of images, each with its own records. So each daemon
//! stores here which images its records use, before the first such record is written and until
//! after the last is removed:
//!
//! ```text
//! references/ID/owner.json    the path of the data directory with that ID, and its path of the images
//! references/ID/DIGEST        it needs that image
//! ```
//!
//! References are created and images removed under the lock of the images, so that one of the two
//! comes first. If a process dies, a reference may be left over, which the next start of its owner
//! removes. References of other data directories are never removed: a directory that is missing now
//! may be mounted again.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dorm_lifecycle::Digest;
use serde::{Deserialize, Serialize};

use super::Images;
use crate::disk;
use crate::error::{StorageError, failed};
use crate::foreign::Foreign;
use crate::steps::Step;

const DIRECTORY: &str = "references";
const OWNER: &str = "owner.json";
const NEW: &str = ".new";

/// The data directory for which images are opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Its ID, which does not change when it is moved.
    pub id: String,
    /// Its path.
    pub data: PathBuf,
}

/// `owner.json`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    data: PathBuf,
    images: PathBuf,
}

impl Images {
    /// Sets the data directory for which images are used from now on.
    pub(crate) fn set_owner(&mut self, owner: Owner) -> Result<(), StorageError> {
        let own = self.references().join(&owner.id);
        if !is_id(&owner.id) {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "not an ID of a data directory");
            return Err(failed("keep references in", &own)(error));
        }
        let _held = self.lock()?;
        if own.is_dir() {
            self.describe_owner(&owner, &own)?;
            // It may contain references that a dead process did not make durable.
            disk::sync_directory(&own, &self.steps)?;
        }
        self.owner = Some(owner);
        if self.needed_by_others()?.is_empty() {
            disk::let_pass(self.directory(), self.ids.base())?;
        }
        Ok(())
    }

    /// Records durably that the owner needs an image.
    pub(crate) fn refer(&self, digest: &Digest) -> Result<(), StorageError> {
        let (Some(owner), Some(own)) = (&self.owner, self.own()) else { return self.get(digest).map(drop) };
        let path = own.join(digest.as_str());
        // An image with a reference exists, unless its files were removed by hand.
        if path.is_file() {
            return self.get(digest).map(drop);
        }
        let _held = self.lock()?;
        self.get(digest)?;
        self.make_owned(&own)?;
        self.describe_owner(owner, &own)?;
        match disk::write_new(&path, &[], &self.steps) {
            // The process that created it may have died before making it durable.
            Err(StorageError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
        disk::sync_directory(&own, &self.steps)?;
        self.steps.reach(Step::Referred)
    }

    /// Records that the owner does not need an image any more.
    pub(crate) fn release(&self, digest: &Digest) -> Result<(), StorageError> {
        let Some(own) = self.own() else { return Ok(()) };
        let _held = self.lock()?;
        disk::remove_file(&own.join(digest.as_str()))?;
        if self.referred()?.is_empty() {
            disk::remove_tree(&own)?;
            return disk::sync_directory(&self.references(), &self.steps);
        }
        disk::sync_directory(&own, &self.steps)
    }

    /// Returns whether the owner has a reference to an image.
    pub(crate) fn is_referred(&self, digest: &Digest) -> bool {
        self.own().is_some_and(|own| own.join(digest.as_str()).symlink_metadata().is_ok())
    }

    /// Returns the images to which the owner has references.
    pub(crate) fn referred(&self) -> Result<Vec<Digest>, StorageError> {
        match self.own() {
            Some(own) if own.is_dir() => Ok(disk::names(&own)?.iter().filter_map(|name| name.parse().ok()).collect()),
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// Returns the other data directories that need an image.
    pub(crate) fn foreign(&self, digest: &Digest) -> Result<Vec<Foreign>, StorageError> {
        let all = self.references();
        let mut ids = match disk::names(&all) {
            Err(StorageError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            names => names?,
        };
        ids.sort_unstable();
        let own = self.owner.as_ref().map(|owner| &owner.id);
        let mut foreign = Vec::new();
        for id in ids.into_iter().filter(|id| Some(id) != own) {
            let references = all.join(&id);
            let refers = match references.join(digest.as_str()).symlink_metadata() {
                Ok(_) => true,
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => false,
                Err(error) => return Err(failed("read the metadata of", &references)(error)),
            };
            let written = read(&references);
            if refers && !written.as_ref().is_some_and(|written| self.is_copied(written, &id)) {
                foreign.push(Foreign { id, data: written.map(|written| written.data), references });
            }
        }
        Ok(foreign)
    }

    /// Returns whether references were copied here together with the images: their owner uses the
    /// original, which exists and has the same references.
    fn is_copied(&self, written: &Written, id: &str) -> bool {
        let place = |path: &Path| fs::metadata(path).map(|facts| (facts.dev(), facts.ino())).ok();
        match (place(&written.images), place(self.directory())) {
            (Some(original), Some(here)) => {
                let there = written.images.join(DIRECTORY).join(id);
                original != here && read(&there).is_some_and(|other| other == *written)
            }
            (None, _) | (_, None) => false,
        }
    }

    fn references(&self) -> PathBuf {
        self.directory().join(DIRECTORY)
    }

    fn own(&self) -> Option<PathBuf> {
        self.owner.as_ref().map(|owner| self.references().join(&owner.id))
    }

    fn describe_owner(&self, owner: &Owner, own: &Path) -> Result<(), StorageError> {
        let images = fs::canonicalize(self.directory()).map_err(failed("find", self.directory()))?;
        let written = Written { data: owner.data.clone(), images };
        if read(own).as_ref() == Some(&written) {
            return Ok(());
        }
        let (path, new) = (own.join(OWNER), own.join(NEW));
        let text = serde_json::to_vec(&written).map_err(|error| failed("write", &path)(io::Error::from(error)))?;
        disk::remove_file(&new)?;
        disk::write_new(&new, &text, &self.steps)?;
        fs::rename(&new, &path).map_err(failed("rename", &new))
    }

    fn make_owned(&self, own: &Path) -> Result<(), StorageError> {
        if own.is_dir() {
            return Ok(());
        }
        let all = self.references();
        disk::make_directories(&all)?;
        disk::close_directory(&all)?;
        disk::make_directories(own)?;
        disk::sync_directory(&all, &self.steps)?;
        disk::sync_directory(self.directory(), &self.steps)
    }
}

fn read(own: &Path) -> Option<Written> {
    serde_json::from_slice(&fs::read(own.join(OWNER)).ok()?).ok()
}

/// Returns whether `id` is valid as the name of a directory here.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 128 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
