//! Changes properties of sandboxes, and their limits of CPU and memory.

use dorm_api_types as wire;

use crate::convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox, seconds};
use crate::tagged::Tagged;

/// Change properties of a sandbox
///
/// Changes all of the given properties or, on an error, none. Fields that are left out do not
/// change. New limits of CPU and memory are in effect at once, or when a suspended sandbox wakes.
#[utoipa::path(patch, path = "/v1/sandboxes/{id}", operation_id = "updateSandbox", tag = "sandboxes",
    request_body = wire::UpdateSandbox,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The sandbox with its new properties.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn update(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::UpdateSandbox>,
) -> Result<Tagged, ApiError> {
    Ok(match convert::resize(&asked)? {
        Some(wanted) => service.resize(&id, wanted).await?.into(),
        None => service.update(&id, convert::update(asked)?).await?.into(),
    })
}

/// Postpone the deadline of a sandbox
///
/// The deadline that `timeout_secs` of the sandbox sets is at least this time from now afterwards.
/// It is never brought forward, and a sandbox without this limit does not get one.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/extend", operation_id = "extendSandbox", tag = "sandboxes",
    request_body = wire::ExtendSandbox,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The sandbox with its deadline.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn extend(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::ExtendSandbox>,
) -> Result<Tagged, ApiError> {
    Ok(service.extend(&id, seconds("timeout_secs", asked.timeout_secs)?).await?.into())
}
