//! Sandboxes as responses.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use dorm_api_types as wire;
use dorm_service::SandboxView;

use crate::convert::Convert as _;

/// A sandbox as a response, with its revision as the `ETag`.
pub(crate) struct Tagged(wire::Sandbox);

impl From<SandboxView> for Tagged {
    fn from(view: SandboxView) -> Self {
        Self(view.convert())
    }
}

impl IntoResponse for Tagged {
    fn into_response(self) -> Response {
        let tag = HeaderValue::from_str(&format!("\"{}\"", self.0.revision)).ok();
        let mut response = axum::Json(self.0).into_response();
        response.headers_mut().extend(tag.map(|tag| (header::ETAG, tag)));
        response
    }
}
