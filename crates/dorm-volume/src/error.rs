//! Errors of volume files.

use std::io;
use std::path::{Path, PathBuf};

use dorm_disk::DiskError;
use dorm_lifecycle::VolumeId;
use thiserror::Error;

/// Why an operation on a volume failed.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// The files of the volume are missing.
    #[error("the files of volume {id} are gone: there is no {}", path.display())]
    Gone {
        /// The volume.
        id: VolumeId,
        /// The missing path.
        path: PathBuf,
    },
    /// The files of the volume already exist.
    #[error("the files of volume {0} already exist")]
    Exists(VolumeId),
    /// The underlying disk failed.
    #[error("cannot {operation} volume {id}")]
    Disk {
        /// The operation.
        operation: &'static str,
        /// The volume.
        id: VolumeId,
        /// The cause.
        #[source]
        source: DiskError,
    },
    /// Data that was written to the volume is lost, now or earlier.
    #[error(
        "volume {id} has lost writes: {cause}. Files in it may be damaged: copy what you need out of it, detach it, and delete it"
    )]
    LostWrites {
        /// The volume.
        id: VolumeId,
        /// The cause.
        cause: String,
    },
    /// A path in the volume cannot be used.
    #[error("cannot {operation} '{path}' in volume {id}")]
    Path {
        /// The operation.
        operation: &'static str,
        /// The volume.
        id: VolumeId,
        /// The path, relative to the top of the volume.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// There are more entries than one answer holds.
    #[error(
        "cannot list '{path}' in volume {id}: it has more than {most} entries, or too long names; list its directories one by one, or with less depth"
    )]
    TooMany {
        /// The volume.
        id: VolumeId,
        /// The path, relative to the top of the volume.
        path: String,
        /// The most entries of an answer.
        most: usize,
    },
    /// A path of the host cannot be used.
    #[error("cannot {operation} {}", path.display())]
    Host {
        /// The operation.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl VolumeError {
    pub(crate) fn host(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Host { operation, path: path.to_owned(), source }
    }

    /// Returns the kind of the error, if it concerns a path in the volume.
    pub fn path_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Path { source, .. } => Some(source.kind()),
            Self::Gone { .. }
            | Self::Exists(_)
            | Self::Disk { .. }
            | Self::LostWrites { .. }
            | Self::TooMany { .. }
            | Self::Host { .. } => None,
        }
    }
}
