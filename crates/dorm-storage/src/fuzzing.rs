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
use crate::images::{self, Images};
pub use crate::saved_states::fuzzing::listing;
use crate::saved_states::{self, MARKS, SavedStates};
use crate::steps::Steps;

const CANARY: &str = "canary";
const SOURCE: &str = "source";
const CONTENT: &[u8] = b"nothing outside is touched";

/// A storage of the fuzzer's own, and files outside it that must not change.
pub struct Fuzzed {
    home: PathBuf,
    images: Images,
    saved_states: Arc<SavedStates>,
}

impl Fuzzed {
    /// Creates it in the empty directory `home`.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn new(home: &Path) -> Self {
        let steps = || Steps(pass());
        let images = Images::open(home.join("images"), GuestIds::DEFAULT, steps())
            .expect("images")
            .limited(images::fuzzing::LIMITS);
        let saved_states = Arc::new(SavedStates::open(home, GuestIds::DEFAULT, steps()).expect("saved_states"));
        fs::create_dir(home.join(CANARY)).expect("a directory");
        fs::write(home.join(CANARY).join("file"), CONTENT).expect("a file");
        Self { home: home.to_owned(), images, saved_states }
    }

    /// Unpacks up to four layers and applies them to each other. Each begins with a byte of flags,
    /// followed by two bytes of its length unless it is the last one.
    ///
    /// # Panics
    /// When an invariant is violated.
    pub fn layers(&self, data: &[u8]) {
        images::fuzzing::layers(&self.images, data);
        self.is_clean();
    }

    /// Imports a file of any content.
    ///
    /// # Panics
    /// When an invariant is violated.
    pub fn archive(&self, data: &[u8]) {
        images::fuzzing::archive(&self.images, &self.home.join(SOURCE), data);
        self.is_clean();
    }

    /// Reads the archive of a build context.
    ///
    /// # Panics
    /// If an entry is not below directories of the context, or has another content than its hash
    /// says.
    pub fn context(&self, data: &[u8]) {
        images::fuzzing::context(&self.images, &self.home.join(SOURCE), data);
        self.is_clean();
    }

    /// Reads a saved state with this manifest and listing, and an empty tree.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub fn saved_state(&self, data: &[u8]) {
        saved_states::fuzzing::saved_state(&self.saved_states, data);
        self.is_clean();
    }

    /// Imports a file: as it is, or with all the checksums that a forger could compute. In the
    /// second case the input is the body of a manifest and the contents of the following entries,
    /// each after two bytes with its length.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub fn transfer(&self, data: &[u8]) {
        saved_states::fuzzing::transfer(&self.saved_states, data);
        self.is_clean();
    }

    /// Checks that nothing outside the storage has changed, and that it holds no partial object.
    fn is_clean(&self) {
        let mut names = names(&self.home);
        names.retain(|name| !["images", "saved_states", MARKS, SOURCE, "blobs", CANARY].contains(&name.as_str()));
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
