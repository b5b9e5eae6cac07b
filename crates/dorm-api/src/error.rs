//! Errors as HTTP responses, in the format of RFC 9457.

mod codes;

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use dorm_agent_client::AgentError;
use dorm_api_types::Problem;
use dorm_http::{HeaderError, PortError, sse};
use dorm_service::{Code, ServiceError};
use utoipa::ToResponse;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

pub use codes::error_reference;
pub(crate) use codes::{ErrorCode, Meaning};

/// The media type of error bodies.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// The whole response to a connection for which there is no room.
pub(crate) const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Content-Type: application/problem+json\r\nContent-Length: 208\r\n\r\n\
    {\"type\":\"/errors/unavailable\",\"title\":\"Unavailable\",\"status\":503,\
    \"detail\":\"too many connections to this daemon are open\",\"code\":\"unavailable\",\
    \"next_step\":\"close some, or use the socket api.sock on its host\"}\n";

/// A response that is not a success.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    /// Boxed, since most results carry no error.
    body: Box<Problem>,
    /// The time after which the same request may succeed without any other change.
    retry_after: Option<Duration>,
}

impl ApiError {
    /// An error with the status of its code.
    pub(crate) fn new(code: impl Into<ErrorCode>, detail: impl Into<String>, next_step: &str) -> Self {
        let Meaning { code, status, title, .. } = code.into().meaning();
        let body = Problem {
            kind: format!("/errors/{code}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.to_owned(),
            next_step: next_step.to_owned(),
        };
        Self { status, body: Box::new(body), retry_after: None }
    }

    /// The request is invalid.
    pub(crate) fn invalid(detail: impl Into<String>, next_step: &str) -> Self {
        Self::new(Code::InvalidArgument, detail, next_step)
    }

    /// The request names something that does not exist.
    pub(crate) fn not_found(detail: impl Into<String>, next_step: &str) -> Self {
        Self::new(Code::NotFound, detail, next_step)
    }

    /// The request names something that no longer exists.
    pub(crate) fn gone(detail: impl Into<String>, next_step: &str) -> Self {
        Self::new(Code::Gone, detail, next_step)
    }

    /// The same error with another status.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self.body.status = status.as_u16();
        self
    }

    /// The same error with another status, for a request that may succeed a moment later.
    pub(crate) fn again_later(self, status: StatusCode) -> Self {
        Self { retry_after: Some(Duration::from_secs(1)), ..self.with_status(status) }
    }

    /// The body alone, for an error inside a stream or inside another response.
    pub(crate) fn into_body(self) -> Problem {
        *self.body
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        let code = error.code();
        if matches!(code, Code::Internal | Code::StoreFailed) {
            tracing::error!(error = %error.message(), "a request failed because of an internal error");
        }
        let retry_after = error.retry_after();
        let made = Self { retry_after, ..Self::new(code, error.message(), error.next_step()) };
        match error {
            ServiceError::KeyReused => made.with_status(StatusCode::UNPROCESSABLE_ENTITY),
            ServiceError::RevisionChanged { .. } => made.with_status(StatusCode::PRECONDITION_FAILED),
            _ => made,
        }
    }
}

impl From<HeaderError> for ApiError {
    fn from(error: HeaderError) -> Self {
        Self::invalid(error.to_string(), error.next_step())
    }
}

impl From<PortError> for ApiError {
    fn from(error: PortError) -> Self {
        let (detail, next_step, is_temporary) = (error.to_string(), error.next_step(), error.is_temporary());
        let code: ErrorCode = match error {
            PortError::Unreachable(error) => {
                let made = Self::from(error);
                return if is_temporary { made.again_later(StatusCode::SERVICE_UNAVAILABLE) } else { made };
            }
            PortError::WrongHost(_) => ErrorCode::WrongHost,
            PortError::NoPort(_) | PortError::Wake | PortError::Header(_) | PortError::InvalidPath(_) => {
                Code::InvalidArgument.into()
            }
            PortError::NoSandbox(_) => Code::NotFound.into(),
            PortError::Connect => ErrorCode::MethodNotAllowed,
            PortError::SpentLink => ErrorCode::Forbidden,
            PortError::Private(_) | PortError::NameWithoutKey(_) => ErrorCode::Unauthorized,
            PortError::Crowded => Code::Unavailable.into(),
            PortError::Silent(_) => ErrorCode::NoAnswer,
        };
        let made = Self::new(code, detail, next_step);
        if is_temporary { made.again_later(StatusCode::SERVICE_UNAVAILABLE) } else { made }
    }
}

impl From<AgentError> for ApiError {
    fn from(error: AgentError) -> Self {
        ServiceError::from(error).into()
    }
}

/// The last event of a stream that ends with an error.
pub(crate) fn last_event(error: ApiError) -> Event {
    sse::event("error", &error.into_body())
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, retry_after) = (self.status, self.retry_after);
        let mut response = (status, Json(*self.body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(after) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl<'r> ToResponse<'r> for ApiError {
    fn response() -> (&'r str, RefOr<utoipa::openapi::Response>) {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response = ResponseBuilder::new()
            .description("An error; `code` says which. docs/reference/errors.md lists all codes.")
            .content(PROBLEM_JSON, content)
            .build();
        ("Error", response.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_without_room_is_told_is_whole() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
        let told: Problem = serde_json::from_str(body).unwrap();
        let meaning = ErrorCode::from(Code::Unavailable).meaning();
        assert_eq!((told.code.as_str(), told.title.as_str(), told.status), (meaning.code, meaning.title, 503));
    }
}
