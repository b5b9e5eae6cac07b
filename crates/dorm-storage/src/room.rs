//! Keeps part of a disk free while other code writes to it, counted in bytes and inodes.
//!
//! A writer charges each write to a [`Meter`] in advance. A meter is granted small parts of the
//! room above the reserve, and grants of other meters that are not yet written are subtracted:
//! concurrent writers cannot each take the last part. Charges round up, so a meter refuses early
//! and never late.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{StorageError, failed, is_full};

/// The size of a grant. Each grant asks the file system how much is free.
const GRANT_BYTES: u64 = 16 << 20;
const GRANT_INODES: u64 = 1024;
/// Imports must leave 1/100 of a disk's inodes free.
const INODES_RESERVED: u64 = 100;
/// File systems allocate room in blocks, and an inode with its name takes about one.
const BLOCK: u64 = 4096;

/// The part of a disk that writers must leave free. Cheap to clone; all clones grant from the same
/// room.
#[derive(Clone, Debug, Default)]
pub struct Room {
    reserve_bytes: u64,
    granted: Arc<Mutex<Granted>>,
}

/// The amounts that meters may still write.
#[derive(Clone, Copy, Debug, Default)]
struct Granted {
    bytes: u64,
    inodes: u64,
}

impl Granted {
    fn give_back(&mut self, grant: &mut Self) {
        let Self { bytes, inodes } = std::mem::take(grant);
        self.bytes -= bytes;
        self.inodes -= inodes;
    }
}

impl Room {
    /// Returns the room on a disk of which this many bytes stay free.
    pub(crate) fn with_reserve(reserve_bytes: u64) -> Self {
        Self { reserve_bytes, granted: Arc::default() }
    }

    /// Returns a meter for writes to the directory `path`. Each writer needs its own.
    pub fn meter(&self, path: &Path) -> Meter {
        Meter { room: self.clone(), path: path.to_owned(), grant: Granted::default(), left: Granted::default() }
    }

    fn granted(&self) -> MutexGuard<'_, Granted> {
        // The numbers are consistent between any two statements.
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accounts for what one writer writes.
#[derive(Debug)]
pub struct Meter {
    room: Room,
    path: PathBuf,
    grant: Granted,
    /// The part of the grant that is not yet charged. The file system may not have seen the rest,
    /// so all of the grant counts as taken.
    left: Granted,
}

impl Meter {
    /// Charges `bytes` of content that are about to be written.
    ///
    /// # Errors
    /// [`StorageError::Reserve`] if less than the reserve would stay free.
    pub fn charge_bytes(&mut self, bytes: u64) -> Result<(), StorageError> {
        self.charge(bytes.next_multiple_of(BLOCK), 0)
    }

    /// Charges a file, directory or link that is about to be created.
    ///
    /// # Errors
    /// As for [`Meter::charge_bytes`].
    pub fn charge_inode(&mut self) -> Result<(), StorageError> {
        self.charge(BLOCK, 1)
    }

    /// Charges another name of a file, or a line about it.
    ///
    /// # Errors
    /// As for [`Meter::charge_bytes`].
    pub fn charge_name(&mut self, name: &[u8]) -> Result<(), StorageError> {
        self.charge(name.len() as u64 + 64, 0)
    }

    fn charge(&mut self, bytes: u64, inodes: u64) -> Result<(), StorageError> {
        if bytes > self.left.bytes || inodes > self.left.inodes {
            self.refill(bytes, inodes)?;
        }
        self.left.bytes -= bytes;
        self.left.inodes -= inodes;
        Ok(())
    }

    fn refill(&mut self, bytes: u64, inodes: u64) -> Result<(), StorageError> {
        let mut granted = self.room.granted();
        // Asked under the lock: what another writer has written since then no longer counts as
        // free, and its grant no longer counts either.
        let facts = rustix::fs::statvfs(&self.path).map_err(failed("ask for free space in", &self.path))?;
        let free_bytes = facts.f_bavail.saturating_mul(facts.f_frsize);
        granted.give_back(&mut self.grant);
        self.left = Granted::default();
        let room_bytes = free_bytes.saturating_sub(self.room.reserve_bytes).saturating_sub(granted.bytes);
        if bytes > room_bytes {
            let (free, reserve) = (free_bytes, self.room.reserve_bytes);
            return Err(StorageError::Reserve { path: self.path.clone(), what: "bytes", free, reserve });
        }
        // A file system that creates inodes on demand reports that it has none.
        let reserve = facts.f_files / INODES_RESERVED;
        let room_inodes = match facts.f_files {
            0 => u64::MAX,
            _ => facts.f_favail.saturating_sub(reserve).saturating_sub(granted.inodes),
        };
        if inodes > room_inodes {
            let free = facts.f_favail;
            return Err(StorageError::Reserve { path: self.path.clone(), what: "inodes", free, reserve });
        }
        let bytes = room_bytes.min(bytes.max(GRANT_BYTES));
        let inodes = room_inodes.min(inodes.max(GRANT_INODES));
        self.grant = Granted { bytes, inodes };
        self.left = self.grant;
        granted.bytes += bytes;
        granted.inodes += inodes;
        Ok(())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.room.granted().give_back(&mut self.grant);
    }
}

/// Wraps a refusal of the meter for code whose errors are those of the system.
pub(crate) fn as_io(error: StorageError) -> io::Error {
    let kind = if error.is_no_room() { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
    io::Error::new(kind, error)
}

/// The error for a full disk: the refusal of a meter as it is, or `operation` on `path`. Any other
/// error is returned as `Err`.
pub(crate) fn full(operation: &'static str, path: &Path, error: io::Error) -> Result<StorageError, io::Error> {
    if !is_full(&error) {
        return Err(error);
    }
    Ok(match error.downcast::<StorageError>() {
        Ok(refused) => refused,
        Err(error) => StorageError::io(operation, path, error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writer_was_granted_is_not_granted_to_another() {
        let place = tempfile::tempdir().unwrap();
        let facts = rustix::fs::statvfs(place.path()).unwrap();
        let free = facts.f_bavail * facts.f_frsize;
        // Other programs write to this disk, too: the reserve leaves room for one grant but not for
        // two.
        let room = Room::with_reserve(free - free / 2);
        let mut first = room.meter(place.path());
        first.charge_bytes(free / 2 - free / 8).unwrap();
        let mut second = room.meter(place.path());
        let refused = second.charge_bytes(free / 4).unwrap_err();
        assert!(matches!(refused, StorageError::Reserve { what: "bytes", .. }), "{refused}");
        drop(first);
        // The first meter has written nothing of its grant here.
        second.charge_bytes(free / 4).unwrap();
    }

    #[test]
    fn a_refusal_survives_its_way_through_an_error_of_the_system() {
        let place = tempfile::tempdir().unwrap();
        let refused = Room::with_reserve(u64::MAX).meter(place.path()).charge_inode().unwrap_err();
        assert!(refused.is_no_room());
        let again = full("write", place.path(), as_io(refused)).unwrap();
        assert!(matches!(again, StorageError::Reserve { reserve: u64::MAX, .. }), "{again}");
        assert!(full("write", place.path(), io::ErrorKind::NotFound.into()).is_err());
    }
}
