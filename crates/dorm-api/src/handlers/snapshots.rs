//! Snapshots.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use dorm_api_types as wire;
use dorm_lifecycle::{IdError, SnapshotId};
use dorm_service::Service;
use dorm_store::{SnapshotFilter, SnapshotRecord};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Query, page_limit, parameter, service_of};
use crate::page::{Dated, cursor};
use crate::state::Api;

/// The snapshot of `{id}`: an id, or the name of one that can be used.
pub(crate) struct Snapshot(pub(super) SnapshotId);

impl FromRequestParts<Api> for Snapshot {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let id = parameter(parts, api, "id").await?;
        let found = service_of(parts)?.snapshot_id(&id).await?;
        let hint = "list snapshots with GET /v1/snapshots";
        found.map(Self).ok_or_else(|| ApiError::not_found(format!("there is no snapshot '{id}'"), hint))
    }
}

/// Parameters of the list of snapshots.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Only snapshots taken from the sandbox with this ID.
    source: Option<String>,
    /// Only the snapshot that holds this name.
    name: Option<String>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
    /// Largest number of items to return, 1 to 1000. Default 100.
    limit: Option<usize>,
}

/// List snapshots
///
/// Ordered by creation time.
#[utoipa::path(get, path = "/v1/snapshots", operation_id = "listSnapshots", tag = "snapshots", params(ListQuery),
    responses(
        (status = 200, description = "One page of snapshots.", body = wire::SnapshotList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<wire::SnapshotList>, ApiError> {
    let source = query.source.map(|source| source.parse()).transpose();
    let source = source.map_err(|error: IdError| ApiError::invalid(format!("source: {error}"), ""))?;
    let after = query.after.as_deref().map(cursor::<Dated<SnapshotId>>).transpose()?;
    let after = after.map(|Dated(created, id)| (created, id));
    let name = query.name.map(|name| name.parse()).transpose();
    let name = name.map_err(|error: IdError| ApiError::invalid(format!("name: {error}"), ""))?;
    let filter = SnapshotFilter { source, name, after, limit: page_limit(query.limit)?, ..SnapshotFilter::default() };
    let page = service.snapshot_page(&filter).await?;
    let mut snapshots = Vec::new();
    for snapshot in page.snapshots {
        snapshots.push(sized(&service, snapshot).await);
    }
    let next = page.next.map(|(created, id)| Dated(created, id).to_string());
    Ok(axum::Json(wire::SnapshotList { snapshots, next }))
}

async fn sized(service: &Service, snapshot: SnapshotRecord) -> wire::Snapshot {
    let sizes = service.snapshot_sizes(&snapshot).await;
    let (alone_bytes, shared_bytes) = (sizes.map(|sizes| sizes.alone), sizes.map(|sizes| sizes.shared));
    wire::Snapshot { alone_bytes, shared_bytes, ..snapshot.convert() }
}

/// Get a snapshot
#[utoipa::path(get, path = "/v1/snapshots/{id}", operation_id = "getSnapshot", tag = "snapshots",
    params(("id" = String, Path, description = "ID of the snapshot, or name of one that can be used.")),
    responses(
        (status = 200, description = "The snapshot.", body = wire::Snapshot),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    Snapshot(id): Snapshot,
) -> Result<axum::Json<wire::Snapshot>, ApiError> {
    let snapshot = service.snapshot(&id).await?;
    let held_by = Some(service.holders(&snapshot).await?);
    Ok(axum::Json(wire::Snapshot { held_by, ..sized(&service, snapshot).await }))
}

/// Parameters of a deletion.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteQuery {
    /// If the snapshot is in use, delete it when it no longer is, instead of returning an error.
    /// Default: false.
    #[serde(default)]
    when_free: bool,
}

/// Delete a snapshot
///
/// Sandboxes that were created from a memory snapshot are not affected. A snapshot is in use, and
/// deleting it is an error, while a sandbox starts from it or depends on its filesystem layer.
#[utoipa::path(delete, path = "/v1/snapshots/{id}", operation_id = "deleteSnapshot", tag = "snapshots",
    params(("id" = String, Path, description = "ID of the snapshot, or name of one that can be used."), DeleteQuery),
    responses(
        (status = 204, description = "The snapshot is deleted, or will be when it is no longer in use."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn delete(
    ForRequest(service): ForRequest,
    Snapshot(id): Snapshot,
    Query(how): Query<DeleteQuery>,
) -> Result<StatusCode, ApiError> {
    match how.when_free {
        true => service.delete_snapshot_when_free(&id).await?,
        false => service.delete_snapshot(&id).await?,
    }
    Ok(StatusCode::NO_CONTENT)
}
