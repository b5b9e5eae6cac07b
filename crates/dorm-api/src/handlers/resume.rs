//! Resumes sandboxes.

use dorm_api_types as wire;
use dorm_lifecycle::Initiator;
use dorm_service::ResumeSpec;

use crate::convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox, seconds};
use crate::tagged::Tagged;

/// Resume a suspended sandbox
///
/// The sandbox continues with the memory, processes and files it was suspended with.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/resume", operation_id = "resumeSandbox", tag = "sandboxes",
    request_body = Option<wire::ResumeRequest>,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The running sandbox.", body = wire::Sandbox),
        (status = 202, description = "The sandbox with the operation that has begun.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn resume(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::ResumeRequest>,
) -> Result<Tagged, ApiError> {
    let total = asked.timeout_secs.map(|value| seconds("timeout_secs", value)).transpose()?;
    let manner = convert::manner(asked.wait, asked.if_busy);
    let asked = ResumeSpec { total, max_wait: convert::wait(asked.max_wait_secs)? };
    let resumed = service.in_manner(manner).resume_as(&id, Initiator::User, asked).await?;
    Ok(Tagged::after(resumed, manner.answer))
}
