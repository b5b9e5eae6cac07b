//! The disk of the data directory: its free space, and the reserve with which a full disk can be
//! emptied.

use std::io;
use std::path::{Path, PathBuf};

use dorm_disk::{self as disk, DiskError, Reserve};
use dorm_ports::{DataDisk, HeldBack};

/// The names of the reserve files in the data directory.
const RESERVE: &str = "reserve";
const ACCEPTED: &str = "reserve-accepted";

/// How much is released at once for operations that free space: enough for a commit and its log,
/// and for a start.
const PART: u64 = 8 << 20;

/// The disk of a data directory.
#[derive(Debug)]
pub(crate) struct HostDisk {
    data: PathBuf,
    reserve: Reserve,
    accepted: Reserve,
}

impl HostDisk {
    /// Returns the disk of the data directory `data`. It holds back `reserve_bytes` for operations
    /// that free space, and `accepted_bytes` for writes of guests that were accepted.
    pub(crate) fn of(data: &Path, reserve_bytes: u64, accepted_bytes: u64) -> Self {
        Self {
            data: data.to_owned(),
            reserve: Reserve::at(data.join(RESERVE), reserve_bytes),
            accepted: Reserve::at(data.join(ACCEPTED), accepted_bytes),
        }
    }

    /// Releases space before a start: its first operations free space, and need some to do so. The
    /// disk monitor takes the space again.
    pub(crate) fn make_room_to_start(&self) {
        if self.free_bytes().is_ok_and(|free| free < PART)
            && let Err(error) = self.reserve.release(PART)
        {
            tracing::warn!(%error, "the disk is nearly full, and the reserve cannot be released");
        }
    }
}

impl DataDisk for HostDisk {
    fn free_bytes(&self) -> io::Result<u64> {
        let facts = rustix::fs::statvfs(&self.data)?;
        Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
    }

    fn bound_unwritten(&self, bytes: Option<u64>) {
        disk::bound_unwritten(&self.data, bytes);
    }

    fn unwritten_max(&self) -> u64 {
        disk::unwritten_max()
    }

    fn part_bytes(&self) -> u64 {
        PART.min(self.reserve.bytes())
    }

    fn release(&self, what: HeldBack) -> io::Result<()> {
        let bytes = match what {
            HeldBack::Freeing => self.reserve.release(PART),
            HeldBack::Accepted => self.accepted.release(u64::MAX),
        };
        let bytes = bytes.map_err(failed)?;
        if bytes > 0 {
            tracing::warn!(bytes, ?what, "the disk is full: reserved space was released");
        }
        Ok(())
    }

    fn replenish(&self, keep_free: u64) -> io::Result<()> {
        self.reserve.replenish(keep_free).and_then(|_| self.accepted.replenish(keep_free)).map(drop).map_err(failed)
    }
}

fn failed(error: DiskError) -> io::Error {
    io::Error::other(error)
}
