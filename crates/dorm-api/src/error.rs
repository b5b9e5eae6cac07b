//! Every refusal as HTTP: one shape, and one place where a kind of error gets its status.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dorm_agent_client::AgentError;
use dorm_service::{Code, ServiceError};

use crate::wire::{ErrorAnswer, ErrorBody};

/// An answer that is not a success.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

/// The status of each kind of refusal by the service.
const fn status(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Conflict => StatusCode::CONFLICT,
        Code::Gone => StatusCode::GONE,
        Code::PortClosed => StatusCode::BAD_GATEWAY,
        Code::NoRoom => StatusCode::INSUFFICIENT_STORAGE,
        Code::Failed | Code::Unreadable | Code::Damaged | Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>, next_step: &str) -> Self {
        let body = ErrorBody { code: code.to_owned(), message: message.into(), next_step: next_step.to_owned() };
        Self { status, body }
    }

    /// The request cannot be meant like this.
    pub(crate) fn invalid(message: impl Into<String>, next_step: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Code::InvalidArgument.as_str(), message, next_step)
    }

    /// What it names is not there.
    pub(crate) fn not_found(message: impl Into<String>, next_step: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, Code::NotFound.as_str(), message, next_step)
    }

    /// It was there, and is not any more.
    pub(crate) fn gone(message: impl Into<String>, next_step: &str) -> Self {
        Self::new(StatusCode::GONE, Code::Gone.as_str(), message, next_step)
    }

    /// The same words with another status.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// For a stream that has begun, where no status can be sent any more.
    pub(crate) fn into_body(self) -> ErrorBody {
        self.body
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        let code = error.code();
        if code == Code::Internal {
            tracing::error!(error = %error.message(), "a request met an error of Dormouse itself");
        }
        Self::new(status(code), code.as_str(), error.message(), error.next_step())
    }
}

impl From<AgentError> for ApiError {
    fn from(error: AgentError) -> Self {
        ServiceError::from(error).into()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status;
        let mut response = (status, Json(ErrorAnswer { error: self.body })).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
