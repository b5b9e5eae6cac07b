//! The failure of a verb: a sentence, the next step, and the exit code.

use std::error::Error;

use dorm_client::ClientError;

use super::output::harmless;
use crate::data::DataError;
use crate::exit;

/// The result of a verb: its exit code, or its failure.
pub(crate) type Done = Result<u8, Problem>;

/// The failure of a verb.
#[derive(Debug)]
pub(crate) struct Problem {
    message: String,
    next_step: String,
    code: u8,
}

impl Problem {
    /// A failure without a code of its own.
    pub(crate) fn failed(message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { message: message.into(), next_step: next_step.into(), code: exit::FAILED }
    }

    /// A usage error.
    pub(crate) fn usage(message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { code: exit::USAGE, ..Self::failed(message, next_step) }
    }

    /// Something that was named does not exist.
    pub(crate) fn not_found(message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { code: exit::NOT_FOUND, ..Self::failed(message, next_step) }
    }

    /// The daemon is unreachable.
    pub(crate) fn no_daemon(message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { code: exit::NO_DAEMON, ..Self::failed(message, next_step) }
    }

    /// The reader of the output has closed it, so nothing is printed.
    pub(crate) fn closed_output() -> Self {
        Self { message: String::new(), next_step: String::new(), code: exit::CLOSED_OUTPUT }
    }

    /// An operation on this host failed. `what` names the operation and its operand.
    pub(crate) fn host(what: impl std::fmt::Display, error: &std::io::Error) -> Self {
        Self::failed(format!("cannot {what}: {error}"), "")
    }

    /// Returns whether it is [`Problem::closed_output`].
    pub(crate) fn is_closed_output(&self) -> bool {
        self.code == exit::CLOSED_OUTPUT
    }

    /// Returns the exit code of the program.
    pub(crate) fn exit_code(&self) -> u8 {
        self.code
    }

    /// Puts `what` in front of the message.
    pub(crate) fn during(mut self, what: &str) -> Self {
        if !self.is_closed_output() {
            self.message = format!("{what}: {}", self.message);
        }
        self
    }

    /// Prints it on standard error.
    pub(crate) fn tell(&self) {
        if self.message.is_empty() {
            return;
        }
        let mut text = format!("error: {}\n", harmless(&self.message));
        if !self.next_step.is_empty() {
            text.push_str(&format!("  next: {}\n", harmless(&self.next_step)));
        }
        // If standard error is closed, the message is not wanted.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        let message = message(&error);
        match error {
            ClientError::Refused { status, error, .. } => {
                let code = match status {
                    400 | 413 | 416 | 422 => exit::USAGE,
                    404 => exit::NOT_FOUND,
                    401 | 403 | 409 | 410 => exit::REFUSED,
                    _ => exit::FAILED,
                };
                Self { message, next_step: error.next_step, code }
            }
            ClientError::Address(_) => {
                Self::usage(message, "give an address such as http://127.0.0.1:7070 or https://dorm.example.org")
            }
            ClientError::Unreachable { server, .. } if server.starts_with("https://") => Self::no_daemon(
                message,
                "check the address with --server; if this host does not trust the daemon's certificate, name its \
                 authority with --ca",
            ),
            ClientError::Unreachable { .. } => Self::no_daemon(
                message,
                "start `dorm serve`, or give its address with --server or its data directory with --data",
            ),
            ClientError::Broken { .. } | ClientError::Ended { .. } => Self::failed(
                message,
                "if the daemon has stopped, sandboxes are safe: run `dorm sbx ls` when it is running again",
            ),
            ClientError::Foreign { .. } => Self::no_daemon(message, "give the daemon's address with --server"),
            ClientError::Unreadable { .. } => Self::failed(message, "use the same version of dorm as the daemon"),
            ClientError::Authority { .. } => Self::usage(
                message,
                "give a file in PEM with --ca, such as the output of `dorm ca` on the daemon's host",
            ),
            ClientError::Start { .. }
            | ClientError::Request { .. }
            | ClientError::Tls { .. }
            | ClientError::NotText { .. }
            | ClientError::Command { .. } => Self::failed(message, ""),
        }
    }
}

impl From<DataError> for Problem {
    fn from(error: DataError) -> Self {
        let next = match &error {
            DataError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                "run it as root, or give the daemon's address with --server and its key in DORM_KEY"
            }
            _ => "",
        };
        Self::failed(message(&error), next)
    }
}

/// Returns the error and its root cause.
pub(super) fn message(error: &dyn Error) -> String {
    let mut root = error.source();
    while let Some(deeper) = root.and_then(Error::source) {
        root = Some(deeper);
    }
    match root {
        Some(root) => format!("{error}: {root}"),
        None => error.to_string(),
    }
}
