//! Why the files could not be read out of a memory image.

use std::io;

use dorm_worker::WorkerError;
use thiserror::Error;

/// The release of the engine whose images are known; what others write is believed only as far as it looks the same.
const KNOWN: &str = "release 20240729.0";

/// What is wrong, without the name of the image.
#[derive(Debug, Error)]
pub(crate) enum FilesError {
    #[error("{file} is damaged: {what}, at byte {at} of its content")]
    Damaged { file: &'static str, what: &'static str, at: usize },
    #[error("{what}: this build of the engine writes its images differently from {KNOWN}; use the one that is known")]
    Different { what: String },
    #[error("the image's files do not make a tree: {what}")]
    Unsound { what: String },
    #[error("{what}; delete files inside, or start the daemon with a larger number")]
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
    #[error("a worker failed while it read the image")]
    Worker(#[source] WorkerError),
    #[error("the entry '{path}' was not taken")]
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

    /// The host's own error behind this one, if there is one.
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
