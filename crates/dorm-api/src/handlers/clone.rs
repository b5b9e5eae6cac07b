//! Clones sandboxes.

use axum::http::StatusCode;
use dorm_api_types as wire;
use dorm_lifecycle::IdError;

use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox};

/// Clone a sandbox
///
/// Takes a memory snapshot and creates a sandbox from it, with the settings and variables of the
/// source. The snapshot is kept.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/clone", operation_id = "cloneSandbox", tag = "sandboxes",
    request_body = wire::CloneRequest,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 201, description = "The new sandbox and the snapshot it was created from.", body = wire::Cloned),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn clone(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::CloneRequest>,
) -> Result<(StatusCode, axum::Json<wire::Cloned>), ApiError> {
    let name = asked.name.map(|name| name.parse()).transpose();
    let name = name.map_err(|error: IdError| ApiError::invalid(error.to_string(), ""))?;
    let made = service.clone_with(&id, name, &convert::secrets(asked.secrets), asked.volumes.convert()).await?;
    let cloned = wire::Cloned { sandbox: made.clone.convert(), snapshot: made.snapshot.convert() };
    Ok((StatusCode::CREATED, axum::Json(cloned)))
}
