//! Operations.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use dorm_api_types as wire;
use dorm_lifecycle::{IdError, OperationId};
use dorm_store::OperationFilter;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Query, page_limit, parameter, seconds};
use crate::page::{Dated, cursor};
use crate::state::Api;

/// The operation of `{id}`.
pub(crate) struct Operation(OperationId);

impl FromRequestParts<Api> for Operation {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let id = parameter(parts, api, "id").await?;
        let hint = "list operations with GET /v1/operations";
        id.parse().map(Self).map_err(|error: IdError| ApiError::not_found(error.to_string(), hint))
    }
}

/// Parameters of the list of operations.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Only operations on this sandbox: its ID, or the name of a living one.
    sandbox: Option<String>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
    /// Largest number of items to return, 1 to 1000. Default 100.
    limit: Option<usize>,
}

/// List operations
///
/// Newest first. Ended operations are removed after the retention period of the daemon.
#[utoipa::path(get, path = "/v1/operations", operation_id = "listOperations", tag = "operations", params(ListQuery),
    responses(
        (status = 200, description = "One page of operations.", body = wire::OperationList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<wire::OperationList>, ApiError> {
    let limit = page_limit(query.limit)?;
    let after = query.after.as_deref().map(cursor::<Dated<OperationId>>).transpose()?;
    let sandbox = match &query.sandbox {
        Some(reference) => Some(service.find(reference).await?),
        None => None,
    };
    let filter = OperationFilter { project: None, sandbox, after: after.map(|Dated(began, id)| (began, id)), limit };
    let page = service.operation_page(&filter).await?;
    let next = page.next.map(|(began, id)| Dated(began, id).to_string());
    Ok(axum::Json(wire::OperationList {
        operations: page.operations.into_iter().map(Convert::convert).collect(),
        next,
    }))
}

/// The operation to wait for.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DescribeQuery {
    /// How many seconds to wait for the end of the operation, at most 600. Default 0.
    wait_secs: Option<f64>,
}

/// The longest wait for the end of an operation.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Get an operation
///
/// With `wait_secs`, the response comes when the operation has ended, or after that time.
#[utoipa::path(get, path = "/v1/operations/{id}", operation_id = "getOperation", tag = "operations",
    params(("id" = String, Path, description = "ID of the operation."), DescribeQuery),
    responses(
        (status = 200, description = "The operation.", body = wire::Operation),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    Operation(id): Operation,
    Query(query): Query<DescribeQuery>,
) -> Result<axum::Json<wire::Operation>, ApiError> {
    let wait = query.wait_secs.filter(|wait| *wait != 0.0).map(|wait| seconds("wait_secs", wait)).transpose()?;
    let wait = wait.unwrap_or_default().min(WAIT_MAX);
    Ok(axum::Json(service.operation_within(&id, wait).await?.convert()))
}
