//! Suspends sandboxes.

use dorm_api_types as wire;

use crate::error::ApiError;
use crate::extract::{ForRequest, Sandbox};
use crate::tagged::Tagged;

/// Suspend a sandbox
///
/// Saves the memory, processes and files of a running sandbox. When this call responds, they are on
/// disk and verified.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/suspend", operation_id = "suspendSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The suspended sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn suspend(ForRequest(service): ForRequest, Sandbox(id): Sandbox) -> Result<Tagged, ApiError> {
    Ok(service.suspend(&id).await?.into())
}
