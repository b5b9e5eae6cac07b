//! Why an operation failed: every caller that waits for it is told the kind and the error behind it, and both the kind
//! and the sentence go on record.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dorm_agent_client::AgentError;
use dorm_engine::EngineError;
use dorm_pool::PoolError;
use dorm_store::{Code, FailureRecord};

use crate::error::ServiceError;
use crate::shared::chain;

/// What is said of an operation that did not come to its end.
pub(crate) const STOPPED: &str = "the daemon was stopped in the middle of it";

/// Why an operation failed.
#[derive(Clone, Debug)]
pub struct Failure {
    code: Code,
    reason: String,
    cause: Option<Arc<ServiceError>>,
}

impl Failure {
    /// One without an error behind it.
    pub(crate) fn new(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), cause: None }
    }

    /// It took longer than it may.
    pub(crate) fn late(what: &str, limit: Duration) -> Self {
        Self::new(Code::TimedOut, format!("{what} took longer than its limit of {} s", limit.as_secs()))
    }

    /// The same failure, told in other words.
    pub(crate) fn told_as(self, tell: impl FnOnce(&str) -> String) -> Self {
        Self { reason: tell(&self.reason), ..self }
    }

    /// The failure of an operation that was given a path inside the sandbox: what the agent says of it is an answer to
    /// the caller.
    pub(crate) fn of_path(error: ServiceError) -> Self {
        let code = match &error {
            ServiceError::Agent(AgentError::Closed { .. }) => code_in_operation(&error),
            ServiceError::Agent(_) => error.code(),
            _ => code_in_operation(&error),
        };
        Self { code, ..Self::from(error) }
    }

    /// Its kind.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Why, in one line.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The error behind it, where there is one.
    pub fn cause(&self) -> Option<&ServiceError> {
        self.cause.as_deref()
    }

    /// What is recorded of it.
    pub(crate) fn record(&self) -> FailureRecord {
        FailureRecord::new(self.code, &self.reason)
    }
}

/// The failure of an operation that an earlier daemon left unfinished and that this one does not continue.
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

/// The kind of an error that an operation met. The caller has named a sandbox or a snapshot, and everything else that the
/// operation needs is the host's: what is missing there is damage, and what is refused there has failed.
fn code_in_operation(error: &ServiceError) -> Code {
    match error {
        ServiceError::NoSnapshot(_) => Code::NotFound,
        ServiceError::Pool(PoolError::NoImage { .. } | PoolError::MissingImage { .. }) => Code::Damaged,
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
