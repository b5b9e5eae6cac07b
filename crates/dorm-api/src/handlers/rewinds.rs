//! Going back: rewinds, restarts and promotions.

use axum::extract::State;
use axum::http::StatusCode;
use dorm_lifecycle::{IdError, SnapshotId};
use dorm_service::KeepFuture;

use crate::error::ApiError;
use crate::extract::{Json, Sandbox, seconds};
use crate::routes::Api;
use crate::wire;

/// Takes a running or suspended sandbox back to a snapshot, in place: it keeps its id, name, ports and settings, and runs
/// with the files of the snapshot, and with its memory and processes if it is a memory snapshot; after a filesystem
/// snapshot it boots. What it was until then is kept as a snapshot for a while. When that fails it is where it was.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/rewind", operation_id = "rewindSandbox", tag = "sandboxes",
    request_body = wire::RewindRequest,
    params(("id" = String, Path, description = "id, or name of a living sandbox")),
    responses(
        (status = 200, body = wire::Rewound),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn rewind(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::RewindRequest>,
) -> Result<axum::Json<wire::Rewound>, ApiError> {
    let to: Result<SnapshotId, IdError> = asked.to.parse();
    let to = to.map_err(|error| ApiError::invalid(error.to_string(), ""))?;
    let done = api.service.rewind(&id, &to, keep(asked.keep_secs, asked.keep)?).await?;
    Ok(axum::Json(wire::Rewound {
        sandbox: done.sandbox.into(),
        to: done.to.to_string(),
        future: done.future.map(|future| future.to_string()),
    }))
}

/// Makes a new sandbox of a terminated one's newest snapshot, with its settings, variables, labels and name.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/restart", operation_id = "restartSandbox", tag = "sandboxes",
    request_body = wire::RestartRequest,
    params(("id" = String, Path, description = "id")),
    responses(
        (status = 201, body = wire::Restarted),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn restart(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::RestartRequest>,
) -> Result<(StatusCode, axum::Json<wire::Restarted>), ApiError> {
    let name = asked.name.map(|name| name.parse()).transpose();
    let name = name.map_err(|error: IdError| ApiError::invalid(error.to_string(), ""))?;
    let made = api.service.restart(&id, name).await?;
    let restarted = wire::Restarted { sandbox: made.sandbox.into(), snapshot: made.snapshot.to_string() };
    Ok((StatusCode::CREATED, axum::Json(restarted)))
}

/// Puts a child in the place of the sandbox it was made from, which goes on with the child's memory, processes and files
/// under its own id, name, ports and settings. The child is terminated. When that fails both go on as they were.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/promote", operation_id = "promoteSandbox", tag = "sandboxes",
    request_body = wire::PromoteRequest,
    params(("id" = String, Path, description = "the child: id, or name of a living sandbox")),
    responses(
        (status = 200, body = wire::Promoted),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn promote(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::PromoteRequest>,
) -> Result<axum::Json<wire::Promoted>, ApiError> {
    let done = api.service.promote(&id, keep(asked.keep_secs, asked.keep)?).await?;
    Ok(axum::Json(wire::Promoted {
        sandbox: done.sandbox.into(),
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
            let message = "either keep_secs or keep says how long the future is kept, not both";
            Err(ApiError::invalid(message, "leave one out"))
        }
    }
}
