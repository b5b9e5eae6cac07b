//! Lineage.

use dorm_api_types as wire;
use dorm_service::TreeFilter;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Query};

/// Parameters of the tree.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TreeQuery {
    /// Only the tree that contains this sandbox, from its root: its ID, or the name of a living
    /// one.
    sandbox: Option<String>,
    /// Also show terminated sandboxes and deleted snapshots that have no living descendants.
    /// Default: false.
    #[serde(default)]
    all: bool,
}

/// Get the lineage of sandboxes and snapshots
///
/// Shows the snapshot that each sandbox was created from, and the sandbox that each snapshot was
/// taken from.
#[utoipa::path(get, path = "/v1/tree", operation_id = "getTree", tag = "sandboxes", params(TreeQuery), responses(
    (status = 200, description = "The lines of the tree.", body = wire::Tree),
    (status = "default", response = ApiError),
))]
pub(crate) async fn tree(
    ForRequest(service): ForRequest,
    Query(query): Query<TreeQuery>,
) -> Result<axum::Json<wire::Tree>, ApiError> {
    let sandbox = match &query.sandbox {
        Some(reference) => Some(service.find(reference).await?),
        None => None,
    };
    let nodes = service.tree(&TreeFilter { sandbox, all: query.all }).await?;
    Ok(axum::Json(wire::Tree { nodes: nodes.into_iter().map(Convert::convert).collect() }))
}
