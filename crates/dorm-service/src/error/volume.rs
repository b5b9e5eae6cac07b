//! Volume errors for callers.

use std::io::ErrorKind;

use dorm_lifecycle::{LeaseRefused, MountPath, Name, PlaceError, SandboxId};
use dorm_store::Code;
use dorm_volume::VolumeError;
use thiserror::Error;

/// The reason why an operation on a volume failed.
#[derive(Debug, Error)]
pub enum VolumeProblem {
    /// No volume has this id or name.
    #[error("there is no volume '{0}'")]
    NoVolume(String),
    /// Another volume has the name.
    #[error("the name '{0}' is taken by another volume")]
    NameTaken(Name),
    /// The requested size is out of range.
    #[error("invalid volume size {asked}: it must be {least} to {most} bytes")]
    Size {
        /// The requested size in bytes.
        asked: u64,
        /// The smallest size in bytes.
        least: u64,
        /// The largest size in bytes.
        most: u64,
    },
    /// The volume is attached to sandboxes.
    #[error("volume '{volume}' is attached to {}", held_by.join(", "))]
    InUse {
        /// The volume.
        volume: Name,
        /// The sandboxes.
        held_by: Vec<String>,
    },
    /// Another run has a mount of the volume that excludes this one.
    #[error("cannot mount volume '{volume}'")]
    Taken {
        /// The volume.
        volume: Name,
        /// The conflicting lease.
        #[source]
        refused: LeaseRefused,
    },
    /// The mount path cannot be used.
    #[error("cannot attach a volume")]
    Place(#[from] PlaceError),
    /// Nothing is attached at this path.
    #[error("sandbox {sandbox} has no volume at '{path}'")]
    NotAttached {
        /// The sandbox.
        sandbox: SandboxId,
        /// The path.
        path: MountPath,
    },
    /// The files of the volume cannot be used.
    #[error("cannot use volume '{volume}'")]
    Broken {
        /// The volume.
        volume: Name,
        /// The cause.
        #[source]
        source: VolumeError,
    },
}

impl VolumeProblem {
    /// Returns the kind of the error.
    pub fn code(&self) -> Code {
        match self {
            Self::NoVolume(_) => Code::NotFound,
            Self::NameTaken(_) | Self::InUse { .. } | Self::Taken { .. } | Self::NotAttached { .. } => Code::Conflict,
            Self::Size { .. } | Self::Place(_) => Code::InvalidArgument,
            Self::Broken { source, .. } => match source.path_kind() {
                Some(ErrorKind::NotFound) => Code::NotFound,
                Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Code::NoRoom,
                Some(ErrorKind::AlreadyExists | ErrorKind::ResourceBusy) => Code::Conflict,
                Some(_) => Code::InvalidArgument,
                None => match source {
                    VolumeError::Gone { .. } => Code::Damaged,
                    VolumeError::TooMany { .. } => Code::InvalidArgument,
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

    /// Returns what the caller can do next, as a sentence; empty if the message already says it.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::NoVolume(_) => "list the existing volumes",
            Self::NameTaken(_) => "choose another name",
            Self::Size { .. } | Self::Place(_) => "",
            Self::InUse { .. } => "detach it from those sandboxes first, or terminate them",
            Self::Taken { .. } => {
                "attach it read-only (a fork or a clone: with `--volumes read-only` or `none`), suspend or terminate \
                 the other, or use a volume that allows many writers"
            }
            Self::NotAttached { .. } => "describe the sandbox to see what is attached to it",
            Self::Broken { source: VolumeError::Path { .. } | VolumeError::TooMany { .. }, .. } => "",
            Self::Broken { .. } => "check the volume with `dorm volume describe`, and the daemon's log",
        }
    }
}
