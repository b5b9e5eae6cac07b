//! Sets the time limits of sandboxes.

use dorm_api_types as wire;
use dorm_lifecycle::Timeouts;

use crate::convert::{self};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox};
use crate::tagged::Tagged;

/// Replace the time limits of a sandbox
///
/// The new limits count from now, except `max_run_secs`, which counts from the start of the run.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/timeouts", operation_id = "setTimeouts", tag = "sandboxes",
    request_body = wire::SetTimeouts,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The sandbox with its new limits.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn timeouts(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::SetTimeouts>,
) -> Result<Tagged, ApiError> {
    let timeouts = convert::timeouts(asked.timeout_secs, asked.idle_timeout_secs, asked.max_run_secs)?;
    let timeouts = Timeouts { after_wake: convert::after_wake(asked.timeout_after_wake_secs)?, ..timeouts };
    Ok(service.set_timeouts(&id, timeouts).await?.into())
}
