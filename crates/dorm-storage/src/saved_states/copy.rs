//! Copies of a saved state. Where the file system can share blocks between files, a copy has files
//! of its own, so that damage to one file does not affect the other. Elsewhere both have the same
//! files.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use dorm_lifecycle::SavedStateId;
use rustix::io::Errno;

use super::draft::READ_ONLY;
use super::manifest::is_inside;
use super::verify::Trust;
use super::{MANIFEST, SavedState, SavedStateFile, SavedStates, WrittenFile};
use crate::disk;
use crate::error::{StorageError, failed};
use crate::steps::Step;

/// A copy, and how it was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    /// The copy.
    pub saved_state: SavedState,
    /// Whether it shares its files with its source: damage to one is then damage to the other.
    pub shares_data: bool,
}

/// Whether the source of a copy is compared with its recorded hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// It is not: the caller has read it just before.
    Trusted,
    /// It is, unless its files have verified marks.
    Checked,
}

impl SavedStates {
    pub(crate) fn copy(
        self: &Arc<Self>,
        from: &SavedStateId,
        to: &SavedStateId,
        reading: Reading,
    ) -> Result<Copied, StorageError> {
        let source = self.load(from)?;
        if source.tree.is_some() {
            let what = "holds a tree of files, of which no copy is needed";
            return Err(StorageError::BadFile { saved_state: from.clone(), file: super::tree::ROOT.into(), what });
        }
        match self.load(to) {
            Ok(copy) if copy.facts == source.facts && copy.files == source.files => {
                let shares_data = source.files.iter().any(|file| {
                    let [one, other] = [&source.directory, &copy.directory].map(|at| at.join(&file.name));
                    is_one_file(&one, &other)
                });
                return Ok(Copied { saved_state: copy, shares_data });
            }
            Err(StorageError::Missing(_)) => {}
            Ok(_) => return Err(StorageError::Exists(to.clone())),
            Err(error) => return Err(error),
        }
        let draft = self.draft(to, 0)?;
        let mut directories = BTreeSet::new();
        for file in &source.files {
            for above in file.name.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
                directories.insert(above.to_owned());
            }
        }
        for directory in &directories {
            disk::make_directories(&draft.directory().join(directory))?;
        }
        let mut shares_data = false;
        for file in &source.files {
            let (one, other) = (source.directory.join(&file.name), draft.directory().join(&file.name));
            let shared = self.share(to, &file.name, (&one, &other))?;
            shares_data |= shared == Shared::File;
            match (reading, shared) {
                (Reading::Trusted, _) => {}
                // They have the content of the source.
                (Reading::Checked, Shared::File | Shared::Blocks) => {
                    self.check_file(from, &source.directory, file, Trust::Marks)?;
                }
                (Reading::Checked, Shared::Nothing) => {
                    self.check_file(from, draft.directory(), file, Trust::Nothing)?
                }
            }
        }
        self.steps.reach(Step::Linked)?;
        let saved_state = draft.finish(&source.facts, source.files, None, &directories)?;
        Ok(Copied { saved_state, shares_data })
    }
}

/// The part of a copied file that it has in common with its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shared {
    /// It is the same file.
    File,
    /// Its blocks, until one of the two is written to.
    Blocks,
    Nothing,
}

impl SavedStates {
    /// Gives a file of a complete saved state a second name in the draft of `to`, in `directory`.
    pub(super) fn name_again(
        &self,
        to: &SavedStateId,
        directory: &Path,
        file: &WrittenFile,
    ) -> Result<SavedStateFile, StorageError> {
        let bad = |what| StorageError::BadFile { saved_state: to.clone(), file: file.name.clone(), what };
        let path = file.shared_with.as_deref().ok_or_else(|| bad("is not shared"))?;
        if !is_inside(&file.name) || file.name.components().count() != 1 || file.name.as_os_str() == MANIFEST {
            return Err(bad("is not the name of a file in it"));
        }
        let id = path.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse().ok());
        let id: SavedStateId = id.ok_or_else(|| bad("is shared with a file of no saved state"))?;
        let source = self.load(&id)?;
        let known = source.files.iter().find(|known| Some(known.name.as_os_str()) == path.file_name());
        let known = known.filter(|known| known.bytes == file.bytes);
        let known = known.ok_or_else(|| bad("is shared with a file that its saved state does not have"))?;
        let (one, other) = (source.directory.join(&known.name), directory.join(&file.name));
        if !is_one_file(&one, path) {
            return Err(bad("is shared with a file of no saved state"));
        }
        self.check_file(&id, &source.directory, known, Trust::Marks)?;
        let shared = self.share(to, &file.name, (&one, &other))?;
        let named = SavedStateFile { name: file.name.clone(), ..known.clone() };
        if shared == Shared::Nothing {
            self.check_file(to, directory, &named, Trust::Nothing)?;
        }
        Ok(named)
    }

    /// Creates a clone of the file with the same blocks, else a hard link, else a durable copy.
    fn share(&self, copy: &SavedStateId, name: &Path, (from, to): (&Path, &Path)) -> Result<Shared, StorageError> {
        if clone_blocks(from, to)? {
            self.steps.durable(to);
            return Ok(Shared::Blocks);
        }
        let file = File::open(from).map_err(failed("open", from))?;
        match self.marks.through(&file, Some((copy, name)), || fs::hard_link(from, to)) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::TooManyLinks | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
                ) =>
            {
                fs::copy(from, to).and_then(|_| File::open(to)?.sync_all()).map_err(failed("copy", from))?;
                self.steps.durable(to);
                Ok(Shared::Nothing)
            }
            other => other.map(|()| Shared::File).map_err(failed("link", from)),
        }
    }
}

/// Returns whether `to` is now a durable clone of `from`; if not, it does not exist.
fn clone_blocks(from: &Path, to: &Path) -> Result<bool, StorageError> {
    let source = File::open(from).map_err(failed("open", from))?;
    let target =
        OpenOptions::new().write(true).create_new(true).mode(READ_ONLY).open(to).map_err(failed("make", to))?;
    match rustix::fs::ioctl_ficlone(&target, &source) {
        Ok(()) => target.sync_all().map(|()| true).map_err(failed("sync", to)),
        // Most file systems cannot share blocks. A full one may still have room for a name.
        Err(
            Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY | Errno::NOSYS | Errno::XDEV | Errno::PERM | Errno::NOSPC,
        ) => {
            disk::remove_file(to)?;
            Ok(false)
        }
        Err(error) => Err(failed("copy", from)(error)),
    }
}

fn is_one_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = |path: &Path| path.symlink_metadata().ok().map(|facts| (facts.dev(), facts.ino()));
    inode(one).is_some() && inode(one) == inode(other)
}
