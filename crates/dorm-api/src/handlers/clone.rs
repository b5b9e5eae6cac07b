//! Clones sandboxes.

use axum::http::StatusCode;
use dorm_api_types as wire;

use super::fork::child;
use crate::convert::Convert;
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
    let wire::CloneRequest {
        name,
        env,
        labels,
        timeout_secs,
        idle_timeout_secs,
        max_run_secs,
        on_timeout,
        secrets,
        volumes,
    } = asked;
    let asked =
        wire::ForkChild { name, env, labels, timeout_secs, idle_timeout_secs, max_run_secs, on_timeout, secrets };
    let made = service.clone_with(&id, child(asked)?, volumes.convert()).await?;
    let cloned = wire::Cloned { sandbox: made.clone.convert(), snapshot: made.snapshot.convert() };
    Ok((StatusCode::CREATED, axum::Json(cloned)))
}
