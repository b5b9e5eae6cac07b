//! Shows what sandboxes use.

use dorm_api_types as wire;
use dorm_lifecycle::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Query, Sandbox};

/// Get the resource usage of a sandbox
#[utoipa::path(get, path = "/v1/sandboxes/{id}/usage", operation_id = "getSandboxUsage", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The resources of the host that the sandbox uses now.", body = wire::Usage),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn usage(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
) -> Result<axum::Json<wire::Usage>, ApiError> {
    Ok(axum::Json(service.usage(&id).await?.convert()))
}

/// Parameters of the usage history.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// Only samples from this time on. Default: all that are kept.
    since: Option<wire::Time>,
    /// Only samples up to this time. Default: up to now.
    until: Option<wire::Time>,
}

/// Get the usage history of a sandbox
///
/// While a sandbox runs, its usage is measured on the host every 5 seconds and kept for an hour.
/// Nothing is measured for this request, and a suspended sandbox stays suspended.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/metrics", operation_id = "getSandboxMetrics", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one."), HistoryQuery),
    responses(
        (status = 200, description = "Samples of the usage in the last hour.", body = wire::UsageHistory),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn history(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Query(query): Query<HistoryQuery>,
) -> Result<axum::Json<wire::UsageHistory>, ApiError> {
    let moment = |time: wire::Time| Timestamp::from_millis(u64::try_from(time.0.as_millisecond()).unwrap_or(0));
    let samples = service.usage_history(&id, query.since.map(moment), query.until.map(moment)).await?;
    Ok(axum::Json(wire::UsageHistory {
        interval_secs: service.usage_every().map(|every| every.as_secs_f64()),
        samples: samples.into_iter().map(Convert::convert).collect(),
    }))
}
