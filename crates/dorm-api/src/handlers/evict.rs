//! Releases the memory of suspended sandboxes.

use dorm_api_types as wire;

use crate::error::ApiError;
use crate::extract::{ForRequest, Sandbox};
use crate::tagged::Tagged;

/// Release the memory of a suspended sandbox
///
/// A suspended sandbox may be parked: its memory is still held for a faster resume. This call
/// releases that memory and leaves the sleep image on disk. It has no effect on a sandbox that is
/// not parked.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/evict", operation_id = "evictSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn evict(ForRequest(service): ForRequest, Sandbox(id): Sandbox) -> Result<Tagged, ApiError> {
    Ok(service.evict(&id).await?.into())
}
