//! Maps errors of the kernel to errors of the protocol.

use std::io;

use dorm_agent_proto::{Failure, GuestPath, GuestString};
use rustix::io::Errno;

/// Returns the failure for an error of `operation` on `path`.
pub(crate) fn on_path(operation: &str, path: &GuestPath, error: &io::Error) -> Failure {
    let path = path.clone();
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => Failure::NotFound { path },
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Failure::Denied { path },
        Some(Errno::EXIST) => Failure::Exists { path },
        Some(Errno::NOTDIR) => Failure::NotADirectory { path },
        Some(Errno::ISDIR) => Failure::IsADirectory { path },
        Some(Errno::NOTEMPTY) => Failure::NotEmpty { path },
        Some(Errno::NOSPC | Errno::DQUOT) => Failure::NoSpace { path },
        _ => other(operation, path.as_bytes(), error),
    }
}

/// Returns any other failure.
pub(crate) fn other(operation: &str, operand: &[u8], reason: impl std::fmt::Display) -> Failure {
    Failure::Other {
        operation: operation.to_owned(),
        operand: GuestString::new(operand).unwrap_or_default(),
        reason: reason.to_string(),
    }
}
