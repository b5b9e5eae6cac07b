//! Volumes: what a sandbox has attached, and where.
//!
//! An [`Attachment`] is a durable request and lasts as long as its sandbox.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::ids::VolumeId;

/// The maximum number of volumes attached to one sandbox.
pub const ATTACHMENTS_MAX: usize = 16;

/// The maximum length of the path of an attachment, in bytes.
const PATH_MAX: usize = 1024;

/// Paths at which nothing can be mounted: the sandbox's own file systems, and the agent's
/// directories.
const OWN: [&str; 7] = ["/proc", "/sys", "/dev", "/dorm-agent", "/.dorm-volumes", "/etc/dormouse", "/run/dormouse"];

/// How many sandboxes can write to a volume at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Writers {
    /// One sandbox; others can read at the same time. The default.
    #[default]
    One,
    /// Any number; the programs inside have to coordinate their writes.
    Many,
}

impl Writers {
    /// Returns the word for it in records and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Many => "many",
        }
    }
}

/// The access of a sandbox to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Access {
    /// Reading and writing. The default.
    #[default]
    Write,
    /// Reading only.
    Read,
}

impl Access {
    /// Returns the word for it in records and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// Why a text is not a valid mount path or subpath.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PlaceError {
    /// The path is not absolute, or not in its shortest form.
    #[error(
        "'{0}' is not a valid mount path: it must be an absolute path other than /, without '.', '..', doubled or \
         trailing slashes, at most 1024 bytes"
    )]
    Path(String),
    /// The path belongs to the sandbox itself.
    #[error("'{path}' is not a valid mount path: {own} is reserved")]
    Own {
        /// The path.
        path: String,
        /// The reserved path.
        own: &'static str,
    },
    /// The subpath leads out of the volume.
    #[error(
        "'{0}' is not a valid subpath of a volume: it must be a relative path without '.', '..' or doubled slashes"
    )]
    Part(String),
}

/// The mount point of a volume in a sandbox: an absolute path in its shortest form that is not
/// reserved.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MountPath(String);

impl MountPath {
    /// Returns the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether one of the two paths is at or below the other.
    pub fn touches(&self, other: &Self) -> bool {
        is_at_or_below(&self.0, &other.0) || is_at_or_below(&other.0, &self.0)
    }
}

impl FromStr for MountPath {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let wrong = || PlaceError::Path(text.to_owned());
        let rest = text.strip_prefix('/').ok_or_else(wrong)?;
        if text.len() > PATH_MAX || !are_names(rest) {
            return Err(wrong());
        }
        match OWN.into_iter().find(|own| is_at_or_below(text, own) || is_at_or_below(own, text)) {
            Some(own) => Err(PlaceError::Own { path: text.to_owned(), own }),
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The part of a volume to mount: a relative path in its shortest form; empty for the whole volume.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SubPath(String);

impl SubPath {
    /// Returns the path; empty for the whole volume.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is the whole volume.
    pub fn is_whole(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for SubPath {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        if text.is_empty() || (text.len() <= PATH_MAX && are_names(text)) {
            return Ok(Self(text.to_owned()));
        }
        Err(PlaceError::Part(text.to_owned()))
    }
}

impl fmt::Display for SubPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

fn are_names(text: &str) -> bool {
    text.split('/')
        .all(|name| !matches!(name, "" | "." | "..") && name.len() <= 255 && !name.contains(char::is_control))
}

fn is_at_or_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A durable request to mount a volume in every run of a sandbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Attachment {
    /// The volume.
    pub volume: VolumeId,
    /// The mount point.
    pub path: MountPath,
    /// The permitted access.
    pub access: Access,
    /// The part of the volume.
    pub subpath: SubPath,
    /// The container slot of the volume, below [`ATTACHMENTS_MAX`]: a memory image identifies the
    /// volume by it.
    pub slot: u8,
}

/// Why a set of attachments is invalid.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AttachmentError {
    /// There are too many.
    #[error("a sandbox can have {ATTACHMENTS_MAX} volumes attached, not {0}")]
    TooMany(usize),
    /// One mount point is at or below another.
    #[error("volumes cannot be mounted at '{one}' and '{other}': neither may lie in the other")]
    Nested {
        /// The first mount point.
        one: MountPath,
        /// The second mount point.
        other: MountPath,
    },
    /// A container slot is used twice, or does not exist.
    #[error("container slot {0} is not available for the volume")]
    Slot(u8),
}

/// Rejects attachments that conflict.
///
/// # Errors
///
/// The first [`AttachmentError`] found.
pub fn check_attachments(attachments: &[Attachment]) -> Result<(), AttachmentError> {
    if attachments.len() > ATTACHMENTS_MAX {
        return Err(AttachmentError::TooMany(attachments.len()));
    }
    for (at, one) in attachments.iter().enumerate() {
        if usize::from(one.slot) >= ATTACHMENTS_MAX {
            return Err(AttachmentError::Slot(one.slot));
        }
        for other in attachments.iter().skip(at + 1) {
            if one.path.touches(&other.path) {
                return Err(AttachmentError::Nested { one: one.path.clone(), other: other.path.clone() });
            }
            if one.slot == other.slot {
                return Err(AttachmentError::Slot(one.slot));
            }
        }
    }
    Ok(())
}

/// Returns the first container slot that no attachment uses.
pub fn free_slot(attachments: &[Attachment]) -> Option<u8> {
    let most = u8::try_from(ATTACHMENTS_MAX).unwrap_or(u8::MAX);
    (0..most).find(|slot| attachments.iter().all(|attachment| attachment.slot != *slot))
}

#[cfg(test)]
mod tests;
