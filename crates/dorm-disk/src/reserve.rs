//! A file that reserves space on a disk for operations that free some: on a full disk nothing can
//! be recorded, not even a deletion. It is released in parts, so that a program that fills the disk
//! does not get all of it at once.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

use crate::DiskError;

/// The reserve of one disk. The value is only a name for its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reserve {
    path: PathBuf,
    bytes: u64,
}

impl Reserve {
    /// Returns the reserve of `bytes` in the file `path`, whether or not the file exists. 0 bytes
    /// mean no reserve.
    pub fn at(path: PathBuf, bytes: u64) -> Self {
        Self { path, bytes }
    }

    /// Returns its full size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the space that it holds now.
    pub fn held_bytes(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |facts| facts.blocks().saturating_mul(512))
    }

    /// Releases up to `bytes` of its space for the next writer. Returns how many bytes were
    /// released.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn release(&self, bytes: u64) -> Result<u64, DiskError> {
        let wrong = |source| DiskError::file("release the reserve", &self.path, source);
        let file = match File::options().write(true).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            opened => opened.map_err(wrong)?,
        };
        let held = self.held_bytes();
        let length = file.metadata().map_err(wrong)?.len();
        file.set_len(length.saturating_sub(bytes)).map_err(wrong)?;
        // Some file systems free the blocks only once this is on the disk.
        file.sync_all().map_err(wrong)?;
        Ok(held.saturating_sub(self.held_bytes()))
    }

    /// Takes the space again if `keep_free` bytes of the disk remain free after that. Returns
    /// whether it is complete.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn replenish(&self, keep_free: u64) -> Result<bool, DiskError> {
        let held = self.held_bytes();
        if held >= self.bytes {
            return Ok(true);
        }
        let missing = self.bytes - held;
        if free_bytes(self.path.parent().unwrap_or(Path::new("/")))? < missing.saturating_add(keep_free) {
            return Ok(false);
        }
        let wrong = |source| DiskError::file("fill the reserve", &self.path, source);
        let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&self.path);
        let file = file.map_err(wrong)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.bytes) {
            Ok(()) => Ok(true),
            Err(error) => {
                // A partial reserve would look like a complete one to code that counts free blocks.
                self.release(u64::MAX)?;
                Err(wrong(error.into()))
            }
        }
    }
}

/// Returns how many bytes root can still write to the file system of `path`.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, DiskError> {
    let facts = rustix::fs::statvfs(path).map_err(|error| DiskError::file("read the size of", path, error.into()))?;
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_holds_room_until_it_is_released_and_takes_it_again_when_there_is_enough() {
        let place = tempfile::tempdir().unwrap();
        let reserve = Reserve::at(place.path().join("reserve"), 8 << 20);
        assert_eq!((reserve.held_bytes(), reserve.release(1).unwrap()), (0, 0));
        assert!(!reserve.replenish(u64::MAX / 2).unwrap(), "there is never that much room");
        assert_eq!(reserve.held_bytes(), 0);
        assert!(reserve.replenish(0).unwrap());
        assert!(reserve.held_bytes() >= 8 << 20);
        assert!(reserve.replenish(u64::MAX / 2).unwrap(), "it is whole already");
        assert_eq!(reserve.release(3 << 20).unwrap(), 3 << 20);
        assert!(reserve.held_bytes() >= 5 << 20);
        assert!(reserve.replenish(0).unwrap());
        assert!(reserve.release(u64::MAX).unwrap() >= 8 << 20);
        assert_eq!(reserve.held_bytes(), 0);
    }
}
