//! Suspends sandboxes.

use dorm_api_types as wire;

use crate::convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox};
use crate::tagged::Tagged;

/// Suspend a sandbox
///
/// Saves the memory, processes and files of a running sandbox, or its files only. When this call
/// responds, they are on disk and verified. A suspended sandbox stays as it is: `sleep_image.keeps`
/// of the response says what was kept.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/suspend", operation_id = "suspendSandbox", tag = "sandboxes",
    request_body = Option<wire::SuspendRequest>,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The suspended sandbox.", body = wire::Sandbox),
        (status = 202, description = "The sandbox with the operation that has begun.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn suspend(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::SuspendRequest>,
) -> Result<Tagged, ApiError> {
    let manner = convert::manner(asked.wait, asked.if_busy);
    Ok(Tagged::after(service.in_manner(manner).suspend_with(&id, convert::keep(asked.keep)).await?, manner.answer))
}
