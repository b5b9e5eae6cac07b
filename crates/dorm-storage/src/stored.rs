//! The list of everything on the disk that can be compared with its recorded hash, and the check of
//! one entry.

use std::fmt;
use std::path::{Path, PathBuf};

use dorm_lifecycle::{Digest, SavedStateId};

use crate::error::StorageError;
use crate::images::Images;
use crate::saved_states::{SavedState, SavedStates};

/// An object that is checked as a whole.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stored {
    /// An image that sandboxes start from.
    Image(Digest),
    /// A layer of images, by the SHA-256 of its archive: only imports read it.
    ImageLayer(String),
    /// A sleep image, or the content of a snapshot.
    SavedState(SavedStateId),
}

impl Stored {
    /// Its kind, as a word for responses.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Image(_) => "image",
            Self::ImageLayer(_) => "image_layer",
            Self::SavedState(_) => "saved_state",
        }
    }

    /// The object of that kind and name; none if the kind or the name is invalid.
    pub fn named(kind: &str, id: &str) -> Option<Self> {
        Some(match kind {
            "image" => Self::Image(id.parse().ok()?),
            // Both are 64 hexadecimal digits.
            "image_layer" => Self::ImageLayer(id.parse::<Digest>().ok()?.as_str().to_owned()),
            "saved_state" => Self::SavedState(id.parse().ok()?),
            _ => return None,
        })
    }

    /// Its name.
    pub fn id(&self) -> &str {
        match self {
            Self::Image(digest) => digest.as_str(),
            Self::ImageLayer(diff_id) => diff_id,
            Self::SavedState(id) => id.as_str(),
        }
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(digest) => write!(f, "image {digest}"),
            Self::ImageLayer(diff_id) => write!(f, "image layer {diff_id}"),
            Self::SavedState(id) => write!(f, "saved state {id}"),
        }
    }
}

/// A file that does not match its recorded hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedFile {
    /// Its path, relative to the directory of the object it is part of.
    pub file: PathBuf,
    /// The damage, a phrase whose subject is the file.
    pub what: String,
}

/// The result of the check of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// The object.
    pub stored: Stored,
    /// The total length of its files in bytes, as far as it is known.
    pub bytes: u64,
    /// The damaged files; empty if there are none.
    pub damaged: Vec<DamagedFile>,
}

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
            Err(error) => Err(error),
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
            Err(error) => Err(error),
        }
    }
}

/// The path of a file of an image, relative to the image's directory.
pub(crate) fn in_rootfs(path: &Path) -> PathBuf {
    Path::new(crate::images::ROOTFS).join(path)
}
