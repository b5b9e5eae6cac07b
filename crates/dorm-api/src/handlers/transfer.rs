//! Snapshots as files. Contents are streamed, so memory use does not depend on the size of a
//! snapshot.

use std::collections::BTreeMap;
use std::io;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dorm_api_types as wire;
use dorm_service::ImportSpec;
use futures_util::TryStreamExt as _;
use serde::Deserialize;
use utoipa::IntoParams;

use super::snapshots::Snapshot;
use crate::convert::Of;
use crate::error::ApiError;
use crate::extract::{self, ForRequest, Query};

/// Export a snapshot as a file
///
/// One tar archive with the snapshot and all layers below it, which any Dormouse host can import.
/// The archive names the image but does not contain it. Memory snapshots of sandboxes with secrets
/// are refused. The response is cut off if the rest cannot be read.
#[utoipa::path(get, path = "/v1/snapshots/{id}/export", operation_id = "exportSnapshot", tag = "snapshots",
    params(("id" = String, Path, description = "ID of the snapshot, or name of one that can be used.")),
    responses(
        (status = 200, description = "The archive.", content_type = "application/x-tar", body = wire::Binary),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn export(ForRequest(service): ForRequest, Snapshot(id): Snapshot) -> Result<Response, ApiError> {
    let file = service.export_snapshot(&id).await?;
    let mut response = Body::from_stream(file.content).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    headers.insert(header::CONTENT_LENGTH, file.bytes.into());
    let name = HeaderValue::from_str(&format!("attachment; filename=\"{}\"", file.name)).ok();
    headers.extend(name.map(|name| (header::CONTENT_DISPOSITION, name)));
    Ok(response)
}

/// Settings of the imported snapshot.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportQuery {
    /// Labels to add to those in the archive: a JSON object of strings. They override labels of the
    /// same key.
    labels: Option<String>,
    /// Delete the snapshot automatically after this many seconds. Default: never.
    expires_secs: Option<f64>,
}

/// Import a snapshot from a file
///
/// The body is an exported archive. The snapshot gets a new id. Every byte is verified against the
/// archive's own digests; if the import is refused, nothing is kept. A memory snapshot of another
/// build of the engine can be imported, but only its files can be used.
#[utoipa::path(post, path = "/v1/snapshots/import", operation_id = "importSnapshot", tag = "snapshots",
    request_body(content = wire::Binary, content_type = "application/x-tar"),
    params(ImportQuery),
    responses(
        (status = 201, description = "The imported snapshot.", body = wire::Snapshot),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn import(
    ForRequest(service): ForRequest,
    Query(query): Query<ImportQuery>,
    body: Body,
) -> Result<Response, ApiError> {
    let labels: BTreeMap<String, String> = match &query.labels {
        None => BTreeMap::new(),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| ApiError::invalid(format!("labels is not a JSON object of strings: {error}"), ""))?,
    };
    let expires = query.expires_secs.map(|value| extract::seconds("expires_secs", value)).transpose()?;
    let body = body.into_data_stream().map_err(io::Error::other);
    let snapshot = service.import_snapshot(body, ImportSpec { labels, expires }).await?;
    Ok((StatusCode::CREATED, axum::Json(wire::Snapshot::of(snapshot))).into_response())
}

/// Create a filesystem snapshot from a memory snapshot
///
/// Extracts the files and keeps the memory snapshot. No sandbox runs for this, and it works for
/// memory snapshots of another build of the engine.
#[utoipa::path(post, path = "/v1/snapshots/{id}/files", operation_id = "extractSnapshotFiles", tag = "snapshots",
    params(("id" = String, Path, description = "ID of the snapshot, or name of one that can be used.")),
    responses(
        (status = 201, description = "The filesystem snapshot.", body = wire::Snapshot),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn files(ForRequest(service): ForRequest, Snapshot(id): Snapshot) -> Result<Response, ApiError> {
    let snapshot = service.snapshot_of_files(&id).await?;
    Ok((StatusCode::CREATED, axum::Json(wire::Snapshot::of(snapshot))).into_response())
}
