//! Checks whether a saved state is undamaged, and whether this host can use it.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use dorm_lifecycle::{Digest, SavedStateId};

use super::diff::View;
use super::draft::open_regular;
use super::flatten::merge;
use super::marks::{Mark, Observed};
use super::tree::{LISTING, ROOT};
use super::{Below, Expected, Listed, SavedState, SavedStateFile, SavedStates, listing, tree_check};
use crate::error::{StorageError, failed};
use crate::hashing::hash_file;
use crate::reread::Reread;

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
        match saved_state.tree {
            None => self.check_files(&saved_state, Trust::Marks)?,
            Some(_) => self.check_content(&saved_state)?,
        }
        Ok(saved_state)
    }

    pub(crate) fn verify_files(&self, id: &SavedStateId, names: &[String]) -> Result<(), StorageError> {
        let saved_state = match self.load(id) {
            Err(StorageError::Missing(_) | StorageError::Damaged { .. }) => return Ok(()),
            other => other?,
        };
        let is_named = |file: &SavedStateFile| names.iter().any(|name| file.name == Path::new(name));
        let files = saved_state.files.iter().filter(|file| is_named(file)).cloned().collect();
        self.check_files(&SavedState { files, ..saved_state }, Trust::Marks)
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

    /// Has `top` and all layers below it read again the next time.
    pub(crate) fn distrust(&self, top: &SavedStateId) -> Result<(), StorageError> {
        let (mut left, mut next) = (LAYERS_MAX, Some(top.clone()));
        while let Some(id) = next.filter(|_| left > 0) {
            self.trusted().remove(&id);
            next = self.load(&id)?.facts.layer;
            left -= 1;
        }
        Ok(())
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
        Self::listing_in(&saved_state.directory, &saved_state.id)
    }

    /// Returns the entries in the tree in `directory`, which is that of `id`.
    pub(super) fn listing_in(directory: &Path, id: &SavedStateId) -> Result<Vec<Listed>, StorageError> {
        let path = directory.join(LISTING);
        let damaged = |what| StorageError::Damaged { saved_state: id.clone(), file: LISTING.into(), what };
        let wrong = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidData => damaged(error.to_string()),
            _ => failed("read", &path)(error),
        };
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(damaged("is missing".to_owned())),
            other => other.map_err(failed("open", &path))?,
        };
        listing::read(BufReader::with_capacity(64 << 10, Reread(file))).map_err(wrong)
    }

    /// Reads a saved state to its last byte, also one that this host cannot use. A damaged one is
    /// no longer trusted.
    pub(crate) fn check_content(&self, saved_state: &SavedState) -> Result<(), StorageError> {
        let read = self.check_files(saved_state, Trust::Nothing).and_then(|()| self.check_tree(saved_state));
        read.inspect_err(|error| {
            if matches!(error, StorageError::Damaged { .. }) {
                self.trusted().remove(&saved_state.id);
            }
        })
    }

    /// Checks the files of a saved state except its tree, and marks those that it reads. A damaged
    /// one has no marks afterwards.
    pub(super) fn check_files(&self, saved_state: &SavedState, trust: Trust) -> Result<(), StorageError> {
        let SavedState { id, directory, files, .. } = saved_state;
        files.iter().try_for_each(|file| self.check_file(id, directory, file, trust)).inspect_err(|error| {
            if matches!(error, StorageError::Damaged { .. }) {
                self.marks.distrust(saved_state);
            }
        })
    }

    /// Checks one of the files of the saved state `id`, in `directory`.
    pub(super) fn check_file(
        &self,
        id: &SavedStateId,
        directory: &Path,
        expected: &SavedStateFile,
        trust: Trust,
    ) -> Result<(), StorageError> {
        let checked = open_file(directory, expected).and_then(|file| {
            if trust == Trust::Marks && self.marks.holds(id, expected, &file) {
                return Ok(());
            }
            if let Some(mark) = read_file(&file, expected)? {
                self.marks.keep(id, &expected.name, mark);
            }
            Ok(())
        });
        checked.map_err(|wrong| match wrong {
            Wrong::Damaged(what) => {
                StorageError::Damaged { saved_state: id.clone(), file: expected.name.clone(), what }
            }
            Wrong::Unread(error) => StorageError::io("read", &directory.join(&expected.name), error),
        })
    }

    fn check_tree(&self, saved_state: &SavedState) -> Result<(), StorageError> {
        let id = &saved_state.id;
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

/// The evidence that a check may rely on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    /// On marks: a file that has one is not read.
    Marks,
    /// On nothing: every file is read to its last byte.
    Nothing,
}

enum Wrong {
    /// A phrase whose subject is the file.
    Damaged(String),
    /// It could not be read; whether it is damaged is unknown.
    Unread(io::Error),
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Damaged("is missing".to_owned()),
            io::ErrorKind::UnexpectedEof => Self::Damaged("is shorter than it was".to_owned()),
            _ => Self::Unread(error),
        }
    }
}

/// Opens a file and compares its length.
fn open_file(directory: &Path, expected: &SavedStateFile) -> Result<File, Wrong> {
    let Some(file) = open_regular(&directory.join(&expected.name))? else {
        return Err(Wrong::Damaged("is not a regular file any more".to_owned()));
    };
    let bytes = file.metadata()?.len();
    if bytes != expected.bytes {
        return Err(Wrong::Damaged(format!("has {bytes} bytes instead of {}", expected.bytes)));
    }
    Ok(file)
}

/// Reads a file to its last byte and compares its hash.
fn read_file(file: &File, expected: &SavedStateFile) -> Result<Option<Mark>, Wrong> {
    let observed = Observed::begin(file);
    let hash = hash_file(file, expected.bytes)?;
    if hash.to_hex().as_str() != expected.blake3 {
        return Err(Wrong::Damaged("has other content than was written".to_owned()));
    }
    Ok(observed.end(file, &expected.blake3))
}
