//! The disk of the data directory: its room, and the reserve that lets a full one be emptied.

use std::io;
use std::path::{Path, PathBuf};

use dorm_engine_gvisor::disk::{self, DiskError, Reserve};
use dorm_service::{DataDisk, HeldBack};

/// The names in the data directory of what holds room back.
const RESERVE: &str = "reserve";
const ACCEPTED: &str = "reserve-accepted";

/// What is released at once for what frees room: enough for a commit and its log, and for a start.
const PART: u64 = 8 << 20;

/// The disk that a directory is on.
#[derive(Debug)]
pub(crate) struct HostDisk {
    data: PathBuf,
    reserve: Reserve,
    accepted: Reserve,
}

impl HostDisk {
    /// The disk of the data directory `data`, of which so many bytes are held back for what frees room and for writes of
    /// guests that are accepted.
    pub(crate) fn of(data: &Path, reserve_bytes: u64, accepted_bytes: u64) -> Self {
        Self {
            data: data.to_owned(),
            reserve: Reserve::at(data.join(RESERVE), reserve_bytes),
            accepted: Reserve::at(data.join(ACCEPTED), accepted_bytes),
        }
    }

    /// Before a start: what is done first frees room, and needs some to do so. The watch takes the room again.
    pub(crate) fn make_room_to_start(&self) {
        if self.free_bytes().is_ok_and(|free| free < PART)
            && let Err(error) = self.reserve.release(PART)
        {
            tracing::warn!(%error, "the disk is nearly full, and the room held back for that cannot be used");
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
            tracing::warn!(bytes, ?what, "the disk is full: room that was held back is used");
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
