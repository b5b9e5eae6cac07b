//! The entry points of the fuzzers: each function passes arbitrary bytes to one of the readers of
//! foreign files, and panics if an invariant is violated. Not part of any release build.
//!
//! Fuzzers cannot guess checksums. Checksums that only detect mistakes (in headers of tar archives
//! and in manifests) are therefore corrected first if the first byte asks for it, so that the
//! fuzzers reach the readers behind them.

#[cfg(test)]
pub(crate) mod tests;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dorm_guest_ids::GuestIds;
use dorm_steps::pass;

pub use crate::images::fuzzing::{documents, told};
use crate::images::{Images, ImportLimits};
use crate::saved_states::SavedStates;
pub use crate::saved_states::fuzzing::listing;
use crate::steps::Steps;

const BLOCK: usize = 512;
const CANARY: &str = "canary";
const CONTENT: &[u8] = b"nothing outside is touched";
/// No input may create more than this.
const LIMITS: ImportLimits = ImportLimits { entries: 3000, bytes: 8 << 20, file_bytes: 8 << 20, ratio: 1000 };

/// A storage of the fuzzer's own, and files outside it that must not change.
pub struct Fuzzed {
    pub(crate) home: PathBuf,
    pub(crate) images: Images,
    pub(crate) saved_states: Arc<SavedStates>,
}

impl Fuzzed {
    /// Creates it in the empty directory `home`.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn new(home: &Path) -> Self {
        let steps = || Steps(pass());
        let images = Images::open(home.join("images"), GuestIds::DEFAULT, steps()).expect("images").limited(LIMITS);
        let saved_states =
            Arc::new(SavedStates::open(home.join("saved_states"), GuestIds::DEFAULT, steps()).expect("saved_states"));
        fs::create_dir(home.join(CANARY)).expect("a directory");
        fs::write(home.join(CANARY).join("file"), CONTENT).expect("a file");
        Self { home: home.to_owned(), images, saved_states }
    }

    /// Checks that nothing outside the storage has changed, and that it holds no partial object.
    pub(crate) fn is_clean(&self) {
        let mut names = names(&self.home);
        names.retain(|name| !["images", "saved_states", "source", "blobs", CANARY].contains(&name.as_str()));
        assert!(names.is_empty(), "outside of the storage there are {names:?}");
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
        assert_eq!(self::names(&self.home.join("saved_states")), [""; 0], "saved_states");
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Checks that every entry belongs to a guest, and is nothing that a guest must not have.
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

/// Removes the first byte and returns it; 0 if there is none.
pub(crate) fn first(data: &mut &[u8]) -> u8 {
    let Some((byte, rest)) = data.split_first() else { return 0 };
    *data = rest;
    *byte
}

/// Removes a part from the front and returns it. Its first two bytes give its length, which is
/// limited to the bytes available.
pub(crate) fn part<'a>(data: &mut &'a [u8]) -> &'a [u8] {
    let length = usize::from(u16::from_le_bytes([first(data), first(data)])).min(data.len());
    let (part, rest) = data.split_at(length);
    *data = rest;
    part
}

/// Corrects the checksums in the headers of a tar archive.
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
