//! Everything on the disk that can be compared with what was written, one after the other.

use std::fmt;
use std::path::{Path, PathBuf};

use dorm_lifecycle::{CaptureId, Digest};

use crate::captures::{Capture, Captures};
use crate::error::PoolError;
use crate::images::Images;

/// One thing that is checked as a whole.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stored {
    /// An image that sandboxes start from.
    Image(Digest),
    /// A layer of images, by the SHA-256 of its archive: only imports read it.
    ImageLayer(String),
    /// A sleep image, or the content of a snapshot.
    Capture(CaptureId),
}

impl Stored {
    /// What kind of thing it is, in a word for answers.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Image(_) => "image",
            Self::ImageLayer(_) => "image_layer",
            Self::Capture(_) => "capture",
        }
    }

    /// The thing of that kind and name; none when there can be no such thing.
    pub fn named(kind: &str, id: &str) -> Option<Self> {
        Some(match kind {
            "image" => Self::Image(id.parse().ok()?),
            // Both are 64 hexadecimal digits.
            "image_layer" => Self::ImageLayer(id.parse::<Digest>().ok()?.as_str().to_owned()),
            "capture" => Self::Capture(id.parse().ok()?),
            _ => return None,
        })
    }

    /// Its name.
    pub fn id(&self) -> &str {
        match self {
            Self::Image(digest) => digest.as_str(),
            Self::ImageLayer(diff_id) => diff_id,
            Self::Capture(id) => id.as_str(),
        }
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(digest) => write!(f, "image {digest}"),
            Self::ImageLayer(diff_id) => write!(f, "image layer {diff_id}"),
            Self::Capture(id) => write!(f, "capture {id}"),
        }
    }
}

/// A file that is not what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedFile {
    /// Which, relative to the directory of what it is part of.
    pub file: PathBuf,
    /// What is wrong with it, a phrase whose subject it is.
    pub what: String,
}

/// What was found of one thing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// Which.
    pub stored: Stored,
    /// How long its files are together, in bytes, as far as that is known.
    pub bytes: u64,
    /// What is not as it was written; nothing when all is.
    pub damaged: Vec<DamagedFile>,
}

pub(crate) fn list(captures: &Captures, images: &Images) -> Result<Vec<Stored>, PoolError> {
    let mut all: Vec<Stored> = images.digests()?.into_iter().map(Stored::Image).collect();
    all.extend(images.layer_names()?.into_iter().map(Stored::ImageLayer));
    all.extend(captures.list()?.into_iter().map(Stored::Capture));
    Ok(all)
}

/// Reads one thing to its last byte; none when it is not there any more.
pub(crate) fn check(captures: &Captures, images: &Images, stored: &Stored) -> Result<Option<Checked>, PoolError> {
    let checked = match stored {
        Stored::Image(digest) => images.check(digest),
        Stored::ImageLayer(diff_id) => Ok(images.check_layer(diff_id)?.map(|(bytes, is_sound)| {
            let what = "has other files than were unpacked; it was set aside and is fetched again when it is needed";
            let damaged = (!is_sound).then(|| DamagedFile { file: "tree".into(), what: what.to_owned() });
            (bytes, damaged.into_iter().collect())
        })),
        Stored::Capture(id) => captures.check(id),
    };
    match checked {
        Ok(checked) => Ok(checked.map(|(bytes, damaged)| Checked { stored: stored.clone(), bytes, damaged })),
        // Something that is being removed looks like something damaged.
        Err(_) if !list(captures, images)?.contains(stored) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Images {
    fn check(&self, digest: &Digest) -> Result<Option<(u64, Vec<DamagedFile>)>, PoolError> {
        let bytes = self.get(digest).map_or(0, |image| image.bytes);
        match self.verify(digest) {
            Ok(_) => Ok(Some((bytes, Vec::new()))),
            Err(PoolError::NoImage { .. }) => Ok(None),
            Err(PoolError::DamagedImage { .. }) if !self.has(digest) => Ok(None),
            Err(PoolError::DamagedImage { file, what, .. }) => {
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

impl Captures {
    fn check(&self, id: &CaptureId) -> Result<Option<(u64, Vec<DamagedFile>)>, PoolError> {
        let capture = self.load(id);
        let bytes = capture.as_ref().map_or(0, Capture::bytes);
        match capture.and_then(|capture| self.check_content(&capture)) {
            Ok(()) => Ok(Some((bytes, Vec::new()))),
            Err(PoolError::Missing(_)) => Ok(None),
            Err(PoolError::Damaged { .. }) if !self.has(id) => Ok(None),
            Err(PoolError::Damaged { file, what, .. }) => Ok(Some((bytes, vec![DamagedFile { file, what }]))),
            Err(error) => Err(error),
        }
    }
}

/// Where a file of an image is, below the image's own directory.
pub(crate) fn in_rootfs(path: &Path) -> PathBuf {
    Path::new(crate::images::ROOTFS).join(path)
}
