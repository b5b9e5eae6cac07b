//! A kept disk that is held open while it is mounted, and the record that it has lost writes.
//!
//! ```text
//! dir/lost-writes   the cause; a disk that has this file is never reported as synced
//! ```
//!
//! The kernel reports a failed write once to each descriptor that was open at the time, and then
//! forgets it, while the files contain zeros. The record beside the disk outlives both.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};

use crate::writes::{LostWrites, file_system};
use crate::{DiskError, KeptDisk};

const RECORD: &str = "lost-writes";

/// A mounted disk with descriptors that were opened before the writes that they check. It cannot
/// be unmounted meanwhile.
#[derive(Debug)]
pub struct OpenDisk {
    disk: KeptDisk,
    top: File,
    image: File,
    /// A loss, in case it cannot be recorded on a host disk that fails.
    lost: OnceLock<String>,
}

impl KeptDisk {
    /// Opens the mounted disk, or returns `None` if it is not mounted.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn open(&self) -> Result<Option<OpenDisk>, DiskError> {
        let (path, image) = (self.path(), self.image());
        let top = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|source| DiskError::file("open", &path, source))?,
        };
        let facts = rustix::fs::statx(&top, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)
            .map_err(|error| DiskError::file("read the metadata of", &path, error.into()))?;
        if !facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            return Ok(None);
        }
        let image = File::open(&image).map_err(|source| DiskError::file("open", &image, source))?;
        Ok(Some(OpenDisk { disk: self.clone(), top, image, lost: OnceLock::new() }))
    }

    /// Writes all cached data of the mounted disk to the host's disk, as [`OpenDisk::sync`]. A disk
    /// that is not mounted has nothing to write.
    ///
    /// # Errors
    /// [`DiskError::LostWrites`] if it has ever lost a write.
    pub fn sync(&self) -> Result<(), DiskError> {
        match self.open()? {
            Some(open) => open.sync(),
            None => self.recorded_loss()?.map_or(Ok(()), |cause| Err(DiskError::LostWrites(cause))),
        }
    }

    /// Returns the cause of lost writes, if any are recorded.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn recorded_loss(&self) -> Result<Option<String>, DiskError> {
        let path = self.loss_record();
        match fs::read(&path) {
            Ok(text) if text.is_empty() => Ok(Some("the host's disk had no space to record the cause".to_owned())),
            Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DiskError::file("read", &path, source)),
        }
    }

    fn loss_record(&self) -> PathBuf {
        self.dir().join(RECORD)
    }
}

impl OpenDisk {
    /// Writes all cached data to the host's disk, through every cache.
    ///
    /// # Errors
    /// [`DiskError::LostWrites`] if the disk has ever lost a write. This is recorded: no later call
    /// succeeds.
    pub fn sync(&self) -> Result<(), DiskError> {
        let known = self.disk.recorded_loss()?.or_else(|| self.lost.get().cloned());
        if let Some(cause) = known {
            return Err(DiskError::LostWrites(cause));
        }
        let lost = |error: io::Error| self.lost(&LostWrites::Data(error.to_string()));
        rustix::fs::syncfs(&self.top).map_err(|error| lost(error.into()))?;
        if let Some(found) = file_system(&self.disk.path())? {
            return Err(self.lost(&found));
        }
        // The file system flushes its device only if it has a journal entry to make durable.
        self.image.sync_all().map_err(lost)
    }

    fn lost(&self, what: &LostWrites) -> DiskError {
        let (record, cause) = (self.disk.loss_record(), what.to_string());
        tracing::error!(disk = %self.disk.dir().display(), cause, "a disk has lost writes; it is not synced again");
        if let Err(error) = write_record(&record, self.disk.dir(), &cause) {
            tracing::error!(record = %record.display(), %error, "cannot record that a disk has lost writes; only this daemon knows");
        }
        DiskError::LostWrites(self.lost.get_or_init(|| cause).clone())
    }
}

fn write_record(record: &Path, dir: &Path, cause: &str) -> io::Result<()> {
    let mut file = File::create(record)?;
    // A full disk has no space for the text. The file counts without it.
    if let Err(error) = file.write_all(cause.as_bytes()) {
        tracing::debug!(record = %record.display(), %error, "cannot record why a disk has lost writes");
    }
    file.sync_all()?;
    File::open(dir)?.sync_all()
}
