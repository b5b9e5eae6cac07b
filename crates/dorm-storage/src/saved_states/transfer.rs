//! A saved state as one file, to be taken to another host: a tar archive of which every byte is decided by what is in it.
//!
//! ```text
//! manifest.json     what it is, what it needs, and the length and hash of everything that follows; sealed by its own hash
//! listing           of a tree of files: the listing of a saved state; each file's length and hash is in it
//! content/N         the N-th file of the listing, from 0: [where, how long, bytes] for each piece that is no hole
//! memory/NAME       of memory: each file of the image
//! ```
//!
//! A tree that lies on others is written as the one that they come to. A reader knows the name of each entry before it
//! comes, so that nothing can come twice, be missing or be too much. The image below is named and not in it.

#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod manifest;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;
use std::io;

use dorm_lifecycle::{SavedStateId, SnapshotId};

use super::{SavedState, SavedStateFacts, SavedStateFile, TreeFacts};
use crate::error::StorageError;

pub use read::Incoming;
pub use write::Export;

const MANIFEST: &str = "manifest.json";
const LISTING: &str = "listing";
const CONTENT: &str = "content";
const MEMORY: &str = "memory";
const BLOCK: u64 = 512;
/// More than any manifest of ours has.
const MANIFEST_MAX: u64 = 4 << 20;
/// What can be exported can be imported: these bounds hold for both.
const ENTRIES_MAX: u64 = 2_000_000;
const LISTING_MAX: u64 = 1 << 30;
const MEMORY_FILES_MAX: usize = 64;
/// Where a piece begins and how long it is.
const PIECE_HEAD: u64 = 16;

/// What is said in a file beside the saved state's own facts. The storage only passes it on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportNote {
    /// The snapshot, as it is called on the host it comes from.
    pub snapshot: SnapshotId,
    /// The snapshots it descends from, the nearest first.
    pub parents: Vec<SnapshotId>,
    /// Free text, by key.
    pub labels: BTreeMap<String, String>,
}

/// What a file says it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exported {
    /// Where it comes from.
    pub note: ExportNote,
    /// What it is of and what it depends on. Without layers: they are in the file.
    pub facts: SavedStateFacts,
    /// How the image below it was called there.
    pub image_tags: Vec<String>,
    /// The tree of files: all there is of a saved state of files, what lies below one of memory.
    pub tree: Option<ExportedTree>,
    /// The files of memory; none of a saved state of files.
    pub memory: Vec<SavedStateFile>,
}

/// What a file says of its tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportedTree {
    /// What it comes to.
    pub facts: TreeFacts,
    /// What of its files is written and no hole, in bytes.
    pub data_bytes: u64,
    /// The length of its listing.
    pub listing_bytes: u64,
    /// BLAKE3 of its listing.
    pub listing_blake3: String,
}

impl Exported {
    /// Whether it holds memory, or files alone.
    pub fn is_of_memory(&self) -> bool {
        !self.memory.is_empty()
    }

    /// What it takes to unpack it, in bytes; none when it says more than there can be.
    pub fn need_bytes(&self) -> Option<u64> {
        let memory = self.memory.iter().try_fold(0u64, |sum, file| sum.checked_add(file.bytes))?;
        let tree = self.tree.as_ref().map_or(Some(0), |tree| tree.data_bytes.checked_add(tree.listing_bytes))?;
        memory.checked_add(tree)
    }
}

/// What an import is to be called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportAs {
    /// The saved state.
    pub saved_state: SavedStateId,
    /// The layer below it, of one of memory that has one.
    pub layer: SavedStateId,
}

/// What came of an import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// The saved state.
    pub saved_state: SavedState,
    /// The layer below it, of one of memory that has one.
    pub layer: Option<SavedState>,
}

/// The head of an entry, which its name and length alone decide.
fn head(name: &str, bytes: u64) -> io::Result<tar::Header> {
    let mut head = tar::Header::new_ustar();
    head.set_path(name)?;
    head.set_size(bytes);
    head.set_mode(0o600);
    head.set_uid(0);
    head.set_gid(0);
    head.set_mtime(0);
    head.set_entry_type(tar::EntryType::Regular);
    head.set_cksum();
    Ok(head)
}

/// How many zeros follow an entry of this length.
const fn padding(bytes: u64) -> u64 {
    (BLOCK - bytes % BLOCK) % BLOCK
}

fn refused(what: impl Into<String>) -> StorageError {
    StorageError::Export { what: what.into(), source: None }
}
