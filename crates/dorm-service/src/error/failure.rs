//! Why an operation failed: every waiting caller gets the kind and the underlying error, and the
//! kind and the sentence are recorded.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dorm_agent_client::AgentError;
use dorm_engine::EngineError;
use dorm_storage::StorageError;
use dorm_store::{Code, FailureRecord};

use super::{ServiceError, chain};

/// The reason of an operation that was interrupted.
pub(crate) const STOPPED: &str = "the daemon stopped during the operation";

/// Why an operation failed.
#[derive(Clone, Debug)]
pub struct Failure {
    code: Code,
    reason: String,
    cause: Option<Arc<ServiceError>>,
}

impl Failure {
    /// Returns a failure without an underlying error.
    pub(crate) fn new(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), cause: None }
    }

    /// Returns the failure of an operation that exceeded its limit.
    pub(crate) fn late(what: &str, limit: Duration) -> Self {
        Self::new(Code::TimedOut, format!("{what} took longer than its limit of {} s", limit.as_secs()))
    }

    /// Returns the same failure with the reason rewritten by `tell`.
    pub(crate) fn told_as(self, tell: impl FnOnce(&str) -> String) -> Self {
        Self { reason: tell(&self.reason), ..self }
    }

    /// Returns the failure of an operation that was given a path inside the sandbox: the agent's
    /// error is then an answer to the caller.
    pub(crate) fn of_path(error: ServiceError) -> Self {
        let code = match &error {
            ServiceError::Agent(AgentError::Closed { .. }) => code_in_operation(&error),
            ServiceError::Agent(_) => error.code(),
            _ => code_in_operation(&error),
        };
        Self { code, ..Self::from(error) }
    }

    /// Returns the kind of the failure.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the reason, in one line.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the underlying error, if there is one.
    pub fn cause(&self) -> Option<&ServiceError> {
        self.cause.as_deref()
    }

    /// Returns what is recorded of the failure.
    pub(crate) fn record(&self) -> FailureRecord {
        FailureRecord::new(self.code, &self.reason)
    }
}

/// Returns the failure of an operation that an earlier daemon left unfinished and this one does not
/// continue.
pub(crate) fn stopped() -> FailureRecord {
    FailureRecord::new(Code::Unavailable, STOPPED)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl<E: Into<ServiceError>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        Self { code: code_in_operation(&error), reason: chain(&error), cause: Some(Arc::new(error)) }
    }
}

/// Returns the kind of an error that occurred in an operation. The caller named a sandbox or a
/// snapshot; everything else that the operation needs belongs to the host: what is missing there is
/// damage, and what is refused there is a failure.
fn code_in_operation(error: &ServiceError) -> Code {
    match error {
        ServiceError::NoSnapshot(_) => Code::NotFound,
        ServiceError::Storage(StorageError::NoImage { .. } | StorageError::MissingImage { .. }) => Code::Damaged,
        ServiceError::Agent(AgentError::Closed { source: Some(source) })
            if source.kind() == std::io::ErrorKind::TimedOut =>
        {
            Code::TimedOut
        }
        ServiceError::Engine(EngineError::Refused { .. }) => Code::Failed,
        other => match other.code() {
            Code::InvalidArgument | Code::NotFound | Code::Gone | Code::PortClosed => Code::Failed,
            code => code,
        },
    }
}
