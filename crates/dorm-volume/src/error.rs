//! What can go wrong with a volume's files.

use std::io;
use std::path::{Path, PathBuf};

use dorm_disk::DiskError;
use dorm_lifecycle::VolumeId;
use thiserror::Error;

/// Why something could not be done with a volume.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// Its files are not where they should be.
    #[error("the files of volume {id} are gone: there is no {}", path.display())]
    Gone {
        /// Which.
        id: VolumeId,
        /// What is missing.
        path: PathBuf,
    },
    /// There are files of that volume already.
    #[error("the files of volume {0} already exist")]
    Exists(VolumeId),
    /// The disk below it failed.
    #[error("cannot {operation} volume {id}")]
    Disk {
        /// What was being done.
        operation: &'static str,
        /// Which.
        id: VolumeId,
        /// Why.
        #[source]
        source: DiskError,
    },
    /// A path in it cannot be used.
    #[error("cannot {operation} '{path}' in volume {id}")]
    Path {
        /// What was being done.
        operation: &'static str,
        /// Which volume.
        id: VolumeId,
        /// The path, from the top of the volume.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A path of the host cannot be used.
    #[error("cannot {operation} {}", path.display())]
    Host {
        /// What was being done.
        operation: &'static str,
        /// Which path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl VolumeError {
    pub(crate) fn host(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Host { operation, path: path.to_owned(), source }
    }

    /// What kind of trouble with a path it is, if it is one.
    pub fn path_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Path { source, .. } => Some(source.kind()),
            Self::Gone { .. } | Self::Exists(_) | Self::Disk { .. } | Self::Host { .. } => None,
        }
    }
}
