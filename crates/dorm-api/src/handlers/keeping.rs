//! What keeps a sandbox awake, and what is kept to bring it back.

use axum::extract::State;
use axum::http::StatusCode;
use dorm_lifecycle::IdError;

use crate::convert;
use crate::error::ApiError;
use crate::extract::{Hold, Json, Sandbox, seconds};
use crate::routes::Api;
use crate::wire;

/// The longest reason of a hold, in characters.
const REASON_MAX: usize = 200;

/// Keeps a sandbox awake for a while, whatever its time limits say; only that of the longest run still ends it. It does
/// not wake a suspended sandbox.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/holds", operation_id = "createHold", tag = "sandboxes",
    request_body = wire::HoldRequest,
    params(("id" = String, Path, description = "id, or name of a living sandbox")),
    responses(
        (status = 201, body = wire::Hold),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn hold(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::HoldRequest>,
) -> Result<(StatusCode, axum::Json<wire::Hold>), ApiError> {
    let ttl = seconds("ttl_secs", asked.ttl_secs)?;
    if ttl.is_zero() {
        return Err(ApiError::invalid("ttl_secs is 0: such a hold would hold nothing", "say for how long"));
    }
    if !(1..=REASON_MAX).contains(&asked.reason.chars().count()) {
        let message =
            format!("the reason has {} characters: it must have 1 to {REASON_MAX}", asked.reason.chars().count());
        return Err(ApiError::invalid(message, "say in a few words what the sandbox is needed for"));
    }
    let renew = asked.renew.map(|hold| hold.parse()).transpose();
    let renew = renew.map_err(|error: IdError| ApiError::invalid(format!("renew: {error}"), ""))?;
    let (_, hold) = api.service.hold(&id, ttl, asked.reason, renew).await?;
    Ok((StatusCode::CREATED, axum::Json(hold.into())))
}

/// Takes back a hold. One that is over is a success.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/holds/{hold}", operation_id = "deleteHold", tag = "sandboxes",
    params(
        ("id" = String, Path, description = "id, or name of a living sandbox"),
        ("hold" = String, Path, description = "the hold"),
    ),
    responses(
        (status = 200, body = wire::Sandbox),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn release(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Hold(hold): Hold,
) -> Result<axum::Json<wire::Sandbox>, ApiError> {
    Ok(axum::Json(api.service.release(&id, hold).await?.into()))
}

/// Changes how many sleep images are kept, and what happens when none of them can be restored.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/keeping", operation_id = "setRetention", tag = "sandboxes",
    request_body = wire::SetKeeping,
    params(("id" = String, Path, description = "id, or name of a living sandbox")),
    responses(
        (status = 200, body = wire::Sandbox),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn keeping(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::SetKeeping>,
) -> Result<axum::Json<wire::Sandbox>, ApiError> {
    let now = api.service.describe(&id).await?.sandbox.spec.keeping;
    let keeping = convert::keeping(asked.keep_generations, asked.on_unrestorable, now)?;
    Ok(axum::Json(api.service.set_keeping(&id, keeping).await?.into()))
}
