//! Why a verb did not work, for people: a sentence, the next step, and the exit code.

use std::error::Error;

use super::exit;
use super::output::harmless;
use crate::client::ClientError;
use crate::data::DataError;

/// What a verb answers.
pub(crate) type Done = Result<u8, Problem>;

/// Why it did not work.
#[derive(Debug)]
pub(crate) struct Problem {
    message: String,
    next_step: String,
    code: u8,
}

impl Problem {
    /// It was tried and did not work.
    pub(crate) fn failed(message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { message: message.into(), next_step: next_step.into(), code: exit::FAILED }
    }

    /// It cannot be meant like this.
    pub(crate) fn usage(message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { code: exit::USAGE, ..Self::failed(message, next_step) }
    }

    /// What it names is not there.
    pub(crate) fn not_found(message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { code: exit::NOT_FOUND, ..Self::failed(message, next_step) }
    }

    /// No daemon could be reached.
    pub(crate) fn no_daemon(message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { code: exit::NO_DAEMON, ..Self::failed(message, next_step) }
    }

    /// Nobody reads the output any more, so nothing is left to be said.
    pub(crate) fn closed_output() -> Self {
        Self { message: String::new(), next_step: String::new(), code: exit::CLOSED_OUTPUT }
    }

    /// Something of this host did not work: what was done, to what, and what the system said.
    pub(crate) fn host(what: impl std::fmt::Display, error: &std::io::Error) -> Self {
        Self::failed(format!("cannot {what}: {error}"), "")
    }

    /// Whether it is [`Problem::closed_output`].
    pub(crate) fn is_closed_output(&self) -> bool {
        self.code == exit::CLOSED_OUTPUT
    }

    /// What the program's end says.
    pub(crate) fn exit_code(&self) -> u8 {
        self.code
    }

    /// The same, with more to say in front.
    pub(crate) fn during(mut self, what: &str) -> Self {
        if !self.is_closed_output() {
            self.message = format!("{what}: {}", self.message);
        }
        self
    }

    /// Says it on standard error.
    pub(crate) fn tell(&self) {
        if self.message.is_empty() {
            return;
        }
        let mut text = format!("error: {}\n", harmless(&self.message));
        if !self.next_step.is_empty() {
            text.push_str(&format!("  next: {}\n", harmless(&self.next_step)));
        }
        // Nobody is left to be told that nobody listens.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        let message = message(&error);
        match error {
            ClientError::Refused { status, error } => {
                let code = match status {
                    400 | 413 | 416 | 422 => exit::USAGE,
                    404 => exit::NOT_FOUND,
                    401 | 403 | 409 | 410 => exit::REFUSED,
                    _ => exit::FAILED,
                };
                Self { message, next_step: error.next_step, code }
            }
            ClientError::Address(_) => Self::usage(message, "addresses look like http://127.0.0.1:7070"),
            ClientError::Unreachable { .. } => Self::no_daemon(
                message,
                "is `dorm serve` running? Start it, or say where it is with --server or --data",
            ),
            ClientError::Broken { .. } | ClientError::Ended { .. } => Self::failed(
                message,
                "if the daemon has stopped, sandboxes are safe: look at `dorm sbx ls` when it is back",
            ),
            ClientError::Foreign { .. } => Self::no_daemon(message, "say where the daemon is with --server"),
            ClientError::Unreadable { .. } => Self::failed(message, "use the dorm of the daemon's own version"),
            ClientError::Start { .. } => Self::failed(message, ""),
        }
    }
}

impl From<DataError> for Problem {
    fn from(error: DataError) -> Self {
        let next = match &error {
            DataError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                "run it as root, or say which daemon with --server and put its key into DORM_KEY"
            }
            _ => "",
        };
        Self::failed(message(&error), next)
    }
}

/// The error, and what was at the root of it.
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
