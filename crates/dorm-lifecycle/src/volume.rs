//! Volumes: what a sandbox wishes to have mounted, which of its runs has it, and who may.
//!
//! An [`Attachment`] is a wish and lasts as long as its sandbox. A [`Lease`] is what one run has of it. Leases are not
//! recorded: a sandbox that is on record with a run *is* the holder of its attachments' leases ([`leases`]), so none can
//! outlive the run, whatever dies when.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::background::BackgroundWork;
use crate::ids::{Name, RunId, VolumeId};
use crate::sandbox::{Sandbox, State};

/// How many volumes one sandbox may have attached.
pub const ATTACHMENTS_MAX: usize = 16;

/// How long the path of an attachment may be, in bytes.
const PATH_MAX: usize = 1024;

/// Where nothing is mounted: the sandbox's own file systems, and what belongs to the agent.
const OWN: [&str; 7] = ["/proc", "/sys", "/dev", "/dorm-agent", "/.dorm-volumes", "/etc/dormouse", "/run/dormouse"];

/// How many may write to a volume at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Writers {
    /// One sandbox; others may read meanwhile. The default.
    #[default]
    One,
    /// Any number: the programs inside see to it that they do not get in each other's way.
    Many,
}

impl Writers {
    /// Its word in records and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Many => "many",
        }
    }
}

/// What a sandbox may do with a volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Access {
    /// Read and write. The default.
    #[default]
    Write,
    /// Only read.
    Read,
}

impl Access {
    /// Its word in records and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// Why a text is no place for a volume.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PlaceError {
    /// Not absolute, or not in its shortest form.
    #[error(
        "'{0}' is not a place for a volume: it must be an absolute path other than /, without '.', '..', doubled or \
         closing slashes, at most 1024 bytes"
    )]
    Path(String),
    /// It belongs to the sandbox itself.
    #[error("'{path}' is not a place for a volume: {own} is the sandbox's own")]
    Own {
        /// The path.
        path: String,
        /// What is there.
        own: &'static str,
    },
    /// A part of a volume that leads out of it.
    #[error("'{0}' is not a part of a volume: it must be a relative path without '.', '..' or doubled slashes")]
    Part(String),
}

/// Where in a sandbox a volume appears: an absolute path in its shortest form, not one of the sandbox's own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MountPath(String);

impl MountPath {
    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether one of the two lies in the other, or both are the same.
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

/// The part of a volume that is meant: a relative path in its shortest form, or all of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SubPath(String);

impl SubPath {
    /// The path; empty for all of the volume.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether all of the volume is meant.
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

/// The durable wish of a sandbox to have a volume mounted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Attachment {
    /// Which volume.
    pub volume: VolumeId,
    /// Where it appears.
    pub path: MountPath,
    /// What may be done with it.
    pub access: Access,
    /// Which part of it.
    pub subpath: SubPath,
    /// Which of the sandbox's places for volumes it has, below [`ATTACHMENTS_MAX`]: a memory image remembers it by that.
    pub slot: u8,
}

/// Why attachments cannot be together.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AttachmentError {
    /// Too many.
    #[error("a sandbox can have {ATTACHMENTS_MAX} volumes attached, not {0}")]
    TooMany(usize),
    /// One would hide the other.
    #[error("two volumes cannot be at '{one}' and '{other}': neither may lie in the other")]
    Nested {
        /// The one.
        one: MountPath,
        /// The other.
        other: MountPath,
    },
    /// Two of the same slot, or a slot that is none.
    #[error("the place numbered {0} is not free for the volume")]
    Slot(u8),
}

/// Refuses attachments that cannot be together.
///
/// # Errors
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

/// The first place that none of `attachments` has.
pub fn free_slot(attachments: &[Attachment]) -> Option<u8> {
    let most = u8::try_from(ATTACHMENTS_MAX).unwrap_or(u8::MAX);
    (0..most).find(|slot| attachments.iter().all(|attachment| attachment.slot != *slot))
}

/// One run's actual mount of a volume.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    /// Which volume.
    pub volume: VolumeId,
    /// The run that has it.
    pub run: RunId,
    /// The name of its sandbox.
    pub name: Option<Name>,
    /// What it may do.
    pub access: Access,
}

impl Lease {
    /// Who has it, for people.
    pub fn holder(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} ({})", self.run.sandbox),
            None => self.run.sandbox.to_string(),
        }
    }
}

/// Whether a sandbox in this state has the leases of its attachments: from before its run begins until it is known to
/// have ended or to stand still for good. The run of a suspended one that is taken back to a snapshot begins as soon as that
/// is prepared, whoever else wants the volumes meanwhile.
pub fn has_leases(state: &State) -> bool {
    match state {
        State::Suspended { background: Some(background), .. } => {
            matches!(background.work, BackgroundWork::PrepareRewind(_))
        }
        State::Pending { .. }
        | State::Running { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Resuming { .. } => true,
        State::Terminating { unleased, .. } => !unleased,
        State::Suspended { background: None, .. } | State::Terminated { .. } => false,
    }
}

/// The leases that a sandbox has now.
pub fn leases(sandbox: &Sandbox) -> Vec<Lease> {
    match has_leases(&sandbox.state) {
        true => all_leases(sandbox),
        false => Vec::new(),
    }
}

/// The leases that a sandbox has while a run of it may be left, whatever its state says.
pub fn all_leases(sandbox: &Sandbox) -> Vec<Lease> {
    let lease = |attachment: &Attachment| Lease {
        volume: attachment.volume.clone(),
        run: sandbox.run_id(),
        name: sandbox.spec.name.clone(),
        access: attachment.access,
    };
    sandbox.attachments().map(lease).collect()
}

/// Why a lease is not granted.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the volume is written to by sandbox {holder}, and it takes one writer at a time")]
pub struct LeaseRefused {
    /// Who writes.
    pub holder: String,
    /// The lease of that.
    pub lease: Lease,
}

/// Grants `wanted`, or names the one who stands in its way: a second writer of a volume that takes one. A sandbox never
/// stands in its own way.
///
/// # Errors
/// [`LeaseRefused`].
pub fn grant(writers: Writers, wanted: &Lease, held: &[Lease]) -> Result<(), LeaseRefused> {
    let (Writers::One, Access::Write) = (writers, wanted.access) else { return Ok(()) };
    let other = held.iter().find(|lease| {
        lease.volume == wanted.volume && lease.access == Access::Write && lease.run.sandbox != wanted.run.sandbox
    });
    match other {
        Some(lease) => Err(LeaseRefused { holder: lease.holder(), lease: lease.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
