//! Terminates sandboxes.

use dorm_api_types as wire;

use crate::convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox};
use crate::tagged::Tagged;

/// Terminate a sandbox
///
/// Termination is final: memory and files of the sandbox are deleted. Its snapshots remain.
/// Terminating a terminated sandbox succeeds.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/terminate", operation_id = "terminateSandbox", tag = "sandboxes",
    request_body = Option<wire::CommandRequest>,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The terminated sandbox.", body = wire::Sandbox),
        (status = 202, description = "The sandbox with the operation that has begun.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn terminate(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::CommandRequest>,
) -> Result<Tagged, ApiError> {
    let manner = convert::manner(asked.wait, asked.if_busy);
    Ok(Tagged::after(service.in_manner(manner).terminate(&id).await?, manner.answer))
}

/// Terminate a sandbox
///
/// The same as `POST /v1/sandboxes/{id}/terminate`.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}", operation_id = "deleteSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The terminated sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn delete(ForRequest(service): ForRequest, Sandbox(id): Sandbox) -> Result<Tagged, ApiError> {
    Ok(service.terminate(&id).await?.into())
}
