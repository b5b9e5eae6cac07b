//! A second saved state with the same content. Where the file system can share blocks between files, its files are files of
//! their own, so that what happens to one of them does not happen to the other; elsewhere they are the same files.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use dorm_lifecycle::SavedStateId;
use rustix::io::Errno;

use super::{SavedState, SavedStates};
use crate::disk;
use crate::error::{StorageError, failed};
use crate::steps::{Step, Steps};

/// A copy, and how it was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    /// The copy.
    pub saved_state: SavedState,
    /// Whether its files are those of its source: damage to one is damage to the other.
    pub shares_data: bool,
}

/// Whether a copy is compared with what was written when its source was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// The caller has read the source a moment ago.
    Trusted,
    /// To the last byte.
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
            shares_data |= share(&source.directory.join(&file.name), &draft.directory().join(&file.name), &self.steps)?;
        }
        if reading == Reading::Checked {
            self.check_files(from, draft.directory(), &source.files)?;
        }
        self.steps.reach(Step::Linked)?;
        let saved_state = draft.finish(&source.facts, source.files, None, &directories)?;
        Ok(Copied { saved_state, shares_data })
    }
}

/// A file of its own with the same blocks, else a hard link, else a durable copy. Answers whether it is the same file.
fn share(from: &Path, to: &Path, steps: &Steps) -> Result<bool, StorageError> {
    if clone_blocks(from, to)? {
        steps.durable(to);
        return Ok(false);
    }
    match fs::hard_link(from, to) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::TooManyLinks | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
            ) =>
        {
            fs::copy(from, to).and_then(|_| File::open(to)?.sync_all()).map_err(failed("copy", from))?;
            steps.durable(to);
            Ok(false)
        }
        other => other.map(|()| true).map_err(failed("link", from)),
    }
}

/// Whether the file system could make `to` a durable file of the blocks of `from`; if not, there is none.
fn clone_blocks(from: &Path, to: &Path) -> Result<bool, StorageError> {
    let source = File::open(from).map_err(failed("open", from))?;
    let target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(failed("make", to))?;
    match rustix::fs::ioctl_ficlone(&target, &source) {
        Ok(()) => target.sync_all().map(|()| true).map_err(failed("sync", to)),
        // Most file systems share nothing. One that is full may still have room for a name.
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
