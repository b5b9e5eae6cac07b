//! Lists everything on the disk that can be compared with its recorded hash, and checks one object.

use std::path::Path;

use dorm_lifecycle::{Digest, SavedStateId};

use crate::error::StorageError;
use crate::images::{Images, in_rootfs};
use crate::saved_states::{SavedState, SavedStates};
use crate::stored::{Checked, DamagedFile, Stored};

pub(crate) fn list(saved_states: &SavedStates, images: &Images) -> Result<Vec<Stored>, StorageError> {
    let mut all: Vec<Stored> = images.digests()?.into_iter().map(Stored::Image).collect();
    all.extend(images.layer_names()?.into_iter().map(Stored::ImageLayer));
    all.extend(saved_states.list()?.into_iter().map(Stored::SavedState));
    Ok(all)
}

/// Reads one object to its last byte; none if it no longer exists.
pub(crate) fn check(
    saved_states: &SavedStates,
    images: &Images,
    stored: &Stored,
) -> Result<Option<Checked>, StorageError> {
    let checked = match stored {
        Stored::Image(digest) => images.check(digest),
        Stored::ImageLayer(diff_id) => Ok(images.check_layer(diff_id)?.map(|(bytes, is_sound)| {
            let what = "has other files than were unpacked; it was set aside and is fetched again when it is needed";
            let damaged = (!is_sound).then(|| DamagedFile { file: "tree".into(), what: what.to_owned() });
            (bytes, damaged.into_iter().collect())
        })),
        Stored::SavedState(id) => saved_states.check(id),
    };
    match checked {
        Ok(checked) => Ok(checked.map(|(bytes, damaged)| Checked { stored: stored.clone(), bytes, damaged })),
        // An object that is being removed looks damaged.
        Err(_) if !list(saved_states, images)?.contains(stored) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Images {
    fn check(&self, digest: &Digest) -> Result<Option<(u64, Vec<DamagedFile>)>, StorageError> {
        let bytes = self.get(digest).map_or(0, |image| image.bytes);
        match self.verify(digest) {
            Ok(_) => Ok(Some((bytes, Vec::new()))),
            Err(StorageError::NoImage { .. }) => Ok(None),
            Err(StorageError::DamagedImage { .. }) if !self.has(digest) => Ok(None),
            Err(StorageError::DamagedImage { file, what, .. }) => {
                let others = self.damage(digest).into_iter();
                let others = others.map(|other| DamagedFile { file: in_rootfs(&other.path), what: other.what });
                let mut damaged: Vec<_> = others.collect();
                if damaged.is_empty() {
                    damaged.push(DamagedFile { file, what });
                }
                Ok(Some((bytes, damaged)))
            }
            Err(error) => unread(error, &self.path(digest)).map(|file| Some((bytes, vec![file]))),
        }
    }
}

impl SavedStates {
    fn check(&self, id: &SavedStateId) -> Result<Option<(u64, Vec<DamagedFile>)>, StorageError> {
        let saved_state = self.load(id);
        let bytes = saved_state.as_ref().map_or(0, SavedState::bytes);
        match saved_state.and_then(|saved_state| self.check_content(&saved_state)) {
            Ok(()) => Ok(Some((bytes, Vec::new()))),
            Err(StorageError::Missing(_)) => Ok(None),
            Err(StorageError::Damaged { .. }) if !self.has(id) => Ok(None),
            Err(StorageError::Damaged { file, what, .. }) => Ok(Some((bytes, vec![DamagedFile { file, what }]))),
            Err(error) => unread(error, &self.path(id, "")).map(|file| Some((bytes, vec![file]))),
        }
    }
}

/// Returns the file below `directory` that the disk cannot read. It is reported like damage, to be
/// seen, and is read again whenever it is needed.
fn unread(error: StorageError, directory: &Path) -> Result<DamagedFile, StorageError> {
    match error.unread() {
        None => Err(error),
        Some((path, cause)) => {
            let file = path.strip_prefix(directory).unwrap_or(path).to_owned();
            Ok(DamagedFile { file, what: format!("cannot be read ({cause})") })
        }
    }
}
