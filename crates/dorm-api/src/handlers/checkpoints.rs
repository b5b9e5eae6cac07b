//! Automatic checkpoints.

use dorm_api_types as wire;

use crate::convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox};
use crate::tagged::Tagged;

/// Set the automatic checkpoint policy
///
/// Automatic checkpoints are taken while the sandbox runs, if it was used since the last one. The
/// retention rule deletes only automatic snapshots, never those that were requested.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/checkpoints", operation_id = "setCheckpointPolicy", tag = "sandboxes",
    request_body = wire::SetCheckpoints,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The sandbox with its new policy.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn checkpoints(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::SetCheckpoints>,
) -> Result<Tagged, ApiError> {
    let wire::SetCheckpoints { every_secs, kind, keep, off } = asked;
    let asked = wire::CheckpointsRequest { every_secs, kind, keep };
    let checkpoints = match (off, asked == wire::CheckpointsRequest::default()) {
        (true, true) => None,
        (true, false) => {
            let message = "off cannot be combined with every_secs, kind or keep";
            return Err(ApiError::invalid(message, "leave out off, or give only off"));
        }
        (false, true) => {
            let message = "the policy is empty";
            return Err(ApiError::invalid(message, "give every_secs, kind, keep, or off"));
        }
        (false, false) => {
            let now = service.describe(&id).await?.sandbox.spec.checkpoints;
            Some(convert::checkpoints(asked, now)?)
        }
    };
    Ok(service.set_checkpoints(&id, checkpoints).await?.into())
}
