//! Rewinds sandboxes.

use dorm_api_types as wire;
use dorm_lifecycle::{IdError, SnapshotId};
use dorm_service::KeepFuture;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox, seconds};

/// Rewind a sandbox to a snapshot
///
/// Replaces the state of a running or suspended sandbox with that of a snapshot, in place: id,
/// name, ports and settings stay the same. After a memory snapshot the sandbox continues with the
/// snapshot's memory, processes and files; after a filesystem snapshot it boots from the snapshot's
/// files. The state before the rewind is kept as a snapshot for a limited time. A running sandbox
/// is paused for the rewind, and that snapshot is completed a moment after the answer. If the
/// rewind fails, the sandbox keeps its previous state.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/rewind", operation_id = "rewindSandbox", tag = "sandboxes",
    request_body = wire::RewindRequest,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The running sandbox.", body = wire::Rewound),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn rewind(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::RewindRequest>,
) -> Result<axum::Json<wire::Rewound>, ApiError> {
    let to: Result<SnapshotId, IdError> = asked.to.parse();
    let to = to.map_err(|error| ApiError::invalid(error.to_string(), ""))?;
    let done = service.rewind(&id, &to, keep(asked.keep_secs, asked.keep)?).await?;
    Ok(axum::Json(wire::Rewound {
        sandbox: done.sandbox.convert(),
        to: done.to.to_string(),
        future: done.future.map(|future| future.to_string()),
    }))
}

pub(super) fn keep(secs: Option<f64>, keep: Option<wire::Keep>) -> Result<KeepFuture, ApiError> {
    match (secs, keep) {
        (None, None) => Ok(KeepFuture::default()),
        (Some(secs), None) => Ok(KeepFuture::For(seconds("keep_secs", secs)?)),
        (None, Some(wire::Keep::Forever)) => Ok(KeepFuture::UntilDeleted),
        (None, Some(wire::Keep::None)) => Ok(KeepFuture::Not),
        (Some(_), Some(_)) => {
            let message = "give either keep_secs or keep, not both";
            Err(ApiError::invalid(message, "leave one out"))
        }
    }
}
