//! Holds, which keep sandboxes awake.

use axum::http::StatusCode;
use dorm_api_types as wire;
use dorm_lifecycle::IdError;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Hold, Json, Sandbox, seconds};
use crate::tagged::Tagged;

/// The longest reason of a hold, in characters.
const REASON_MAX: usize = 200;

/// Keep a sandbox awake
///
/// A hold prevents the total and idle timeouts from suspending or terminating the sandbox until the
/// hold expires. The limit on the length of a run, `max_run_secs`, still applies. A hold does not
/// resume a suspended sandbox.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/holds", operation_id = "createHold", tag = "sandboxes",
    request_body = wire::HoldRequest,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 201, description = "The new or renewed hold.", body = wire::Hold),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn hold(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::HoldRequest>,
) -> Result<(StatusCode, axum::Json<wire::Hold>), ApiError> {
    let ttl = seconds("ttl_secs", asked.ttl_secs)?;
    if ttl.is_zero() {
        return Err(ApiError::invalid("ttl_secs is 0", "give a duration of more than 0 seconds"));
    }
    if !(1..=REASON_MAX).contains(&asked.reason.chars().count()) {
        let message =
            format!("the reason has {} characters; it must have 1 to {REASON_MAX}", asked.reason.chars().count());
        return Err(ApiError::invalid(message, "describe in a few words what the sandbox is needed for"));
    }
    let renew = asked.renew.map(|hold| hold.parse()).transpose();
    let renew = renew.map_err(|error: IdError| ApiError::invalid(format!("renew: {error}"), ""))?;
    let (_, hold) = service.hold(&id, ttl, asked.reason, renew).await?;
    Ok((StatusCode::CREATED, axum::Json(hold.convert())))
}

/// Release a hold
///
/// Releasing a hold that has expired succeeds.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/holds/{hold}", operation_id = "deleteHold", tag = "sandboxes",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("hold" = String, Path, description = "ID of the hold."),
    ),
    responses(
        (status = 200, description = "The sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn release(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Hold(hold): Hold,
) -> Result<Tagged, ApiError> {
    Ok(service.release(&id, hold).await?.into())
}
