//! The retention of sleep images.

use dorm_api_types as wire;

use crate::convert::{self};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox};
use crate::tagged::Tagged;

/// Set how many sleep images are kept
///
/// Also sets what happens if none of them can be restored. Fields that are left out do not change.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/retention", operation_id = "setRetention", tag = "sandboxes",
    request_body = wire::SetRetention,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The sandbox with its new settings.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn retention(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::SetRetention>,
) -> Result<Tagged, ApiError> {
    let now = service.describe(&id).await?.sandbox.spec.retention;
    let retention = convert::retention(asked.keep_generations, asked.on_unrestorable, now)?;
    Ok(service.set_retention(&id, retention).await?.into())
}
