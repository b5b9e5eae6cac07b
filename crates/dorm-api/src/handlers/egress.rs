//! Changes the egress policy of sandboxes.

use dorm_api_types as wire;

use crate::convert::Convert as _;
use crate::error::{ApiError, ErrorCode};
use crate::extract::{ForRequest, Json, Sandbox, UsesNames};
use crate::tagged::Tagged;

/// Replace the egress policy of a sandbox
///
/// A running sandbox has the new policy when the call returns: connections that it does not allow
/// have ended. A suspended sandbox has it before it runs again. A sandbox with the egress `none`
/// has no network device, so its policy cannot be changed, and no other can be changed to `none`. A
/// key for one sandbox cannot add header rules.
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
    UsesNames(uses_names): UsesNames,
    Json(asked): Json<wire::SetEgress>,
) -> Result<Tagged, ApiError> {
    if !uses_names {
        let present: wire::Egress = service.describe(&id).await?.sandbox.spec.egress.convert();
        let present = headers(&present);
        if headers(&asked.egress).iter().any(|header| !present.contains(header)) {
            let detail = "this key gives access to one sandbox only, and header rules name secrets of the project";
            let hint = "keep the header rules as they are, or use a key with access to the whole project";
            return Err(ApiError::new(ErrorCode::Forbidden, detail, hint));
        }
    }
    Ok(service.set_egress(&id, asked.egress.convert()).await?.into())
}

fn headers(egress: &wire::Egress) -> &[wire::HeaderRule] {
    match egress {
        wire::Egress::Ordered(wire::EgressRules { headers, .. }) => headers,
        wire::Egress::Public | wire::Egress::Closed | wire::Egress::None | wire::Egress::Allow(_) => &[],
    }
}
