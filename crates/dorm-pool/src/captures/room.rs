//! What a tree may leave of the host's disk. How many files there are and how long they are is the choice of the guest
//! they come from, so it is looked at while they are written.

use std::io;
use std::os::fd::OwnedFd;

use dorm_engine::Content;

/// After so many bytes of content it is looked at again.
const BYTES: u64 = 16 << 20;
/// One of so many inodes stays free.
const INODES: u64 = 50;

/// The disk under a tree.
pub(super) struct Room {
    directory: OwnedFd,
    /// So many bytes stay free; with 0 nothing is looked at.
    keep_bytes: u64,
    written: u64,
}

impl Room {
    pub(super) fn new(directory: OwnedFd, keep_bytes: u64) -> Self {
        Self { directory, keep_bytes, written: 0 }
    }

    /// Whether more may be written.
    pub(super) fn look(&mut self) -> io::Result<()> {
        self.written = 0;
        if self.keep_bytes == 0 {
            return Ok(());
        }
        let disk = rustix::fs::fstatvfs(&self.directory)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < self.keep_bytes {
            let keep = self.keep_bytes;
            let what =
                format!("{free} bytes of the host's disk are free, of which {keep} must stay so (--disk-reserve-mib)");
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        let (inodes, keep) = (disk.f_favail, disk.f_files / INODES);
        if inodes < keep {
            let what = format!("the host's disk has room for {inodes} more files, of which {keep} must stay");
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        Ok(())
    }
}

/// Content for which there must be room.
pub(super) struct Metered<'a> {
    pub(super) content: &'a mut dyn Content,
    pub(super) room: &'a mut Room,
}

impl Content for Metered<'_> {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        if self.room.written >= BYTES {
            self.room.look()?;
        }
        let piece = self.content.next()?;
        self.room.written += piece.map_or(0, |(_, bytes)| bytes.len() as u64);
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As much as is asked for.
    struct Endless([u8; 4096]);

    impl Content for Endless {
        fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
            Ok(Some((0, &self.0)))
        }
    }

    #[test]
    fn a_long_file_is_looked_at_while_it_is_written() {
        let place = tempfile::tempdir().unwrap();
        let mut room = Room::new(std::fs::File::open(place.path()).unwrap().into(), u64::MAX);
        let mut content = Endless([1; 4096]);
        let mut metered = Metered { content: &mut content, room: &mut room };
        let mut taken = 0;
        let refused = loop {
            match metered.next() {
                Ok(piece) => taken += piece.map_or(0, |(_, bytes)| bytes.len() as u64),
                Err(error) => break error,
            }
        };
        assert_eq!((taken, refused.kind()), (BYTES, io::ErrorKind::StorageFull), "{refused}");
        assert!(refused.to_string().contains("--disk-reserve-mib"), "{refused}");
    }
}
