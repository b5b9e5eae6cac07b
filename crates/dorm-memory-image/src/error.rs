//! Why files could not be read out of a memory image.

use std::io;

use dorm_worker::WorkerError;
use thiserror::Error;

/// The release of gVisor whose images are known. Images of other releases are read only as far as
/// they look the same.
const KNOWN: &str = "release 20240729.0";

/// A fault of a memory image, without the name of the image.
#[derive(Debug, Error)]
pub enum MemoryImageError {
    /// A file has bytes that no `runsc` writes, or ends early.
    #[error("{file} is damaged at byte {at} of its content: {what}")]
    Damaged {
        /// The name of the file.
        file: &'static str,
        /// The fault.
        what: &'static str,
        /// Where it is.
        at: usize,
    },
    /// The image has another format.
    #[error("{what}: this runsc build writes memory images in another format than {KNOWN}; use {KNOWN}")]
    Different {
        /// The difference.
        what: String,
    },
    /// The parts of the image contradict each other.
    #[error("the file system in the memory image is inconsistent: {what}")]
    Unsound {
        /// The contradiction.
        what: String,
    },
    /// A limit is exceeded.
    #[error("{what}; delete files in the sandbox, or start the daemon with a larger limit")]
    TooMuch {
        /// The limit, and what exceeds it.
        what: String,
    },
    /// A file cannot be used.
    #[error("cannot {operation} {file}")]
    File {
        /// `read`.
        operation: &'static str,
        /// The name of the file.
        file: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The worker that reads the image found a fault of it.
    #[error("{what}")]
    Told {
        /// The fault and its causes.
        what: String,
    },
    /// The worker itself failed.
    #[error("the worker that reads the image failed")]
    Worker(#[source] WorkerError),
    /// The sink did not accept an entry.
    #[error("cannot store the entry '{path}'")]
    Sink {
        /// The path of the entry.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl MemoryImageError {
    pub(crate) fn different(what: impl Into<String>) -> Self {
        Self::Different { what: what.into() }
    }

    pub(crate) fn unsound(what: impl Into<String>) -> Self {
        Self::Unsound { what: what.into() }
    }

    pub(crate) fn read(file: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { operation: "read", file, source }
    }

    /// Returns the operating system's error behind this one, if there is one.
    pub fn host_error(&self) -> Option<&io::Error> {
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
