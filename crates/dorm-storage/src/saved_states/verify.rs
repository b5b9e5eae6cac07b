//! Checks whether a saved state is undamaged, and whether this host can use it.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use dorm_lifecycle::{Digest, SavedStateId};

use super::diff::View;
use super::draft::open_regular;
use super::flatten::merge;
use super::tree::{LISTING, ROOT};
use super::{Below, Expected, Listed, SavedState, SavedStateFile, SavedStates, listing, tree_check};
use crate::error::{StorageError, failed};
use crate::hashing::hash_file;

/// The maximum number of filesystem saved states based on each other: a limit for reading, not a
/// promise.
const LAYERS_MAX: usize = 64;

impl SavedStates {
    pub(crate) fn verify(
        &self,
        id: &SavedStateId,
        on: &Expected,
        has_image: &dyn Fn(&Digest) -> Result<bool, StorageError>,
    ) -> Result<SavedState, StorageError> {
        let saved_state = self.load(id)?;
        let facts = &saved_state.facts;
        // The cheap checks first: each failure is final.
        let rows =
            [("engine", &on.engine, &facts.engine), ("build", &on.build, &facts.build), ("cpu", &on.cpu, &facts.cpu)];
        // Filesystem saved states do not depend on the host.
        for (what, has, needs) in rows.into_iter().filter(|_| saved_state.tree.is_none()) {
            if has != needs {
                let (has, needs) = (has.clone(), needs.clone());
                return Err(StorageError::Incompatible { saved_state: id.clone(), what, has, needs });
            }
        }
        if !has_image(&facts.image)? {
            return Err(StorageError::MissingImage { saved_state: id.clone(), image: facts.image.clone() });
        }
        self.check_content(&saved_state)?;
        Ok(saved_state)
    }

    /// Returns the filesystem saved states from `top` down, the topmost first. Each is read to its
    /// last byte the first time it is asked for.
    pub(crate) fn layers(&self, top: &SavedStateId) -> Result<Vec<SavedState>, StorageError> {
        let mut layers = Vec::new();
        let mut next = Some(top.clone());
        while let Some(id) = next {
            let saved_state = self.load(&id)?;
            if saved_state.tree.is_none() || layers.len() == LAYERS_MAX {
                let what = "is no saved state of files that others can stand on".to_owned();
                return Err(StorageError::Damaged { saved_state: id, file: ROOT.into(), what });
            }
            next = saved_state.facts.layer.clone();
            if !self.trusted().contains(&id) {
                self.check_content(&saved_state)?;
                self.trusted().insert(id);
            }
            layers.push(saved_state);
        }
        Ok(layers)
    }

    /// Returns the base that consists of the image at `image` and the layers from `top` down.
    pub(crate) fn below(&self, image: PathBuf, top: Option<&SavedStateId>) -> Result<Below, StorageError> {
        let mut listings = Vec::new();
        if let Some(top) = top {
            for layer in self.layers(top)?.iter().rev() {
                listings.push(self.listing(layer)?);
            }
        }
        let changes = merge(&listings).map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what));
        let changes = changes.map_err(failed("read the changes on", &image))?;
        Ok(Below(Some(View { changes, image: Cow::Owned(image), ids: self.ids })))
    }

    /// Returns the number of filesystem saved states from `top` down.
    pub(crate) fn depth(&self, top: &SavedStateId) -> Result<usize, StorageError> {
        let (mut depth, mut next) = (0, Some(top.clone()));
        while let Some(id) = next.filter(|_| depth < LAYERS_MAX) {
            next = self.load(&id)?.facts.layer;
            depth += 1;
        }
        Ok(depth)
    }

    /// Returns the entries in the tree of a filesystem saved state.
    pub(crate) fn listing(&self, saved_state: &SavedState) -> Result<Vec<Listed>, StorageError> {
        let path = saved_state.directory.join(LISTING);
        let damaged = |what| StorageError::Damaged { saved_state: saved_state.id.clone(), file: LISTING.into(), what };
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(damaged("is missing".to_owned())),
            other => other.map_err(failed("open", &path))?,
        };
        listing::read(BufReader::with_capacity(64 << 10, file)).map_err(damaged)
    }

    /// Reads a saved state to its last byte, also one that this host cannot use. A damaged one is
    /// no longer trusted.
    pub(crate) fn check_content(&self, saved_state: &SavedState) -> Result<(), StorageError> {
        self.read_content(saved_state).inspect_err(|error| {
            if matches!(error, StorageError::Damaged { .. }) {
                self.trusted().remove(&saved_state.id);
            }
        })
    }

    /// Reads the files in `directory` and checks that they are those of the saved state `id`.
    pub(super) fn check_files(
        &self,
        id: &SavedStateId,
        directory: &Path,
        files: &[SavedStateFile],
    ) -> Result<(), StorageError> {
        files.iter().try_for_each(|file| {
            check_file(directory, file).map_err(|wrong| match wrong {
                Wrong::Damaged(what) => {
                    StorageError::Damaged { saved_state: id.clone(), file: file.name.clone(), what }
                }
                Wrong::Unread(error) => StorageError::io("read", &directory.join(&file.name), error),
            })
        })
    }

    fn read_content(&self, saved_state: &SavedState) -> Result<(), StorageError> {
        let id = &saved_state.id;
        self.check_files(id, &saved_state.directory, &saved_state.files)?;
        if saved_state.tree.is_none() {
            return Ok(());
        }
        self.own(saved_state)?;
        tree_check::check(&saved_state.directory, &self.listing(saved_state)?, self.ids).map_err(|wrong| match wrong {
            tree_check::Wrong::Damaged(path, what) => {
                let file = Path::new(ROOT).join(listing::text(&path));
                StorageError::Damaged { saved_state: id.clone(), file, what }
            }
            tree_check::Wrong::Unread(error) => StorageError::io("read", &saved_state.root(), error),
        })
    }
}

enum Wrong {
    /// A phrase whose subject is the file.
    Damaged(String),
    /// It could not be read; whether it is damaged is unknown.
    Unread(io::Error),
}

fn check_file(directory: &Path, expected: &SavedStateFile) -> Result<(), Wrong> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Wrong::Damaged("is missing".to_owned()),
        io::ErrorKind::UnexpectedEof => Wrong::Damaged("is shorter than it was".to_owned()),
        // The disk has lost the data.
        _ if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
            Wrong::Damaged(format!("cannot be read ({error})"))
        }
        _ => Wrong::Unread(error),
    };
    let Some(file) = open_regular(&directory.join(&expected.name)).map_err(unreadable)? else {
        return Err(Wrong::Damaged("is not a regular file any more".to_owned()));
    };
    let bytes = file.metadata().map_err(unreadable)?.len();
    if bytes != expected.bytes {
        return Err(Wrong::Damaged(format!("has {bytes} bytes instead of {}", expected.bytes)));
    }
    let hash = hash_file(&file, bytes).map_err(unreadable)?;
    if hash.to_hex().as_str() != expected.blake3 {
        return Err(Wrong::Damaged("has other content than was written".to_owned()));
    }
    Ok(())
}
