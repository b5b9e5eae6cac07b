//! What fuzzers are let at: each function takes any bytes, lets one of the readers of foreign files at them, and panics
//! when something does not hold that must hold for all of them. Not built into anything that is shipped.
//!
//! Fuzzers cannot guess sums. What is checked by one only so that mistakes are noticed (heads of tar archives, seals of
//! manifests) is put right first where the first byte asks for it; so the readers behind it are reached.

#[cfg(test)]
pub(crate) mod tests;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dorm_guest_ids::GuestIds;
use dorm_steps::pass;

use crate::captures::Captures;
pub use crate::captures::fuzzing::listing;
pub use crate::images::fuzzing::{documents, told};
use crate::images::{Images, ImportLimits};
use crate::steps::Steps;

const BLOCK: usize = 512;
const CANARY: &str = "canary";
const CONTENT: &[u8] = b"nothing outside is touched";
/// No input makes more of these.
const LIMITS: ImportLimits = ImportLimits { entries: 3000, bytes: 8 << 20, file_bytes: 8 << 20, ratio: 1000 };

/// A pool of the fuzzer's own, and something beside it that must not change.
pub struct Fuzzed {
    pub(crate) home: PathBuf,
    pub(crate) images: Images,
    pub(crate) captures: Arc<Captures>,
}

impl Fuzzed {
    /// Makes one in the empty directory `home`.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn new(home: &Path) -> Self {
        let steps = || Steps(pass());
        let images = Images::open(home.join("images"), GuestIds::DEFAULT, steps()).expect("images").limited(LIMITS);
        let captures = Arc::new(Captures::open(home.join("captures"), GuestIds::DEFAULT, steps()).expect("captures"));
        fs::create_dir(home.join(CANARY)).expect("a directory");
        fs::write(home.join(CANARY).join("file"), CONTENT).expect("a file");
        Self { home: home.to_owned(), images, captures }
    }

    /// Nothing outside of the pool has changed, and nothing half-made is in it.
    pub(crate) fn is_clean(&self) {
        let mut names = names(&self.home);
        names.retain(|name| !["images", "captures", "source", "blobs", CANARY].contains(&name.as_str()));
        assert!(names.is_empty(), "outside of the pool there are {names:?}");
        let file = self.home.join(CANARY).join("file");
        assert_eq!(fs::read(&file).expect("the canary"), CONTENT);
        assert_eq!(self::names(&self.home.join(CANARY)), ["file"]);
        let facts = fs::symlink_metadata(&file).expect("the canary");
        assert_eq!((facts.uid(), facts.nlink(), facts.mode() & 0o6000), (rustix::process::geteuid().as_raw(), 1, 0));
        let known = ["tags", "layers", ".lock"];
        let left: Vec<_> = self::names(&self.home.join("images"));
        assert!(left.iter().all(|name| known.contains(&name.as_str())), "among the images there are {left:?}");
        let left = self::names(&self.home.join("images/layers"));
        assert!(left.iter().all(|name| name == ".lock"), "among the layers there are {left:?}");
        assert_eq!(self::names(&self.home.join("captures")), [""; 0], "captures");
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Every entry belongs to a guest, and is nothing that a guest must not have.
pub(crate) fn is_of_a_guest(tree: &Path) {
    let mut open = vec![tree.to_owned()];
    let mut count = 0;
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("a directory").flatten() {
            let facts = entry.path().symlink_metadata().expect("an entry");
            let kind = facts.mode() & 0o170_000;
            let is_plain = matches!(kind, 0o040_000 | 0o100_000 | 0o120_000 | 0o010_000);
            assert!(is_plain, "{} is of the kind {kind:o}", entry.path().display());
            for id in [facts.uid(), facts.gid()] {
                let inside = GuestIds::DEFAULT.base()..GuestIds::DEFAULT.base() + GuestIds::COUNT;
                assert!(inside.contains(&id), "{} belongs to {id}", entry.path().display());
            }
            if kind == 0o040_000 {
                open.push(entry.path());
            }
            count += 1;
            assert!(count <= LIMITS.entries + 16, "more entries than there may be");
        }
    }
}

/// Takes one byte off the front; 0 when there is none.
pub(crate) fn first(data: &mut &[u8]) -> u8 {
    let Some((byte, rest)) = data.split_first() else { return 0 };
    *data = rest;
    *byte
}

/// Takes a part off the front that is as long as its first two bytes say, or as there is.
pub(crate) fn part<'a>(data: &mut &'a [u8]) -> &'a [u8] {
    let length = usize::from(u16::from_le_bytes([first(data), first(data)])).min(data.len());
    let (part, rest) = data.split_at(length);
    *data = rest;
    part
}

/// Puts the sums of the heads of a tar archive right.
pub(crate) fn mended(archive: &[u8]) -> Vec<u8> {
    let mut archive = archive.to_vec();
    let mut at = 0_usize;
    while let Some(head) = at.checked_add(BLOCK).and_then(|end| archive.get_mut(at..end)) {
        at += BLOCK;
        if head.iter().all(|byte| *byte == 0) {
            continue;
        }
        head[148..156].fill(b' ');
        let sum: u32 = head.iter().copied().map(u32::from).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let header = tar::Header::from_byte_slice(head);
        let bytes = header.entry_size().ok().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
        let Some(next) = bytes.checked_next_multiple_of(BLOCK).and_then(|bytes| at.checked_add(bytes)) else { break };
        at = next;
    }
    archive
}
