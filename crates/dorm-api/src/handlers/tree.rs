//! Lineage.

use axum::extract::State;
use dorm_service::TreeFilter;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ApiError;
use crate::extract::Query;
use crate::routes::Api;
use crate::wire;

/// What is shown of it.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TreeQuery {
    /// Only the tree to which this sandbox belongs, from its root: its id, or its name while it lives.
    sandbox: Option<String>,
    /// Also what is over and has nothing left below it. Default: no.
    #[serde(default)]
    all: bool,
}

/// Who comes from whom: sandboxes that began from snapshots, and the sandboxes of which those were taken.
#[utoipa::path(get, path = "/v1/tree", operation_id = "getTree", tag = "sandboxes", params(TreeQuery), responses(
    (status = 200, body = wire::Tree),
    (status = "default", body = wire::ErrorAnswer, description = "an error"),
))]
pub(crate) async fn tree(
    State(api): State<Api>,
    Query(query): Query<TreeQuery>,
) -> Result<axum::Json<wire::Tree>, ApiError> {
    let sandbox = match &query.sandbox {
        Some(reference) => Some(api.service.find(reference).await?),
        None => None,
    };
    let nodes = api.service.tree(&TreeFilter { sandbox, all: query.all }).await?;
    Ok(axum::Json(wire::Tree { nodes: nodes.into_iter().map(Into::into).collect() }))
}
