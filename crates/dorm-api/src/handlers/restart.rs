//! Restarts terminated sandboxes.

use axum::http::StatusCode;
use dorm_api_types as wire;
use dorm_lifecycle::IdError;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox};

/// Recreate a terminated sandbox
///
/// Creates a sandbox from the newest snapshot of a terminated one, with its settings, variables,
/// labels and name.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/restart", operation_id = "restartSandbox", tag = "sandboxes",
    request_body = wire::RestartRequest,
    params(("id" = String, Path, description = "ID of the terminated sandbox.")),
    responses(
        (status = 201, description = "The new sandbox and the snapshot it was created from.", body = wire::Restarted),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn restart(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::RestartRequest>,
) -> Result<(StatusCode, axum::Json<wire::Restarted>), ApiError> {
    let name = asked.name.map(|name| name.parse()).transpose();
    let name = name.map_err(|error: IdError| ApiError::invalid(error.to_string(), ""))?;
    let made = service.restart(&id, name).await?;
    let restarted = wire::Restarted { sandbox: made.sandbox.convert(), snapshot: made.snapshot.to_string() };
    Ok((StatusCode::CREATED, axum::Json(restarted)))
}
