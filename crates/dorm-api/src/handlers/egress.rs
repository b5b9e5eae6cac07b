//! Changes the egress policy of sandboxes.

use dorm_api_types as wire;

use crate::convert::Convert as _;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox};
use crate::tagged::Tagged;

/// Replace the egress policy of a sandbox
///
/// A running sandbox has the new policy when the call returns: connections that it does not allow
/// have ended. A suspended sandbox has it before it runs again. A sandbox with the egress `none`
/// has no network device, so its policy cannot be changed, and no other can be changed to `none`.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/egress", operation_id = "setEgress", tag = "sandboxes",
    request_body = wire::SetEgress,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The sandbox with its new policy.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn egress(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::SetEgress>,
) -> Result<Tagged, ApiError> {
    Ok(service.set_egress(&id, asked.egress.convert()).await?.into())
}
