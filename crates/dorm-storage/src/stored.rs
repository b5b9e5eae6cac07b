//! The names of the objects on the disk that can be compared with their recorded hashes, and the
//! result of such a check.

use std::fmt;
use std::path::PathBuf;

use dorm_lifecycle::{Digest, SavedStateId};

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
