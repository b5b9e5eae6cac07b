//! Promotes children.

use dorm_api_types as wire;

use super::rewind::keep;
use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox};

/// Replace a sandbox with its child
///
/// The parent, which is the sandbox that the child was created from, continues with the memory,
/// processes and files of the child and keeps its own id, name, ports and settings. The child is
/// terminated. If the promotion fails, both sandboxes continue unchanged.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/promote", operation_id = "promoteSandbox", tag = "sandboxes",
    request_body = wire::PromoteRequest,
    params(("id" = String, Path, description = "ID of the child, or its name.")),
    responses(
        (status = 200, description = "The parent, running with the child's state.", body = wire::Promoted),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn promote(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::PromoteRequest>,
) -> Result<axum::Json<wire::Promoted>, ApiError> {
    let done = service.promote(&id, keep(asked.keep_secs, asked.keep)?).await?;
    Ok(axum::Json(wire::Promoted {
        sandbox: done.sandbox.convert(),
        child: done.child.to_string(),
        future: done.future.map(|future| future.to_string()),
    }))
}
