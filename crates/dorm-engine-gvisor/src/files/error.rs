//! Why files could not be read out of a memory image.

use std::io;

use dorm_worker::WorkerError;
use thiserror::Error;

/// The release of gVisor whose images are known. Images of other releases are read only as far as
/// they look the same.
const KNOWN: &str = "release 20240729.0";

/// A fault of a memory image, without the name of the image.
#[derive(Debug, Error)]
pub(crate) enum FilesError {
    #[error("{file} is damaged at byte {at} of its content: {what}")]
    Damaged { file: &'static str, what: &'static str, at: usize },
    #[error("{what}: this runsc build writes memory images in another format than {KNOWN}; use {KNOWN}")]
    Different { what: String },
    #[error("the file system in the memory image is inconsistent: {what}")]
    Unsound { what: String },
    #[error("{what}; delete files in the sandbox, or start the daemon with a larger limit")]
    TooMuch { what: String },
    #[error("cannot {operation} {file}")]
    File {
        operation: &'static str,
        file: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{what}")]
    Told { what: String },
    #[error("the worker that reads the image failed")]
    Worker(#[source] WorkerError),
    #[error("cannot store the entry '{path}'")]
    Sink {
        path: String,
        #[source]
        source: io::Error,
    },
}

impl FilesError {
    pub(super) fn different(what: impl Into<String>) -> Self {
        Self::Different { what: what.into() }
    }

    pub(super) fn unsound(what: impl Into<String>) -> Self {
        Self::Unsound { what: what.into() }
    }

    pub(super) fn read(file: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { operation: "read", file, source }
    }

    /// Returns the operating system's error behind this one, if there is one.
    pub(crate) fn host_error(&self) -> Option<&io::Error> {
        match self {
            Self::File { source, .. } | Self::Sink { source, .. } => Some(source),
            Self::Damaged { .. }
            | Self::Different { .. }
            | Self::Unsound { .. }
            | Self::TooMuch { .. }
            | Self::Told { .. }
            | Self::Worker(_) => None,
        }
    }
}
