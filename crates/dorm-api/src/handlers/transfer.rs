//! Snapshots as files. Contents are passed on as they come, so that a snapshot of any size needs the same memory.

use std::collections::BTreeMap;
use std::io;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dorm_service::ImportSettings;
use futures_util::TryStreamExt as _;
use serde::Deserialize;
use utoipa::IntoParams;

use super::snapshots::Snapshot;
use crate::error::ApiError;
use crate::extract::{self, Query};
use crate::routes::Api;
use crate::wire;

/// A snapshot as one file, with all layers below it, to be imported on this host or another one. Its image is named in it,
/// and not part of it. The answer breaks off when the rest cannot be read; memory of sandboxes with secrets is refused.
#[utoipa::path(get, path = "/v1/snapshots/{id}/export", operation_id = "exportSnapshot", tag = "snapshots",
    params(("id" = String, Path, description = "snapshot id")),
    responses(
        (status = 200, content_type = "application/x-tar", body = Vec<u8>),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn export(State(api): State<Api>, Snapshot(id): Snapshot) -> Result<Response, ApiError> {
    let file = api.service.export_snapshot(&id).await?;
    let mut response = Body::from_stream(file.content).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    headers.insert(header::CONTENT_LENGTH, file.bytes.into());
    let name = HeaderValue::from_str(&format!("attachment; filename=\"{}\"", file.name)).ok();
    headers.extend(name.map(|name| (header::CONTENT_DISPOSITION, name)));
    Ok(response)
}

/// What an imported snapshot is to have.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportQuery {
    /// Labels beside those in the file and before them: a JSON object of texts.
    labels: Option<String>,
    /// After how many seconds it goes by itself; by default never.
    expires_secs: Option<f64>,
}

/// Takes in the file of a snapshot, the body. It gets an id of its own. Every byte is compared with what the file says of
/// it, and nothing is left of one that is refused. Memory of another build of the engine is taken in, too: its files can be
/// used.
#[utoipa::path(post, path = "/v1/snapshots/import", operation_id = "importSnapshot", tag = "snapshots",
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    params(ImportQuery),
    responses(
        (status = 201, body = wire::Snapshot),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn import(
    State(api): State<Api>,
    Query(query): Query<ImportQuery>,
    body: Body,
) -> Result<Response, ApiError> {
    let labels: BTreeMap<String, String> = match &query.labels {
        None => BTreeMap::new(),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| ApiError::invalid(format!("labels is no JSON object of texts: {error}"), ""))?,
    };
    let expires = query.expires_secs.map(|value| extract::seconds("expires_secs", value)).transpose()?;
    let body = body.into_data_stream().map_err(io::Error::other);
    let snapshot = api.service.import_snapshot(body, ImportSettings { labels, expires }).await?;
    Ok((StatusCode::CREATED, axum::Json(wire::Snapshot::from(snapshot))).into_response())
}

/// Makes a filesystem snapshot of the files of a memory snapshot, which stays. Nothing runs, and memory of another build of
/// the engine will do.
#[utoipa::path(post, path = "/v1/snapshots/{id}/files", operation_id = "extractSnapshotFiles", tag = "snapshots",
    params(("id" = String, Path, description = "snapshot id")),
    responses(
        (status = 201, body = wire::Snapshot),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn files(State(api): State<Api>, Snapshot(id): Snapshot) -> Result<Response, ApiError> {
    let snapshot = api.service.snapshot_of_files(&id).await?;
    Ok((StatusCode::CREATED, axum::Json(wire::Snapshot::from(snapshot))).into_response())
}
