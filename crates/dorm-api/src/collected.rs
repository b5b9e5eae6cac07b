//! Responses that are made in memory from what a sandbox sends, and may be large. All of them have
//! one budget, since a client may read slowly.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dorm_http::bodies::{self, RESPONSES_BYTES, Share, Whole};
use dorm_service::Code;
use serde::Serialize;

use crate::error::ApiError;

/// A JSON response with its share of the budget.
///
/// # Errors
/// `unavailable` if the budget is used up.
pub(crate) fn json(value: &impl Serialize, share: Share) -> Result<Response, ApiError> {
    let bytes = serde_json::to_vec(value).map_err(|error| {
        ApiError::new(Code::Internal, format!("cannot write the response as JSON: {error}"), "please report this")
    })?;
    let bytes = bodies::shared(bytes, share).map_err(|_| full())?;
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::new(Whole(bytes))).into_response())
}

fn full() -> ApiError {
    let most = RESPONSES_BYTES >> 20;
    let detail = format!("the responses to other requests take all the memory for responses, which is {most} MiB");
    let error = ApiError::new(Code::Unavailable, detail, "send the request again, or ask for less at once");
    error.again_later(StatusCode::SERVICE_UNAVAILABLE)
}
