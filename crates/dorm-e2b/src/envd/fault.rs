//! Errors of `envd`, in the two forms that its clients read: with a Connect code on the paths of
//! its two services, and with an HTTP status on its other paths.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use dorm_agent_client::AgentError;
use dorm_http::bodies::BodyError;
use dorm_service::ServiceError;

use crate::error::Refusal;

/// A Connect code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Code {
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    DataLoss,
    Unauthenticated,
    Unavailable,
}

impl Code {
    /// Its name on the wire.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::DataLoss => "data_loss",
            Self::Unauthenticated => "unauthenticated",
            Self::Unavailable => "unavailable",
        }
    }

    /// The HTTP status of a unary call that fails with it.
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Internal | Self::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// An error that `envd` reports itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// Whether the disk of the sandbox is full, for which HTTP has a status and Connect no code.
    is_full: bool,
}

impl Fault {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_full: false }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(crate) fn no_user(user: &str) -> Self {
        Self::new(Code::Unauthenticated, format!("invalid username: '{user}'"))
    }

    /// The answer on a path that is not a Connect call.
    pub(crate) fn into_http(self) -> Response {
        let status = if self.is_full { StatusCode::INSUFFICIENT_STORAGE } else { self.code.status() };
        Refusal::new(status, self.message).into_response()
    }
}

impl From<BodyError> for Fault {
    fn from(error: BodyError) -> Self {
        let code = match error {
            BodyError::NoRoom => Code::Unavailable,
            // Clients report `resource_exhausted` as a rate limit, and `deadline_exceeded` as the
            // end of their own time limit.
            BodyError::TooLong(_) | BodyError::Stalled | BodyError::Broken(_) => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}

/// Why a call is not answered as the client wishes.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The sandbox cannot be reached. E2B's proxy answers then in place of `envd`.
    Unreachable(ServiceError),
    /// `envd` answers with an error.
    Refused(Fault),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

impl From<BodyError> for Failed {
    fn from(error: BodyError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<ServiceError> for Failed {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Agent(error) => error.into(),
            error => Self::Unreachable(error),
        }
    }
}

impl From<AgentError> for Failed {
    fn from(error: AgentError) -> Self {
        let fault = |code| Self::Refused(Fault::new(code, error.to_string()));
        match &error {
            AgentError::Closed { .. } | AgentError::Protocol(_) | AgentError::Version { .. } => {
                Self::Unreachable(error.into())
            }
            AgentError::NotFound(path) => Fault::new(Code::NotFound, format!("path '{path}' does not exist")).into(),
            AgentError::IsADirectory(path) => Fault::invalid(format!("path '{path}' is a directory")).into(),
            AgentError::NotADirectory(path) => Fault::invalid(format!("path '{path}' is not a directory")).into(),
            AgentError::NoUser(user) => Fault::no_user(user).into(),
            AgentError::NoSpace(_) => {
                Self::Refused(Fault { is_full: true, ..Fault::new(Code::Internal, error.to_string()) })
            }
            AgentError::NoProcess(_) | AgentError::NoWatcher(_) | AgentError::NoService(_) => fault(Code::NotFound),
            AgentError::Denied(_) => fault(Code::PermissionDenied),
            AgentError::Exists(_) => fault(Code::AlreadyExists),
            AgentError::Body { source, .. } => {
                Fault::invalid(format!("cannot read the request body: {}", causes(source.as_ref()))).into()
            }
            AgentError::NotAFile(_)
            | AgentError::CommandNotFound(_)
            | AgentError::CannotExecute { .. }
            | AgentError::Invalid(_) => fault(Code::InvalidArgument),
            AgentError::Busy | AgentError::Behind | AgentError::TooMany(_) | AgentError::TooManyOpen { .. } => {
                fault(Code::ResourceExhausted)
            }
            AgentError::Older { .. }
            | AgentError::NotEmpty(_)
            | AgentError::MountBusy(_)
            | AgentError::ServiceActive(_)
            | AgentError::NoTerminal(_) => fault(Code::FailedPrecondition),
            AgentError::InputClosed(_) | AgentError::Refused(_) | AgentError::Other { .. } => fault(Code::Internal),
        }
    }
}

/// An error with its causes.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = all.map(ToString::to_string).collect();
    // Some errors repeat their cause.
    texts.dedup_by(|cause, error| error.contains(cause.as_str()));
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_for_which_there_is_no_room_may_be_sent_again() {
        let fault = Fault::from(BodyError::NoRoom);
        assert_eq!((fault.code, fault.code.status()), (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE));
        assert!(fault.message.contains("try again"), "{}", fault.message);
        assert_eq!(Fault::from(BodyError::TooLong(7)).code, Code::InvalidArgument);
        let refusal = Refusal::from(BodyError::NoRoom).into_response();
        assert_eq!(refusal.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refusal.headers()["should-retry"], "true");
    }

    #[test]
    fn a_full_disk_has_a_status_of_its_own() {
        let path = dorm_agent_client::GuestPath::try_from("/a").unwrap();
        let Failed::Refused(full) = AgentError::NoSpace(path).into() else { panic!("it is an error of envd") };
        assert_eq!(full.code, Code::Internal);
        assert_eq!(full.into_http().status(), StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!(Fault::no_user("eve").message, "invalid username: 'eve'");
    }
}
