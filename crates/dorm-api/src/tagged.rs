//! Sandboxes as responses.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dorm_api_types as wire;
use dorm_service::{AnswerAt, Changed, SandboxView};

use crate::convert::Convert as _;

/// A sandbox as a response, with its revision as the `ETag`.
pub(crate) struct Tagged {
    sandbox: wire::Sandbox,
    status: StatusCode,
}

impl Tagged {
    /// The response to a command. It is 202 if the operation that began is not awaited.
    pub(crate) fn after(view: SandboxView, answer: AnswerAt) -> Self {
        let has_begun = answer == AnswerAt::Beginning && view.changed == Some(Changed::Yes);
        let status = if has_begun { StatusCode::ACCEPTED } else { StatusCode::OK };
        Self { sandbox: view.convert(), status }
    }

    /// The response to a request that has created the sandbox.
    pub(crate) fn created(view: SandboxView, answer: AnswerAt) -> Self {
        let status = match answer {
            AnswerAt::End => StatusCode::CREATED,
            AnswerAt::Beginning => StatusCode::ACCEPTED,
        };
        Self { sandbox: wire::Sandbox { changed: None, ..view.convert() }, status }
    }
}

impl From<SandboxView> for Tagged {
    fn from(view: SandboxView) -> Self {
        Self { sandbox: view.convert(), status: StatusCode::OK }
    }
}

impl IntoResponse for Tagged {
    fn into_response(self) -> Response {
        let tag = HeaderValue::from_str(&format!("\"{}\"", self.sandbox.revision)).ok();
        let mut response = (self.status, axum::Json(self.sandbox)).into_response();
        response.headers_mut().extend(tag.map(|tag| (header::ETAG, tag)));
        response
    }
}
