//! A saved state as one file, to be moved to another host: a tar archive whose bytes are fully
//! determined by its content.
//!
//! ```text
//! manifest.json     its facts, and the length and hash of each later entry; with a hash of its own
//! listing           of a tree: the listing of a saved state, with the length and hash of each file
//! content/N         file N of the listing, from 0: [position, length, bytes] of each piece that is not a hole
//! memory/NAME       of memory: each file of the image
//! ```
//!
//! A tree based on other trees is written as one merged tree. A reader knows the name of each entry
//! in advance, so that no entry can be repeated, missing or added. The file names the image but
//! does not contain it.

#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing;
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
pub(crate) use write::BaseImage;
pub use write::Export;

const MANIFEST: &str = "manifest.json";
const LISTING: &str = "listing";
const CONTENT: &str = "content";
const MEMORY: &str = "memory";
const BLOCK: u64 = 512;
/// The maximum size of a manifest, more than any valid one has.
const MANIFEST_MAX: u64 = 4 << 20;
/// These limits hold for exports and imports alike: whatever can be exported can be imported.
const ENTRIES_MAX: u64 = 2_000_000;
const LISTING_MAX: u64 = 1 << 30;
const MEMORY_FILES_MAX: usize = 64;
/// The head of a piece: its position and its length.
const PIECE_HEAD: u64 = 16;

/// Further facts for an export file. The storage only passes them on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportNote {
    /// The snapshot's id on the host it comes from.
    pub snapshot: SnapshotId,
    /// The snapshots it descends from, the nearest first.
    pub parents: Vec<SnapshotId>,
    /// Free text, by key.
    pub labels: BTreeMap<String, String>,
}

/// The manifest of an export file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exported {
    /// The facts that the exporter added.
    pub note: ExportNote,
    /// The source and dependencies of the saved state. Without layers: they are in the file.
    pub facts: SavedStateFacts,
    /// The tags of its image on that host.
    pub image_tags: Vec<String>,
    /// The tree of files: the whole of a filesystem saved state, or the layers below a memory saved
    /// state.
    pub tree: Option<ExportedTree>,
    /// The files of memory; empty for a filesystem saved state.
    pub memory: Vec<SavedStateFile>,
}

/// The description of the tree in an export file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportedTree {
    /// Its totals.
    pub facts: TreeFacts,
    /// The bytes of its files without holes.
    pub data_bytes: u64,
    /// The length of its listing in bytes.
    pub listing_bytes: u64,
    /// The BLAKE3 of its listing.
    pub listing_blake3: String,
}

impl Exported {
    /// Whether it holds memory, or files alone.
    pub fn is_of_memory(&self) -> bool {
        !self.memory.is_empty()
    }

    /// The room needed to unpack it, in bytes; none if the lengths overflow.
    pub fn need_bytes(&self) -> Option<u64> {
        let memory = self.memory.iter().try_fold(0u64, |sum, file| sum.checked_add(file.bytes))?;
        let tree = self.tree.as_ref().map_or(Some(0), |tree| tree.data_bytes.checked_add(tree.listing_bytes))?;
        memory.checked_add(tree)
    }
}

/// The ids for an import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportAs {
    /// The id of the saved state.
    pub saved_state: SavedStateId,
    /// The id of the layer below it, if it is a memory saved state that has one.
    pub layer: SavedStateId,
}

/// The result of an import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// The saved state.
    pub saved_state: SavedState,
    /// The layer below it, if it is a memory saved state that has one.
    pub layer: Option<SavedState>,
}

/// Returns the header of an entry, which depends only on its name and length.
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

/// Returns how many zeros follow an entry of this length.
const fn padding(bytes: u64) -> u64 {
    (BLOCK - bytes % BLOCK) % BLOCK
}

fn refused(what: impl Into<String>) -> StorageError {
    StorageError::Export { what: what.into(), source: None }
}
