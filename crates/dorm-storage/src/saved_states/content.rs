//! The hash of a file's content, which does not depend on whether zeros are written or holes:
//! BLAKE3 over the number and the bytes of every block of 4 KiB that is not all zero, and over the
//! file's length.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use blake3::Hasher;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::{pace, reread};

const BLOCK: usize = 4096;
const BUFFER: usize = 256 << 10;

/// Hashes pieces, in order.
pub(super) struct ContentHasher {
    hasher: Hasher,
    block: u64,
    pending: [u8; BLOCK],
    dirty: bool,
}

impl ContentHasher {
    pub(super) fn new() -> Self {
        Self { hasher: Hasher::new(), block: 0, pending: [0; BLOCK], dirty: false }
    }

    pub(super) fn update(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let block = at / BLOCK as u64;
            if block != self.block {
                self.flush();
                self.block = block;
            }
            let start = usize::try_from(at % BLOCK as u64).unwrap_or(0);
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK - start));
            if let Some(place) = self.pending.get_mut(start..start + now.len()) {
                place.copy_from_slice(now);
            }
            self.dirty = true;
            at += now.len() as u64;
            bytes = rest;
        }
    }

    pub(super) fn finish(mut self, length: u64) -> String {
        self.flush();
        self.hasher.update(&u64::MAX.to_le_bytes());
        self.hasher.update(&length.to_le_bytes());
        self.hasher.finalize().to_hex().to_string()
    }

    fn flush(&mut self) {
        if !self.dirty {
            return;
        }
        if self.pending.iter().any(|byte| *byte != 0) {
            self.hasher.update(&self.block.to_le_bytes());
            self.hasher.update(&self.pending);
            self.pending.fill(0);
        }
        self.dirty = false;
    }
}

/// Returns the length and the hash of the content of `file`, without reading its holes.
pub(super) fn hash_content(file: &File, buffer: &mut Vec<u8>) -> io::Result<(u64, String)> {
    buffer.resize(BUFFER, 0);
    let length = file.metadata()?.len();
    let mut hasher = ContentHasher::new();
    let mut at = 0;
    while at < length {
        let (start, end) = match next_data(file, at)? {
            Some((start, end)) => (start, end.min(length)),
            None => break,
        };
        at = start;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let part = buffer.get_mut(..want).unwrap_or_default();
            reread::twice(|| file.read_exact_at(part, at))?;
            pace::read(part.len())?;
            hasher.update(at, part);
            at += want as u64;
        }
    }
    Ok((length, hasher.finish(length)))
}

pub(super) fn next_data(file: &File, at: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not know holes.
        Err(Errno::INVAL) => return Ok(Some((at, u64::MAX))),
        Err(error) => return Err(error.into()),
    };
    Ok(Some((start, rustix::fs::seek(file, SeekFrom::Hole(start))?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_and_holes_hash_the_same_and_everything_else_does_not() {
        let written = tempfile::tempfile().unwrap();
        written.set_len(40_000).unwrap();
        written.write_all_at(b"end", 30_000).unwrap();
        let mut full = vec![0_u8; 40_000];
        full[30_000..30_003].copy_from_slice(b"end");
        let plain = tempfile::tempfile().unwrap();
        plain.write_all_at(&full, 0).unwrap();
        let mut pieces = ContentHasher::new();
        pieces.update(29_999, b"\0e");
        pieces.update(30_001, b"nd");
        let mut buffer = Vec::new();
        let hash = hash_content(&written, &mut buffer).unwrap();
        assert_eq!(hash, hash_content(&plain, &mut buffer).unwrap());
        assert_eq!(hash, (40_000, pieces.finish(40_000)));
        plain.set_len(40_001).unwrap();
        assert_ne!(hash.1, hash_content(&plain, &mut buffer).unwrap().1);
        written.write_all_at(b"e", 34_096).unwrap();
        assert_ne!(hash.1, hash_content(&written, &mut buffer).unwrap().1);
    }
}
