//! Computes the BLAKE3 hash of a file, with several threads and little memory.
//!
//! The result is the plain BLAKE3 hash, the one `b3sum` prints: the file is cut into segments that
//! are subtrees of the hash, each thread takes one after another, and the roots of the subtrees are
//! merged.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt};

use crate::{pace, reread};

/// A power of two, so that every segment is a whole subtree.
const SEGMENT: u64 = 8 << 20;
const BUFFER: usize = 512 << 10;
const THREADS_MAX: usize = 8;

/// Returns the hash of the first `bytes` bytes of `file`; [`io::ErrorKind::UnexpectedEof`] if it
/// has fewer.
pub(crate) fn hash_file(file: &File, bytes: u64) -> io::Result<blake3::Hash> {
    hash_segments(file, bytes, SEGMENT)
}

fn hash_segments(file: &File, bytes: u64, segment: u64) -> io::Result<blake3::Hash> {
    let count = bytes.div_ceil(segment);
    if count <= 1 {
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(BUFFER).clamp(1, BUFFER)];
        update(&mut hasher, file, 0, bytes, &mut buffer)?;
        return Ok(hasher.finalize());
    }
    let subtrees = hash_subtrees(file, bytes, segment, count)?;
    dorm_disk::hash_of_subtrees(&subtrees, bytes, segment).ok_or_else(poisoned)
}

fn hash_subtrees(file: &File, bytes: u64, segment: u64, count: u64) -> io::Result<Vec<ChainingValue>> {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let done = Mutex::new(Vec::new());
    let work = || -> io::Result<()> {
        let mut buffer = vec![0; BUFFER];
        let mut mine = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count || stop.load(Ordering::Relaxed) {
                break;
            }
            let offset = index * segment;
            let mut hasher = Hasher::new();
            hasher.set_input_offset(offset);
            let length = segment.min(bytes - offset);
            if let Err(error) = update(&mut hasher, file, offset, length, &mut buffer) {
                stop.store(true, Ordering::Relaxed);
                return Err(error);
            }
            mine.push((index, hasher.finalize_non_root()));
        }
        done.lock().map_err(|_| poisoned())?.append(&mut mine);
        Ok(())
    };
    let threads =
        if pace::is_set() { 1 } else { thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX) };
    thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut result = work();
        for helper in helpers {
            result = result.and(helper.join().unwrap_or_else(|_| Err(poisoned())));
        }
        result
    })?;
    let mut subtrees = done.into_inner().map_err(|_| poisoned())?;
    subtrees.sort_unstable_by_key(|(index, _)| *index);
    Ok(subtrees.into_iter().map(|(_, value)| value).collect())
}

fn update(hasher: &mut Hasher, file: &File, mut offset: u64, bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
    let end = offset + bytes;
    while offset < end {
        let want = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
        let read = match reread::twice(|| file.read_at(&mut buffer[..want], offset)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        pace::read(read)?;
        hasher.update(&buffer[..read]);
        offset += read as u64;
    }
    Ok(())
}

fn poisoned() -> io::Error {
    io::Error::other("a hashing thread ended early")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn hashing_in_segments_gives_the_plain_hash() {
        let segment = 4096;
        for bytes in [0, 1, 4095, 4096, 4097, 8191, 8192, 8193, 12_288, 12_289, 5 * 4096, 100_000, 1 << 20, 1_234_567] {
            let content: Vec<u8> = (0..bytes).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&content).unwrap();
            let hash = hash_segments(&file, u64::from(bytes), segment).unwrap();
            assert_eq!(hash, blake3::hash(&content), "{bytes} bytes");
        }
    }

    #[test]
    fn real_segments_give_the_plain_hash() {
        let mut file = tempfile::tempfile().unwrap();
        let content = vec![7u8; (SEGMENT * 3 + 5) as usize];
        file.write_all(&content).unwrap();
        assert_eq!(hash_file(&file, content.len() as u64).unwrap(), blake3::hash(&content));
    }

    #[test]
    fn a_file_that_is_too_short_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"short").unwrap();
        assert_eq!(hash_file(&file, 6).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(hash_segments(&file, 100_000, 4096).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
