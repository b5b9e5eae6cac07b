//! Resumes sandboxes.

use dorm_api_types as wire;
use dorm_lifecycle::Initiator;

use crate::error::ApiError;
use crate::extract::{ForRequest, Sandbox};
use crate::tagged::Tagged;

/// Resume a suspended sandbox
///
/// The sandbox continues with the memory, processes and files it was suspended with.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/resume", operation_id = "resumeSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The running sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn resume(ForRequest(service): ForRequest, Sandbox(id): Sandbox) -> Result<Tagged, ApiError> {
    Ok(service.resume(&id, Initiator::User).await?.into())
}
