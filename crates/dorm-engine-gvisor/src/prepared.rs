//! Page cache for the pages of a memory image, prepared while the sandbox writes them.
//!
//! The page cache of a file is charged to the control group that first uses it, and a sandbox that
//! is being saved has no room for a copy of its memory. So the daemon reads the file, which is one
//! hole, ahead of the sandbox. That gives it page cache of the daemon, and changes nothing in the
//! file, so it does not matter who is first.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use dorm_ports::{HostFacts as _, ThisHost};

/// The maximum size of an image that is prepared. A larger one would displace more from the page
/// cache than a faster suspend is worth.
const BYTES_MAX: u64 = 1 << 30;
/// Page cache may take this fraction of the memory that is available on the host.
const SHARE: u64 = 8;
/// Memory that is not counted when the length of an image is estimated.
const EXTRA_BYTES: u64 = 16 << 20;
const PIECE_BYTES: usize = 1 << 20;

/// Returns how many bytes of an image to prepare for a guest that uses this much memory. The result
/// is a multiple of the size of a page.
pub(crate) fn bytes_for(memory_bytes: u64) -> u64 {
    let available = ThisHost.available_memory().unwrap_or(0);
    let expected = (memory_bytes + EXTRA_BYTES).next_multiple_of(1 << 20);
    if expected <= BYTES_MAX.min(available / SHARE) { expected } else { 0 }
}

/// The preparation of one file.
#[derive(Debug)]
pub(crate) struct Preparation {
    /// The same open file that the sandbox has, and so the same position.
    file: File,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Preparation {
    /// Begins to prepare the first `bytes` bytes of `file`, which is empty.
    pub(crate) fn begin(file: &OwnedFd, bytes: u64) -> io::Result<Self> {
        let file = File::from(file.try_clone()?);
        file.set_len(bytes)?;
        let (stop, reading) = (Arc::new(AtomicBool::new(false)), file.try_clone()?);
        let mut preparation = Self { file, stop: stop.clone(), thread: None };
        let work = move || read_ahead(&reading, bytes, &stop);
        preparation.thread = Some(std::thread::Builder::new().name("page cache".to_owned()).spawn(work)?);
        Ok(preparation)
    }

    /// Ends it, and cuts the file where the sandbox has stopped writing.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.stop();
        let written = self.file.stream_position()?;
        self.file.set_len(written)
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Without it, the sandbox only writes more slowly.
            let _ = thread.join();
        }
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        self.stop();
    }
}

fn read_ahead(file: &File, bytes: u64, stop: &AtomicBool) {
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < bytes && !stop.load(Ordering::Relaxed) {
        match file.read_at(&mut piece, at) {
            Ok(read) if read > 0 => at += read as u64,
            // The sandbox can write without it.
            Ok(_) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_prepared_file_has_what_was_written_and_nothing_else() {
        for (bytes, written) in [(8 << 20, 3 << 20), (1 << 20, 5 << 20), (1 << 20, 0), (2 << 20, 12_345)] {
            let mut file = tempfile::tempfile().unwrap();
            let preparation = Preparation::begin(&OwnedFd::from(file.try_clone().unwrap()), bytes).unwrap();
            let content: Vec<u8> = (0..written).map(|at: u32| (at % 251) as u8).collect();
            for piece in content.chunks(1 << 18) {
                file.write_all(piece).unwrap();
            }
            preparation.end().unwrap();
            assert_eq!(file.metadata().unwrap().len(), u64::from(written));
            let mut found = vec![0; content.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == content, "{written} bytes");
        }
    }

    #[test]
    fn an_image_beyond_the_limit_is_not_prepared() {
        assert_eq!(bytes_for(BYTES_MAX), 0);
        assert!([0, 20 << 20].contains(&bytes_for((3 << 20) + 1)));
    }
}
