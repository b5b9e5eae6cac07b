//! What can go wrong with a control group.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use super::Controller;

/// Why a control group could not be used.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// A file or directory of the group could not be used.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// `read`, `write`, `create`, …
        operation: &'static str,
        /// Which.
        path: PathBuf,
        /// What the host said.
        #[source]
        source: io::Error,
    },
    /// A file says something that no known kernel says.
    #[error("unexpected content in {}: '{text}'; report it together with the kernel version", path.display())]
    Unexpected {
        /// Which.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// The host lacks a controller that is needed.
    #[error(
        "this host has no {} cgroup controller, so {}: mount it (see /proc/cgroups), or run where it is delegated",
        controller.name(), controller.loss()
    )]
    Missing {
        /// Which.
        controller: Controller,
    },
    /// The name is not one for a group.
    #[error("invalid control group name '{0}': use parts of letters, digits, '-', '_' and '.', separated by '/'")]
    Name(String),
    /// There is a group of that name with processes in it.
    #[error("control group {name} already contains processes: end them and remove the group first")]
    Occupied {
        /// Which.
        name: String,
    },
    /// The processes did not do in time what was asked of them.
    #[error("cannot {operation} control group {name}: timed out after {} s; a process may hang in the kernel", limit.as_secs())]
    Late {
        /// `freeze`, `thaw`, `remove`, …
        operation: &'static str,
        /// Which group.
        name: String,
        /// How long was waited.
        limit: Duration,
    },
}

impl CgroupError {
    pub(super) fn file(operation: &'static str, path: PathBuf, source: io::Error) -> Self {
        Self::File { operation, path, source }
    }

    fn io(&self) -> Option<&io::Error> {
        match self {
            Self::File { source, .. } => Some(source),
            _ => None,
        }
    }

    /// The kind of the host's error, if it is one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        self.io().map(io::Error::kind)
    }

    /// Whether the group, or what it was asked for, is not there (any more).
    pub fn is_gone(&self) -> bool {
        let code = self.io().and_then(io::Error::raw_os_error);
        self.io_kind() == Some(io::ErrorKind::NotFound) || code == Some(libc::ENODEV)
    }

    pub(super) fn is_no_such_process(&self) -> bool {
        self.io().and_then(io::Error::raw_os_error) == Some(libc::ESRCH)
    }

    /// The error and its cause in one line.
    pub(super) fn chain(&self) -> String {
        match self.io() {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }
}
