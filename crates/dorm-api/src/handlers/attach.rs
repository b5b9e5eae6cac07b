//! Attaches volumes to sandboxes.

use dorm_api_types as wire;
use dorm_lifecycle::PlaceError;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::{self};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Query, Sandbox};
use crate::tagged::Tagged;

/// Parameters of a detachment.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DetachQuery {
    /// Path in the sandbox at which the volume is attached.
    path: String,
}

/// Attach a volume to a sandbox
///
/// A running sandbox gets the volume at once, any other sandbox at its next run.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/volumes", operation_id = "attachVolume", tag = "volumes",
    request_body = wire::AttachVolume,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn attach(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::AttachVolume>,
) -> Result<Tagged, ApiError> {
    Ok(service.attach(&id, convert::attach(asked)?).await?.into())
}

/// Detach a volume from a sandbox
///
/// A volume that programs in the sandbox are using stays attached, and the call returns an error.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/volumes", operation_id = "detachVolume", tag = "volumes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one."), DetachQuery),
    responses(
        (status = 200, description = "The sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn detach(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Query(DetachQuery { path }): Query<DetachQuery>,
) -> Result<Tagged, ApiError> {
    let path = path.parse().map_err(|error: PlaceError| ApiError::invalid(error.to_string(), ""))?;
    Ok(service.detach(&id, path).await?.into())
}
