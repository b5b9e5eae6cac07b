//! Explains the state of sandboxes.

use dorm_api_types as wire;

use crate::convert::{self};
use crate::error::ApiError;
use crate::extract::{ForRequest, Sandbox};

/// Explain the state of a sandbox
///
/// Why the sandbox is in its state, what happens next and when, and what is kept on disk for it.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/why", operation_id = "explainSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The explanation.", body = wire::Why),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn why(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
) -> Result<axum::Json<wire::Why>, ApiError> {
    Ok(axum::Json(convert::why(&id, service.why(&id).await?)))
}
