//! Snapshots that are taken by themselves.

use axum::extract::State;

use crate::convert;
use crate::error::ApiError;
use crate::extract::{Json, Sandbox};
use crate::routes::Api;
use crate::wire;

/// Changes which snapshots are taken of a sandbox by themselves, and which of those are kept. They are taken while it runs
/// and has been used since the last one. Snapshots that somebody asked for are never removed by it.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/checkpoints", operation_id = "setCheckpointPolicy", tag = "sandboxes",
    request_body = wire::SetCheckpoints,
    params(("id" = String, Path, description = "id, or name of a living sandbox")),
    responses(
        (status = 200, body = wire::Sandbox),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn checkpoints(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::SetCheckpoints>,
) -> Result<axum::Json<wire::Sandbox>, ApiError> {
    let wire::SetCheckpoints { every_secs, kind, keep, off } = asked;
    let asked = wire::CheckpointsRequest { every_secs, kind, keep };
    let checkpoints = match (off, asked == wire::CheckpointsRequest::default()) {
        (true, true) => None,
        (true, false) => {
            let message = "off is given together with how checkpoints are to be taken";
            return Err(ApiError::invalid(message, "give one or the other"));
        }
        (false, true) => {
            let message = "nothing is said of how checkpoints are to be taken";
            return Err(ApiError::invalid(message, "give every_secs, kind, keep, or off"));
        }
        (false, false) => {
            let now = api.service.describe(&id).await?.sandbox.spec.checkpoints;
            Some(convert::checkpoints(asked, now)?)
        }
    };
    Ok(axum::Json(api.service.set_checkpoints(&id, checkpoints).await?.into()))
}
