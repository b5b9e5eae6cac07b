//! Takes snapshots of sandboxes.

use axum::http::StatusCode;
use dorm_api_types as wire;
use dorm_lifecycle::IdError;
use dorm_service::CheckpointSpec;

use crate::convert::Convert;
use crate::error::{ApiError, ErrorCode};
use crate::extract::{ForRequest, Json, Sandbox, UsesNames, seconds};

/// Take a snapshot of a sandbox
///
/// A running sandbox continues to run, and a suspended sandbox stays suspended. By default the call
/// responds when the snapshot is on disk and verified. With `"wait": false` it responds at once;
/// poll the snapshot until its status is no longer `in_progress`. A key for one sandbox cannot give
/// the snapshot a name.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/checkpoint", operation_id = "checkpointSandbox", tag = "snapshots",
    request_body = wire::CheckpointRequest,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 201, description = "The completed snapshot.", body = wire::Snapshot),
        (status = 202, description = "The snapshot in progress.", body = wire::Snapshot),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn checkpoint(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    UsesNames(uses_names): UsesNames,
    Json(asked): Json<wire::CheckpointRequest>,
) -> Result<(StatusCode, axum::Json<wire::Snapshot>), ApiError> {
    if asked.name.is_some() && !uses_names {
        let detail = "this key gives access to one sandbox only, and names of snapshots belong to the project";
        let hint = "take the snapshot without a name, or use a key with access to the whole project";
        return Err(ApiError::new(ErrorCode::Forbidden, detail, hint));
    }
    let expires = asked.expires_secs.map(|value| seconds("expires_secs", value)).transpose()?;
    let name = asked.name.map(|name| name.parse()).transpose();
    let name = name.map_err(|error: IdError| ApiError::invalid(error.to_string(), ""))?;
    let settings = CheckpointSpec { kind: asked.kind.convert(), name, labels: asked.labels, expires };
    match asked.wait {
        true => Ok((StatusCode::CREATED, axum::Json(service.checkpoint_as(&id, settings).await?.convert()))),
        false => Ok((StatusCode::ACCEPTED, axum::Json(service.begin_checkpoint(&id, settings).await?.convert()))),
    }
}
