//! Errors of control group operations.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::controller::Controller;

/// Why a control group could not be used.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// A file or directory of the group could not be used.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// `read`, `write`, `create`, …
        operation: &'static str,
        /// The path of the file or directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file has content that no known kernel writes.
    #[error("unexpected content in {}: '{text}'; report it together with the kernel version", path.display())]
    Unexpected {
        /// The path of the file.
        path: PathBuf,
        /// The unexpected content.
        text: String,
    },
    /// The host lacks a required controller.
    #[error(
        "this host has no {} cgroup controller, so {}: mount it (see /proc/cgroups), or run where it is delegated",
        controller.name(), controller.loss()
    )]
    Missing {
        /// The controller.
        controller: Controller,
    },
    /// The name is not a valid group name.
    #[error("invalid control group name '{0}': use parts of letters, digits, '-', '_' and '.', separated by '/'")]
    Name(String),
    /// The group already contains processes.
    #[error("control group {name} already contains processes: end them and remove the group first")]
    Occupied {
        /// The name of the group.
        name: String,
    },
    /// The processes did not reach the requested state in time.
    #[error("cannot {operation} control group {name}: timed out after {} s; a process may hang in the kernel", limit.as_secs())]
    Late {
        /// `freeze`, `thaw`, `remove`, …
        operation: &'static str,
        /// The name of the group.
        name: String,
        /// How long the call waited.
        limit: Duration,
    },
}

impl CgroupError {
    pub(crate) fn file(operation: &'static str, path: PathBuf, source: io::Error) -> Self {
        Self::File { operation, path, source }
    }

    fn io(&self) -> Option<&io::Error> {
        match self {
            Self::File { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Returns the kind of the operating system's error, if there is one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        self.io().map(io::Error::kind)
    }

    /// Returns whether the group, or a file of it, does not exist (any more).
    pub fn is_gone(&self) -> bool {
        let code = self.io().and_then(io::Error::raw_os_error);
        self.io_kind() == Some(io::ErrorKind::NotFound) || code == Some(libc::ENODEV)
    }

    pub(crate) fn is_no_such_process(&self) -> bool {
        self.io().and_then(io::Error::raw_os_error) == Some(libc::ESRCH)
    }

    /// Returns the error and its cause in one line.
    pub(crate) fn chain(&self) -> String {
        match self.io() {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }
}
