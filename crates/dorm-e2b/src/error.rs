//! The form of errors: a JSON object with a numeric code, as the clients of E2B require.
//!
//! The clients of its control API decide by `code` in the body, not by the status alone, and repeat
//! a request on their own unless `Should-Retry` forbids it.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dorm_agent_client::AgentError;
use dorm_http::HeaderError;
use dorm_http::bodies::BodyError;
use dorm_lifecycle::{SandboxId, SpecError};
use dorm_service::{Code, ServiceError};
use serde::Serialize;

/// Tells a client of the control API whether it may repeat a request.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("should-retry");

/// The response to a connection for which there is no room.
pub(crate) const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\
    Content-Length: 81\r\nRetry-After: 1\r\nShould-Retry: true\r\nConnection: close\r\n\r\n\
    {\"code\":503,\"message\":\"this server has too many connections: close some of them\"}";

/// A request that is not answered as the client wishes.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    message: String,
    error_code: Option<&'static str>,
    retry: Option<Retry>,
}

/// Whether a client may repeat a request by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Retry {
    /// Nothing has happened, and a later request may succeed.
    Later,
    /// Something may have happened, or a later request will fail as well.
    Never,
}

#[derive(Serialize)]
struct Body<'a> {
    code: u16,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<&'static str>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), error_code: None, retry: None }
    }

    /// 400: the request makes no sense.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 404: something that the request names does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 404, in the words of E2B.
    pub(crate) fn no_sandbox(sandbox: &str) -> Self {
        Self::not_found(format!("Sandbox \"{sandbox}\" doesn't exist or you don't have access to it"))
    }

    /// 409: the state of what the request names does not permit it.
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// 501: the request asks for what this server does not have.
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, message)
    }

    /// The same refusal with a code for programs.
    pub(crate) fn with_code(self, error_code: &'static str) -> Self {
        Self { error_code: Some(error_code), ..self }
    }

    /// The same refusal of a request that had no effect and may succeed a moment later.
    pub(crate) fn again_later(self) -> Self {
        Self { retry: Some(Retry::Later), ..self }
    }

    /// The same refusal of a request that may have had an effect.
    pub(crate) fn not_again(self) -> Self {
        Self { retry: Some(Retry::Never), ..self }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the refusal for an error that concerns a sandbox, in the words of E2B where it has
    /// its own.
    pub(crate) fn of(sandbox: &SandboxId, error: ServiceError) -> Self {
        match error.code() {
            Code::Gone => Self::no_sandbox(sandbox.as_str()),
            Code::NotFound if matches!(error, ServiceError::NoSandbox(_)) => Self::no_sandbox(sandbox.as_str()),
            _ => error.into(),
        }
    }
}

impl From<ServiceError> for Refusal {
    fn from(error: ServiceError) -> Self {
        let code = error.code();
        let message = match error.next_step() {
            "" => error.message(),
            next_step => format!("{}; {next_step}", error.message()),
        };
        match code {
            Code::InvalidArgument => Self::invalid(message),
            Code::NotFound | Code::Gone => Self::not_found(message),
            Code::Conflict | Code::PortClosed => Self::conflict(message),
            Code::NoRoom => {
                let status = match error {
                    ServiceError::NotAdmitted { .. } => StatusCode::TOO_MANY_REQUESTS,
                    _ => StatusCode::INSUFFICIENT_STORAGE,
                };
                Self::new(status, message).with_code("sandbox_capacity_unavailable").again_later()
            }
            Code::Unavailable => Self::new(StatusCode::SERVICE_UNAVAILABLE, message).not_again(),
            Code::TimedOut => Self::new(StatusCode::GATEWAY_TIMEOUT, message).not_again(),
            Code::Damaged | Code::Failed | Code::Unreadable | Code::StoreFailed | Code::Internal => {
                if matches!(code, Code::Internal | Code::StoreFailed) {
                    tracing::error!(error = %message, "a request failed because of an internal error");
                }
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, message).with_code("internal_server_error").not_again()
            }
        }
    }
}

impl From<AgentError> for Refusal {
    fn from(error: AgentError) -> Self {
        ServiceError::from(error).into()
    }
}

impl From<SpecError> for Refusal {
    fn from(error: SpecError) -> Self {
        ServiceError::from(error).into()
    }
}

impl From<HeaderError> for Refusal {
    fn from(error: HeaderError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        let message = error.to_string();
        match error {
            BodyError::TooLong(_) => Self::new(StatusCode::PAYLOAD_TOO_LARGE, message),
            BodyError::NoRoom => Self::new(StatusCode::SERVICE_UNAVAILABLE, message).again_later(),
            BodyError::Stalled => Self::new(StatusCode::REQUEST_TIMEOUT, message),
            BodyError::Broken(_) => Self::invalid(message),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = Body { code: self.status.as_u16(), message: &self.message, error_code: self.error_code };
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        match self.retry {
            Some(Retry::Later) => {
                headers.insert(SHOULD_RETRY, HeaderValue::from_static("true"));
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Some(Retry::Never) => {
                headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
            }
            None => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_without_room_is_told_is_whole() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
        let told: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(told["code"], 503);
    }
}
