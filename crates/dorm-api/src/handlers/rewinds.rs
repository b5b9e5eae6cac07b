//! Rewinds, restarts and promotions.

use axum::http::StatusCode;
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
/// files. The state before the rewind is kept as a snapshot for a limited time. If the rewind
/// fails, the sandbox keeps its previous state.
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

fn keep(secs: Option<f64>, keep: Option<wire::Keep>) -> Result<KeepFuture, ApiError> {
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
