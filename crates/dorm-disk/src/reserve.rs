//! A file that holds room on a disk for those who free some: on a completely full disk nothing can be recorded, not even
//! that something is deleted. It is released in parts, so that a program that fills the disk does not take it all at once.

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
    /// The reserve of `bytes` in the file `path`, whether or not it is there. A reserve of 0 bytes is none.
    pub fn at(path: PathBuf, bytes: u64) -> Self {
        Self { path, bytes }
    }

    /// How large it is when it is whole.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The room it holds now.
    pub fn held_bytes(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |facts| facts.blocks().saturating_mul(512))
    }

    /// Gives up to `bytes` of its room to whoever writes next. Answers how many bytes that are.
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
        // The blocks are free when this is on the disk: before, some file systems hold them back.
        file.sync_all().map_err(wrong)?;
        Ok(held.saturating_sub(self.held_bytes()))
    }

    /// Takes the room again if the disk has `keep_free` bytes left after that, and says whether it is whole.
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
                // A part of it would be taken for the whole by whoever counts free blocks.
                self.release(u64::MAX)?;
                Err(wrong(error.into()))
            }
        }
    }
}

/// What can still be written to the file system of `path`, by root.
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
