//! What can be wrong with a volume, for its callers.

use std::io::ErrorKind;

use dorm_lifecycle::{LeaseRefused, MountPath, Name, PlaceError, SandboxId};
use dorm_store::Code;
use dorm_volume::VolumeError;
use thiserror::Error;

/// Why something could not be done with a volume.
#[derive(Debug, Error)]
pub enum VolumeProblem {
    /// No volume has this id or name.
    #[error("there is no volume '{0}'")]
    NoVolume(String),
    /// Another volume has the name.
    #[error("the name '{0}' is taken by another volume")]
    NameTaken(Name),
    /// The size cannot be.
    #[error("a volume of {asked} bytes cannot be: it must have {least} to {most}")]
    Size {
        /// What was asked for.
        asked: u64,
        /// The least possible.
        least: u64,
        /// The most possible.
        most: u64,
    },
    /// Sandboxes have it or want it.
    #[error("volume '{volume}' is attached to {}", held_by.join(", "))]
    InUse {
        /// Which.
        volume: Name,
        /// Who.
        held_by: Vec<String>,
    },
    /// Somebody else has what only one may have.
    #[error("cannot mount volume '{volume}'")]
    Taken {
        /// Which.
        volume: Name,
        /// Who.
        #[source]
        refused: LeaseRefused,
    },
    /// It cannot be at that place.
    #[error("cannot attach a volume")]
    Place(#[from] PlaceError),
    /// Nothing is attached there.
    #[error("sandbox {sandbox} has no volume at '{path}'")]
    NotAttached {
        /// Which sandbox.
        sandbox: SandboxId,
        /// Where.
        path: MountPath,
    },
    /// Its files cannot be used.
    #[error("cannot use volume '{volume}'")]
    Broken {
        /// Which.
        volume: Name,
        /// Why.
        #[source]
        source: VolumeError,
    },
}

impl VolumeProblem {
    /// Its kind.
    pub fn code(&self) -> Code {
        match self {
            Self::NoVolume(_) => Code::NotFound,
            Self::NameTaken(_) | Self::InUse { .. } | Self::Taken { .. } | Self::NotAttached { .. } => Code::Conflict,
            Self::Size { .. } | Self::Place(_) => Code::InvalidArgument,
            Self::Broken { source, .. } => match source.path_kind() {
                Some(ErrorKind::NotFound) => Code::NotFound,
                Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Code::NoRoom,
                Some(_) => Code::InvalidArgument,
                None => match source {
                    VolumeError::Gone { .. } => Code::Damaged,
                    VolumeError::Disk { source, .. } if source.is_no_room() => Code::NoRoom,
                    VolumeError::Host { source, .. }
                        if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
                    {
                        Code::NoRoom
                    }
                    _ => Code::Failed,
                },
            },
        }
    }

    /// What the caller can do next.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::NoVolume(_) => "list the volumes that are there",
            Self::NameTaken(_) => "choose another name",
            Self::Size { .. } | Self::Place(_) => "",
            Self::InUse { .. } => "detach it from those, or terminate them, first",
            Self::Taken { .. } => {
                "attach it read-only (a fork or a clone: with `--volumes read-only` or `none`), suspend or end the other, \
                 or use a volume that many may write to"
            }
            Self::NotAttached { .. } => "describe the sandbox to see what is attached to it",
            Self::Broken { source: VolumeError::Path { .. }, .. } => "",
            Self::Broken { .. } => "look at the volume with `dorm volume describe`, and at the daemon's log",
        }
    }
}
