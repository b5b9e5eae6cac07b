//! A saved state that is being written, and the commit that completes it.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use dorm_guest_ids::RECORD;
use dorm_lifecycle::SavedStateId;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::manifest::{self, is_inside};
use super::marks::{Mark, Observed};
use super::tree::{Below, LISTING, ROOT, TreeFacts, TreeWriter};
use super::{DRAFT, Intent, Live, MANIFEST, SavedState, SavedStateFacts, SavedStateFile, SavedStates, WrittenFile};
use crate::blocking::{blocking, elsewhere};
use crate::disk;
use crate::error::{StorageError, failed};
use crate::hashing::hash_file;
use crate::room::Meter;
use crate::steps::{Step, Steps};

/// The mode of the files of a complete memory saved state.
pub(super) const READ_ONLY: u32 = 0o400;
/// The directory of a memory image that is needed only until its files are read.
const MEMORY: &str = "memory";

/// The directory in which a tree is merged with the layers below it.
const FLAT: &str = "flat";

/// A file with its hash, and its mark if it can have one.
type Hashed = (SavedStateFile, Option<Mark>);

/// An open file by its name in the draft, and its expected length.
struct Opened {
    name: PathBuf,
    file: File,
    bytes: u64,
    /// Its hash, if the writer knows it.
    blake3: Option<String>,
}

/// A saved state that is being written. Dropping it removes its files.
pub struct SavedStateDraft {
    saved_states: Arc<SavedStates>,
    id: SavedStateId,
    directory: PathBuf,
    /// The directory, opened before anything is written: the kernel reports a failed write to each
    /// descriptor that was open then, whatever other programs have been told.
    opened: Option<File>,
}

impl SavedStates {
    pub(crate) fn begin(self: &Arc<Self>, id: &SavedStateId, need_bytes: u64) -> Result<SavedStateDraft, StorageError> {
        let draft = self.draft(id, need_bytes)?;
        self.steps.reach(Step::DraftMade)?;
        Ok(draft)
    }

    /// Creates an empty draft, with room reserved for it.
    pub(super) fn draft(self: &Arc<Self>, id: &SavedStateId, need_bytes: u64) -> Result<SavedStateDraft, StorageError> {
        let directory = self.path(id, DRAFT);
        {
            let mut live = self.live();
            if live.contains_key(id) || self.path(id, "").symlink_metadata().is_ok() {
                return Err(StorageError::Exists(id.clone()));
            }
            self.check_room(&live, need_bytes)?;
            live.insert(id.clone(), Live { bytes: need_bytes, intent: Intent::Commit });
        }
        let mut draft = SavedStateDraft { saved_states: self.clone(), id: id.clone(), directory, opened: None };
        disk::remove_tree(&draft.directory)?;
        disk::make_directory(&draft.directory).map_err(failed("make the directory", &draft.directory))?;
        draft.opened = Some(File::open(&draft.directory).map_err(failed("open", &draft.directory))?);
        Ok(draft)
    }

    /// Checks that a draft of this size could begin now.
    pub(crate) fn has_room(&self, need_bytes: u64) -> Result<(), StorageError> {
        self.check_room(&self.live(), need_bytes)
    }

    fn check_room(&self, live: &BTreeMap<SavedStateId, Live>, need_bytes: u64) -> Result<(), StorageError> {
        let mut promised = 0u64;
        for (other, Live { bytes, .. }) in live {
            promised = promised.saturating_add(bytes.saturating_sub(written(&self.path(other, DRAFT))));
        }
        let free_bytes = disk::free_bytes(&self.directory)?.saturating_sub(promised);
        match need_bytes > free_bytes {
            true => Err(StorageError::NoRoom { path: self.directory.clone(), need_bytes, free_bytes }),
            false => Ok(()),
        }
    }
}

/// Returns the total length of the files directly in a draft, an estimate of their disk usage. A
/// file that cannot be read counts as nothing.
fn written(draft: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(draft) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|facts| facts.len()).sum()
}

impl SavedStateDraft {
    /// The directory for its files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Compares the lengths of `files` with the bytes written, hashes and syncs them, and completes
    /// the saved state. A shared file is checked where it is, and gets its name here. When this
    /// returns, the saved state survives a power failure. If it fails, there is no saved state.
    ///
    /// # Errors
    /// [`StorageError::BadFile`] if a file is not a regular file in the draft, a shared one is not
    /// a file of a saved state, or a file in the draft is not in `files`; [`StorageError::Short`]
    /// if a length differs; [`StorageError::DiskFull`] or [`StorageError::Io`] if the disk fails.
    pub async fn commit(self, facts: SavedStateFacts, files: &[WrittenFile]) -> Result<SavedState, StorageError> {
        let files = files.to_vec();
        blocking(&self.saved_states.steps.clone(), move || self.commit_now(&facts, &files)).await
    }

    /// Removes the draft.
    ///
    /// # Errors
    /// [`StorageError::Io`] if files cannot be removed; [`crate::Storage::remove`] tries again.
    pub async fn abandon(self) -> Result<(), StorageError> {
        blocking(&self.saved_states.steps.clone(), move || disk::remove_tree(&self.directory)).await
    }

    pub(super) fn commit_now(self, facts: &SavedStateFacts, files: &[WrittenFile]) -> Result<SavedState, StorageError> {
        let steps = &self.saved_states.steps;
        let (shared, own): (Vec<_>, Vec<_>) = files.iter().cloned().partition(|file| file.shared_with.is_some());
        let (opened, directories) = check(&self.id, &self.directory, &own)?;
        for Opened { name, file, .. } in &opened {
            // From here on nothing writes to it: sandboxes may map it.
            let closed = file.set_permissions(Permissions::from_mode(READ_ONLY));
            closed.map_err(failed("set the mode of", &self.directory.join(name)))?;
        }
        steps.reach(Step::FilesChecked)?;
        let hashed = self.hash_and_sync(opened)?;
        let mut files: Vec<_> = hashed.iter().map(|(file, _)| file.clone()).collect();
        for file in &shared {
            files.push(self.saved_states.name_again(&self.id, &self.directory, file)?);
        }
        if !shared.is_empty() {
            steps.reach(Step::Linked)?;
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        let saved_state = self.finish(facts, files, None, &directories)?;
        for (file, mark) in hashed {
            if let Some(mark) = mark {
                self.saved_states.marks.keep(&self.id, &file.name, mark);
            }
        }
        Ok(saved_state)
    }

    /// Creates an empty directory for a memory image that is needed only until its files are read.
    ///
    /// # Errors
    /// [`StorageError::Io`] if it cannot be created.
    pub async fn make_memory(&self) -> Result<PathBuf, StorageError> {
        let path = self.directory.join(MEMORY);
        blocking(&self.saved_states.steps, move || {
            disk::make_directory(&path).map_err(failed("make the directory", &path))?;
            Ok(path)
        })
        .await
    }

    /// Compares the lengths of `files` in [`SavedStateDraft::make_memory`] with the bytes written,
    /// and makes them durable: a disk that loses a write reports it then, and not to a reader. A
    /// shared file is not needed there.
    ///
    /// # Errors
    /// As for [`SavedStateDraft::commit`].
    pub async fn check_memory(&self, files: &[WrittenFile]) -> Result<(), StorageError> {
        let (id, memory, files) = (self.id.clone(), self.directory.join(MEMORY), files.to_vec());
        let own: Vec<_> = files.into_iter().filter(|file| file.shared_with.is_none()).collect();
        blocking(&self.saved_states.steps, move || {
            let (opened, _) = check(&id, &memory, &own)?;
            opened.iter().try_for_each(|one| one.file.sync_data().map_err(failed("sync", &memory.join(&one.name))))
        })
        .await
    }

    /// Begins the tree of a filesystem saved state that will be based on `below`.
    ///
    /// # Errors
    /// [`StorageError::Io`] if it cannot be created, also if it exists already.
    pub async fn begin_tree(&self, below: Below) -> Result<TreeWriter, StorageError> {
        let (directory, ids, meter) = (self.directory.clone(), self.saved_states.ids, self.saved_states.meter());
        blocking(&self.saved_states.steps, move || {
            TreeWriter::create(&directory, below, ids, meter).map_err(failed("make a tree in", &directory))
        })
        .await
    }

    /// [`SavedStateDraft::make_memory`], for a thread that may block.
    pub(super) fn memory(&self) -> Result<PathBuf, StorageError> {
        let path = self.directory.join(MEMORY);
        disk::make_directory(&path).map_err(failed("make the directory", &path))?;
        Ok(path)
    }

    /// Returns a meter for writes to the draft beside its tree.
    pub(super) fn meter(&self) -> Meter {
        self.saved_states.meter()
    }

    /// [`SavedStateDraft::begin_tree`], for a thread that may block.
    pub(super) fn tree(&self, below: Below) -> Result<TreeWriter, StorageError> {
        let (ids, meter) = (self.saved_states.ids, self.saved_states.meter());
        TreeWriter::create(&self.directory, below, ids, meter).map_err(failed("make a tree in", &self.directory))
    }

    /// Syncs the files of `tree` and completes the saved state, without the memory they were read
    /// from. When this returns, the saved state survives a power failure. If it fails, there is no
    /// saved state.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`] or [`StorageError::Io`] if the disk fails.
    pub async fn commit_tree(self, facts: SavedStateFacts, tree: TreeWriter) -> Result<SavedState, StorageError> {
        blocking(&self.saved_states.steps.clone(), move || self.commit_tree_now(&facts, &tree)).await
    }

    /// Like [`SavedStateDraft::commit_tree`], but the saved state is based on the image itself:
    /// `tree` is merged with the layers below it, which do not change. It is read back from the
    /// disk and compared before this returns.
    ///
    /// # Errors
    /// As for [`SavedStateDraft::commit_tree`] and [`crate::Storage::flatten`].
    pub async fn commit_flat(
        self,
        facts: SavedStateFacts,
        tree: TreeWriter,
        image: PathBuf,
    ) -> Result<SavedState, StorageError> {
        blocking(&self.saved_states.steps.clone(), move || {
            let (saved_states, id, directory) = (self.saved_states.clone(), self.id.clone(), self.directory.clone());
            let merged = saved_states.merged_with(&id, &directory, (&facts, &tree), &image)?;
            let flat = directory.join(FLAT);
            disk::make_directory(&flat).map_err(failed("make the directory", &flat))?;
            let below = Below::default();
            let writer = TreeWriter::create(&flat, below, saved_states.ids, saved_states.meter());
            let writer = writer.map_err(failed("make a tree in", &flat))?;
            merged.write(&writer).map_err(failed("merge layers into", &flat))?;
            disk::remove_tree(&directory.join(ROOT))?;
            for name in [LISTING, ROOT] {
                fs::rename(flat.join(name), directory.join(name)).map_err(failed("rename", &flat.join(name)))?;
            }
            disk::remove_tree(&flat)?;
            let facts = SavedStateFacts { layer: None, ..facts };
            saved_states.read_back(&self.commit_tree_now(&facts, &writer)?, &merged)
        })
        .await
    }

    pub(super) fn commit_tree_now(
        self,
        facts: &SavedStateFacts,
        tree: &TreeWriter,
    ) -> Result<SavedState, StorageError> {
        let steps = &self.saved_states.steps;
        let written = tree.finish().map_err(failed("complete the tree in", &self.directory))?;
        steps.reach(Step::TreeWritten)?;
        disk::remove_tree(&self.directory.join(MEMORY))?;
        steps.reach(Step::MemoryRemoved)?;
        let path = self.directory.join(LISTING);
        let listing = File::open(&path).map_err(failed("open", &path))?;
        let bytes = listing.metadata().map_err(failed("look at", &path))?.len();
        let hashed = self.hash(&[Opened { name: PathBuf::from(LISTING), file: listing, bytes, blake3: None }])?;
        let files = hashed.into_iter().map(|(file, _)| file).collect();
        disk::write_new(&self.directory.join(RECORD), self.saved_states.ids.to_record().as_bytes(), steps)?;
        // One call for thousands of small files: syncing each would take minutes on a slow disk.
        let synced = self.opened.as_ref().map_or(Err(Errno::BADF), rustix::fs::syncfs);
        synced.map_err(failed("sync the file system of", &self.directory))?;
        if steps.in_place() {
            say_durable(&self.directory, steps)?;
        }
        steps.reach(Step::TreeSynced)?;
        let saved_state = self.finish(facts, files, Some(written), &BTreeSet::from([PathBuf::from(ROOT)]))?;
        self.saved_states.trusted().insert(self.id.clone());
        Ok(saved_state)
    }

    /// Writes the manifest for files that are already durable, and renames the draft to its final
    /// name.
    pub(super) fn finish(
        &self,
        facts: &SavedStateFacts,
        files: Vec<SavedStateFile>,
        tree: Option<TreeFacts>,
        directories: &BTreeSet<PathBuf>,
    ) -> Result<SavedState, StorageError> {
        let steps = &self.saved_states.steps;
        let path = self.directory.join(MANIFEST);
        let text = manifest::text(&self.id, facts, &files, tree)
            .map_err(|error| failed("put together", &path)(io::Error::from(error)))?;
        disk::write_new(&path, &text, steps)?;
        steps.reach(Step::ManifestWritten)?;
        for directory in directories.iter().rev() {
            disk::sync_directory(&self.directory.join(directory), steps)?;
        }
        if !leaves_out(LeftOut::Draft) {
            disk::sync_directory(&self.directory, steps)?;
        }
        steps.reach(Step::DraftSynced)?;
        let directory = self.saved_states.path(&self.id, "");
        let live = self.saved_states.live();
        if live.get(&self.id).is_some_and(|live| live.intent == Intent::Discard) {
            return Err(StorageError::Missing(self.id.clone()));
        }
        let renamed = disk::rename_new(&self.directory, &directory);
        // From now on a removal finds it under its name.
        drop(live);
        match renamed {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(StorageError::Exists(self.id.clone()));
            }
            Err(error) => return Err(failed("rename the complete draft", &self.directory)(error)),
        }
        if let Err(error) = self.name_durably() {
            if steps.alive() {
                // The error says that there is no saved state, so there must be none.
                self.saved_states.remove(&self.id)?;
            }
            return Err(error);
        }
        Ok(SavedState { id: self.id.clone(), directory, facts: facts.clone(), files, tree })
    }

    fn name_durably(&self) -> Result<(), StorageError> {
        self.saved_states.steps.reach(Step::Renamed)?;
        if !leaves_out(LeftOut::Name) {
            disk::sync_directory(&self.saved_states.directory, &self.saved_states.steps)?;
        }
        self.saved_states.steps.reach(Step::ParentSynced)
    }

    /// The kernel writes to the disk while the content is hashed.
    fn hash_and_sync(&self, opened: Vec<Opened>) -> Result<Vec<Hashed>, StorageError> {
        let steps = &self.saved_states.steps;
        if steps.in_place() {
            let hashed = self.hash(&opened)?;
            steps.reach(Step::FilesHashed)?;
            self.sync(&opened)?;
            steps.reach(Step::FilesSynced)?;
            return Ok(hashed);
        }
        thread::scope(|scope| {
            let sync = scope.spawn(|| self.sync(&opened));
            let hashed = self.hash(&opened)?;
            steps.reach(Step::FilesHashed)?;
            match sync.join() {
                Ok(result) => result?,
                Err(_) => {
                    return Err(failed("sync", &self.directory)(io::Error::other("the syncing thread ended early")));
                }
            }
            steps.reach(Step::FilesSynced)?;
            Ok(hashed)
        })
    }

    fn sync(&self, opened: &[Opened]) -> Result<(), StorageError> {
        if leaves_out(LeftOut::Files) {
            return Ok(());
        }
        let but = usize::from(leaves_out(LeftOut::OneFile));
        opened.iter().skip(but).try_for_each(|Opened { name, file, .. }| {
            let path = self.directory.join(name);
            file.sync_all().map_err(|error| failed("sync", &path)(error))?;
            self.saved_states.steps.durable(&path);
            Ok(())
        })
    }

    fn hash(&self, opened: &[Opened]) -> Result<Vec<Hashed>, StorageError> {
        let hashed = opened.iter().map(|one| {
            let path = self.directory.join(&one.name);
            let observed = Observed::begin(&one.file);
            let blake3 = match &one.blake3 {
                Some(known) => known.clone(),
                None => hash_file(&one.file, one.bytes).map_err(failed("hash", &path))?.to_hex().to_string(),
            };
            one.is_whole(&self.id, &path)?;
            let mark = observed.end(&one.file, &blake3);
            Ok((SavedStateFile { name: one.name.clone(), bytes: one.bytes, blake3 }, mark))
        });
        hashed.collect()
    }
}

/// Opens every file once and finds the directories between, so that no file is checked under one
/// name and hashed under another.
fn check(
    id: &SavedStateId,
    directory: &Path,
    files: &[WrittenFile],
) -> Result<(Vec<Opened>, BTreeSet<PathBuf>), StorageError> {
    let bad = |file: &Path, what| StorageError::BadFile { saved_state: id.clone(), file: file.to_owned(), what };
    let mut opened = Vec::new();
    let mut listed = BTreeSet::new();
    for WrittenFile { name, bytes, blake3, .. } in files {
        if !is_inside(name) || name.to_str().is_none() || name.as_os_str() == MANIFEST {
            return Err(bad(name, "is not the name of a file in it"));
        }
        if !listed.insert(name.clone()) {
            return Err(bad(name, "is listed twice"));
        }
        let path = directory.join(name);
        let file = match open_regular(&path) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(bad(name, "is not a regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(bad(name, "is missing")),
            Err(error) => return Err(failed("open", &path)(error)),
        };
        let opened_file = Opened { name: name.clone(), file, bytes: *bytes, blake3: blake3.clone() };
        opened_file.is_whole(id, &path)?;
        opened.push(opened_file);
    }
    let mut directories = BTreeSet::new();
    let mut open = vec![PathBuf::new()];
    while let Some(inner) = open.pop() {
        for entry in fs::read_dir(directory.join(&inner)).map_err(failed("list", directory))? {
            let entry = entry.map_err(failed("list", directory))?;
            let name = inner.join(entry.file_name());
            if entry.file_type().map_err(failed("look at", &entry.path()))?.is_dir() {
                directories.insert(name.clone());
                open.push(name);
            } else if !listed.contains(&name) {
                return Err(bad(&name, "is not listed by the engine"));
            }
        }
    }
    opened.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((opened, directories))
}

impl Opened {
    /// Checks that it has exactly as many bytes as were written to it.
    fn is_whole(&self, saved_state: &SavedStateId, path: &Path) -> Result<(), StorageError> {
        let found = self.file.metadata().map_err(failed("look at", path))?.len();
        if found == self.bytes {
            return Ok(());
        }
        Err(StorageError::Short {
            saved_state: saved_state.clone(),
            file: self.name.clone(),
            written: self.bytes,
            found,
        })
    }
}

/// A sync that the simulator omits on purpose, and must detect.
#[derive(Clone, Copy, Debug)]
enum LeftOut {
    Files,
    OneFile,
    Draft,
    Name,
}

#[cfg(feature = "planted-bugs")]
fn leaves_out(sync: LeftOut) -> bool {
    use dorm_steps::planted::{Planted, is};
    is(match sync {
        LeftOut::Files => Planted::AcknowledgedBeforeSync,
        LeftOut::OneFile => Planted::FileNotSynced,
        LeftOut::Draft => Planted::DraftNotSynced,
        LeftOut::Name => Planted::NameNotSynced,
    })
}

#[cfg(not(feature = "planted-bugs"))]
const fn leaves_out(_: LeftOut) -> bool {
    false
}

/// Reports that each file and directory is durable.
fn say_durable(directory: &Path, steps: &Steps) -> Result<(), StorageError> {
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(&path).map_err(failed("list", &path))? {
            let entry = entry.map_err(failed("list", &path))?;
            match entry.file_type().map_err(failed("look at", &path))?.is_dir() {
                true => open.push(entry.path()),
                false => steps.durable(&entry.path()),
            }
        }
        steps.durable(&path);
    }
    Ok(())
}

/// Opens a file for reading if it is a regular file; never follows a link, and never waits for the
/// other end of a pipe.
pub(super) fn open_regular(path: &Path) -> io::Result<Option<File>> {
    if !path.symlink_metadata()?.is_file() {
        return Ok(None);
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

impl Drop for SavedStateDraft {
    /// A draft is dropped when its writer is cancelled, often on a thread that runs other tasks.
    /// Removing gigabytes may take long.
    fn drop(&mut self) {
        let (saved_states, id, directory) = (self.saved_states.clone(), self.id.clone(), self.directory.clone());
        elsewhere(&self.saved_states.steps, move || {
            if saved_states.steps.alive()
                && let Err(error) = disk::remove_tree(&directory)
            {
                tracing::warn!(saved_state = %id, %error, "a half-written saved state is left; removing the saved state clears it");
            }
            saved_states.live().remove(&id);
        });
    }
}
