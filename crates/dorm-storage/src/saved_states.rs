//! Saved states: directories that hold the memory of a sandbox, or files based on an image. This
//! module covers their life from a draft to a complete, checked directory and its removal.
//!
//! ```text
//! begin ─► ID.draft ── commit ──► ID ── remove ──► ID.gone ─► nothing
//!             └─ abandoned, or left by a dead process: cleared by remove, or by the next begin
//! ```

mod batch;
#[cfg(test)]
mod compose_tests;
mod content;
mod copy;
mod diff;
mod draft;
mod flatten;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod listing;
#[cfg(test)]
mod lost_writes_tests;
mod manifest;
mod marks;
#[cfg(test)]
mod marks_tests;
mod owners;
#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod tests;
mod transfer;
mod tree;
mod tree_check;
#[cfg(test)]
pub(crate) mod tree_tests;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dorm_guest_ids::GuestIds;
use dorm_lifecycle::{Digest, Resources, SandboxId, SavedStateId, Timestamp};

use crate::disk;
use crate::error::{StorageError, failed};
use crate::room::{Meter, Room};
use crate::steps::{Step, Steps};

pub use copy::Copied;
pub(crate) use copy::Reading;
pub(crate) use diff::diff;
pub use diff::{Difference, Differing, Lister};
pub use draft::SavedStateDraft;
pub(crate) use flatten::Merged;
pub use listing::Listed;
pub use marks::MARKS;
pub(crate) use transfer::BaseImage;
pub use transfer::{Export, ExportNote, Exported, ExportedTree, ImportAs, Imported, Incoming};
pub(crate) use tree::set_attributes;
pub use tree::{Below, TreeFacts, TreeWriter};

const MANIFEST: &str = "manifest.json";
const DRAFT: &str = ".draft";
const GONE: &str = ".gone";

/// The source and the dependencies of a saved state. Written once, never changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedStateFacts {
    /// The engine that made it, such as `gvisor`.
    pub engine: String,
    /// The exact build of that engine.
    pub build: String,
    /// The CPU features it depends on, in the form the engine reports them.
    pub cpu: String,
    /// The image it is based on.
    pub image: Digest,
    /// The filesystem saved state between that image and this one; none if it is based on the image
    /// itself.
    pub layer: Option<SavedStateId>,
    /// The sandbox it was taken of.
    pub sandbox: SandboxId,
    /// The run of that sandbox.
    pub generation: u64,
    /// The saved state from which this run started; `None` after a cold boot.
    pub parent: Option<SavedStateId>,
    /// The resource limits of the sandbox.
    pub resources: Resources,
    /// When it was taken.
    pub taken: Timestamp,
}

/// One file of a saved state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedStateFile {
    /// Its path, relative to the directory of the saved state.
    pub name: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// BLAKE3 of its content, 64 hexadecimal digits.
    pub blake3: String,
}

/// A file that was written to a draft.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenFile {
    /// Its path, relative to the directory of the draft.
    pub name: PathBuf,
    /// The number of bytes written, according to the writer.
    pub bytes: u64,
    /// `Some` if no such file was written: the file at this path, which belongs to a complete saved
    /// state, belongs to this one too.
    pub shared_with: Option<PathBuf>,
    /// BLAKE3 of its content, 64 hexadecimal digits, if the writer has computed it from what it
    /// wrote, and nothing else could write to the file. Without it, the file is read.
    pub blake3: Option<String>,
}

/// A complete saved state. Its files are immutable: other saved states may share them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedState {
    /// Its id.
    pub id: SavedStateId,
    /// The directory of its files.
    pub directory: PathBuf,
    /// Its source and dependencies.
    pub facts: SavedStateFacts,
    /// Its files, ordered by name, without the manifest and the tree.
    pub files: Vec<SavedStateFile>,
    /// The totals of its tree; none for a memory saved state.
    pub tree: Option<TreeFacts>,
}

impl SavedState {
    /// The total length of all files, in bytes. The disk usage may be less: copies share files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum::<u64>() + self.tree.map_or(0, |tree| tree.bytes)
    }

    /// The root of the tree of a filesystem saved state: the upper layer of an overlay.
    pub fn root(&self) -> PathBuf {
        self.directory.join(tree::ROOT)
    }
}

/// The disk usage of a saved state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// The bytes that its removal frees.
    pub alone: u64,
    /// The bytes that others use, too: in files shared with copies, and in the layers below it.
    pub shared: u64,
}

/// The properties of this host, in the form of an engine's capabilities, to compare with the
/// requirements of a saved state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    /// The name of the engine.
    pub engine: String,
    /// The build of the engine.
    pub build: String,
    /// The CPU features.
    pub cpu: String,
}

/// A draft that this process is writing.
#[derive(Clone, Copy, Debug)]
struct Live {
    /// The room reserved for it.
    bytes: u64,
    intent: Intent,
}

/// The action when a draft is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Intent {
    Commit,
    /// Discard it: it was removed meanwhile.
    Discard,
}

/// All saved states of one data directory.
pub(crate) struct SavedStates {
    directory: PathBuf,
    /// The host ids of guests.
    ids: GuestIds,
    steps: Steps,
    /// The drafts being written by this process.
    live: Mutex<BTreeMap<SavedStateId, Live>>,
    /// The trees that this process has written, or has read to their last byte.
    trusted: Mutex<BTreeSet<SavedStateId>>,
    /// The memory files that were read and found unchanged.
    marks: marks::Marks,
    /// The reserve that writing leaves free on the disk; nothing unless it is set.
    room: OnceLock<Room>,
}

impl SavedStates {
    pub(crate) fn open(data: &Path, ids: GuestIds, steps: Steps) -> Result<Self, StorageError> {
        let directory = data.join("saved_states");
        disk::make_directories(&directory)?;
        disk::close_directory(&directory)?;
        for name in disk::names(&directory)? {
            if id_with(&name, GONE).is_some()
                && let Err(error) = disk::remove_tree(&directory.join(name))
            {
                tracing::warn!(%error, "part of a removed saved state stays until the next start");
            }
        }
        let (live, trusted, room) = (Mutex::default(), Mutex::default(), OnceLock::new());
        let existing = disk::names(&directory)?.iter().filter_map(|name| name.parse().ok()).collect();
        let marks = marks::Marks::open(data.join(MARKS), &existing);
        let saved_states = Self { directory, ids, steps, live, trusted, marks, room };
        saved_states.complete_changes()?;
        Ok(saved_states)
    }

    pub(crate) fn steps(&self) -> &Steps {
        &self.steps
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sets the reserve that drafts and imports leave free. Must be called only once.
    pub(crate) fn keep(&self, room: Room) {
        let _ = self.room.set(room);
    }

    fn meter(&self) -> Meter {
        self.room.get_or_init(Room::default).meter(&self.directory)
    }

    pub(crate) fn list(&self) -> Result<Vec<SavedStateId>, StorageError> {
        let mut ids: Vec<SavedStateId> =
            disk::names(&self.directory)?.iter().filter_map(|name| name.parse().ok()).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The saved states whose manifest cannot be read, each with the reason.
    pub(crate) fn unreadable(&self) -> Result<Vec<(SavedStateId, StorageError)>, StorageError> {
        let found = self.list()?.into_iter().filter_map(|id| match self.load(&id) {
            Ok(_) | Err(StorageError::Missing(_)) => None,
            Err(error) => Some((id, error)),
        });
        Ok(found.collect())
    }

    pub(crate) fn drafts(&self) -> Result<Vec<SavedStateId>, StorageError> {
        let names = disk::names(&self.directory)?;
        let live = self.live();
        let mut ids: Vec<SavedStateId> = names.iter().filter_map(|name| id_with(name, DRAFT)).collect();
        ids.retain(|id| !live.contains_key(id));
        ids.sort_unstable();
        Ok(ids)
    }

    /// The saved states whose image is `image`. One whose manifest cannot be read may be among
    /// them, so it counts.
    pub(crate) fn standing_on(&self, image: &Digest) -> Result<Vec<SavedStateId>, StorageError> {
        let mut ids = self.list()?;
        ids.retain(|id| match self.load(id) {
            Ok(saved_state) => saved_state.facts.image == *image,
            Err(StorageError::Missing(_)) => false,
            Err(_) => true,
        });
        Ok(ids)
    }

    /// Whether the saved state exists, damaged or not.
    pub(crate) fn has(&self, id: &SavedStateId) -> bool {
        self.path(id, "").is_dir()
    }

    pub(crate) fn sizes(&self, id: &SavedStateId) -> Result<Sizes, StorageError> {
        let saved_state = self.load(id)?;
        let mut sizes = Sizes { alone: saved_state.tree.map_or(0, |tree| tree.bytes), shared: 0 };
        for file in &saved_state.files {
            let path = saved_state.directory.join(&file.name);
            let links = path.symlink_metadata().map_err(failed("look at", &path))?.nlink();
            let part = if links > 1 { &mut sizes.shared } else { &mut sizes.alone };
            *part += file.bytes;
        }
        let mut below = saved_state.facts.layer;
        while let Some(layer) = below {
            let layer = self.load(&layer)?;
            sizes.shared += layer.bytes();
            below = layer.facts.layer;
        }
        Ok(sizes)
    }

    pub(crate) fn remove(&self, id: &SavedStateId) -> Result<(), StorageError> {
        // A draft that is still being written, perhaps for a caller that has given up, must not be
        // completed afterwards.
        if let Some(live) = self.live().get_mut(id) {
            live.intent = Intent::Discard;
        }
        self.trusted().remove(id);
        let shared = self.shared_files(id);
        self.marks.forget(id);
        let gone = self.path(id, GONE);
        disk::remove_tree(&gone)?;
        match disk::rename_new(&self.path(id, ""), &gone) {
            Ok(()) => {
                self.steps.reach(Step::GoneRenamed)?;
                disk::sync_directory(&self.directory, &self.steps)?;
                for (name, file) in shared {
                    self.marks.through(&file, None, || disk::remove_file(&gone.join(name)))?;
                }
                disk::remove_tree(&gone)?;
                self.steps.reach(Step::Removed)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("rename before removing", &self.path(id, ""))(error)),
        }
        if !self.live().contains_key(id) {
            disk::remove_tree(&self.path(id, DRAFT))?;
        }
        disk::sync_directory(&self.directory, &self.steps)
    }

    /// The files of a saved state that have further names, opened. Removing one name changes the
    /// file for the others.
    fn shared_files(&self, id: &SavedStateId) -> Vec<(PathBuf, File)> {
        let Ok(saved_state) = self.load(id) else { return Vec::new() };
        let opened = saved_state.files.into_iter().filter_map(|SavedStateFile { name, .. }| {
            let file = draft::open_regular(&saved_state.directory.join(&name)).ok()??;
            let is_shared = file.metadata().is_ok_and(|facts| facts.nlink() > 1);
            is_shared.then_some((name, file))
        });
        opened.collect()
    }

    fn trusted(&self) -> MutexGuard<'_, BTreeSet<SavedStateId>> {
        self.trusted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self, id: &SavedStateId, suffix: &str) -> PathBuf {
        self.directory.join(format!("{id}{suffix}"))
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<SavedStateId, Live>> {
        // The map is consistent between any two statements that hold the lock: a panic elsewhere
        // cannot have corrupted it.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id_with(name: &str, suffix: &str) -> Option<SavedStateId> {
    name.strip_suffix(suffix)?.parse().ok()
}
