//! Volumes and their attachments.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dorm_api_types as wire;
use dorm_lifecycle::IdError;
use dorm_service::Code;
use futures_util::StreamExt as _;
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;
use utoipa::IntoParams;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Query, page_limit, parameter};
use crate::state::Api;

/// The `{volume}` of a path: a name or an id.
pub(crate) struct Reference(String);

impl FromRequestParts<Api> for Reference {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        Ok(Self(parameter(parts, api, "volume").await?))
    }
}

/// A path on a volume.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PathQuery {
    /// Path relative to the root of the volume.
    path: String,
}

/// Create a volume
///
/// A volume is storage that outlives the sandboxes it is attached to.
#[utoipa::path(post, path = "/v1/volumes", operation_id = "createVolume", tag = "volumes",
    request_body = wire::CreateVolume,
    responses(
        (status = 201, description = "The volume.", body = wire::Volume),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn create(
    ForRequest(service): ForRequest,
    Json(asked): Json<wire::CreateVolume>,
) -> Result<(StatusCode, axum::Json<wire::Volume>), ApiError> {
    let wire::CreateVolume { name, size_bytes, writers } = asked;
    let name = name.parse().map_err(|error: IdError| ApiError::invalid(error.to_string(), ""))?;
    let writers = writers.map(Convert::convert).unwrap_or_default();
    let made = service.create_volume(name, size_bytes.unwrap_or(dorm_service::VOLUME_BYTES), writers).await?;
    Ok((StatusCode::CREATED, axum::Json(made.convert())))
}

/// Parameters of the list of volumes.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Cursor: `next` of the previous page.
    after: Option<String>,
    /// Largest number of items to return, 1 to 1000. Default 100.
    limit: Option<usize>,
}

/// List volumes
///
/// Ordered by name.
#[utoipa::path(get, path = "/v1/volumes", operation_id = "listVolumes", tag = "volumes", params(ListQuery), responses(
    (status = 200, description = "One page of volumes.", body = wire::VolumeList),
    (status = "default", response = ApiError),
))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<wire::VolumeList>, ApiError> {
    let after = query.after.map(|name| name.parse()).transpose();
    let after = after.map_err(|error: IdError| ApiError::invalid(format!("after: {error}"), ""))?;
    let (volumes, more) = service.volume_page(after.as_ref(), page_limit(query.limit)?).await?;
    let next = volumes.last().filter(|_| more).map(|last| last.volume.name.to_string());
    Ok(axum::Json(wire::VolumeList { volumes: volumes.into_iter().map(Convert::convert).collect(), next }))
}

/// Get a volume
#[utoipa::path(get, path = "/v1/volumes/{volume}", operation_id = "getVolume", tag = "volumes",
    params(("volume" = String, Path, description = "Name or ID of the volume.")),
    responses(
        (status = 200, description = "The volume.", body = wire::Volume),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    Reference(volume): Reference,
) -> Result<axum::Json<wire::Volume>, ApiError> {
    Ok(axum::Json(service.volume(&volume).await?.convert()))
}

/// Delete a volume and its contents
///
/// A volume cannot be deleted while it is attached to a living sandbox.
#[utoipa::path(delete, path = "/v1/volumes/{volume}", operation_id = "deleteVolume", tag = "volumes",
    params(("volume" = String, Path, description = "Name or ID of the volume.")),
    responses(
        (status = 204, description = "The volume is deleted."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn delete(
    ForRequest(service): ForRequest,
    Reference(volume): Reference,
) -> Result<StatusCode, ApiError> {
    service.remove_volume(&volume).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Read a file on a volume
///
/// Follows symbolic links that stay on the volume.
#[utoipa::path(get, path = "/v1/volumes/{volume}/files", operation_id = "readVolumeFile", tag = "volumes",
    params(("volume" = String, Path, description = "Name or ID of the volume."), PathQuery),
    responses(
        (status = 200, description = "The contents of the file.",
            content_type = "application/octet-stream", body = wire::Binary),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn read(
    ForRequest(service): ForRequest,
    Reference(volume): Reference,
    Query(PathQuery { path }): Query<PathQuery>,
) -> Result<Response, ApiError> {
    let (file, using) = service.read_volume(&volume, &path).await?;
    let contents = ReaderStream::with_capacity(tokio::fs::File::from_std(file), 256 << 10);
    // The file is closed before the volume is released.
    let contents = contents.map(move |piece| {
        let _using = &using;
        piece
    });
    let mut response = Body::from_stream(contents).into_response();
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Write a file on a volume
///
/// The body is the new contents. The file is replaced atomically: readers see the old or the new
/// contents, and an incomplete request changes nothing.
#[utoipa::path(put, path = "/v1/volumes/{volume}/files", operation_id = "writeVolumeFile", tag = "volumes",
    request_body(content = wire::Binary, content_type = "application/octet-stream"),
    params(("volume" = String, Path, description = "Name or ID of the volume."), PathQuery),
    responses(
        (status = 204, description = "The file is written."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn write(
    ForRequest(service): ForRequest,
    Reference(volume): Reference,
    Query(PathQuery { path }): Query<PathQuery>,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let (new, _using) = service.write_volume(&volume, &path).await?;
    // An unfinished file is discarded before the volume is released.
    let mut new = new;
    let told = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            let message = format!("no space left for '{path}' on volume '{volume}'");
            ApiError::new(Code::NoRoom, message, "delete files on the volume")
        }
        _ => ApiError::invalid(format!("cannot write '{path}' on volume '{volume}': {error}"), ""),
    };
    let mut file = tokio::fs::File::from_std(new.take().map_err(|error| ApiError::invalid(error.to_string(), ""))?);
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| ApiError::invalid(format!("the request body ended early: {error}"), ""))?;
        file.write_all(&piece).await.map_err(told)?;
    }
    file.flush().await.map_err(told)?;
    drop(file);
    let finished = tokio::task::spawn_blocking(move || new.finish()).await;
    match finished {
        Ok(Ok(_)) => Ok(StatusCode::NO_CONTENT),
        Ok(Err(error)) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            Err(ApiError::invalid(format!("{error}{cause}"), ""))
        }
        Err(_) => Err(dorm_service::ServiceError::Stopping.into()),
    }
}

/// List a directory on a volume
#[utoipa::path(get, path = "/v1/volumes/{volume}/files/list", operation_id = "listVolumeFiles", tag = "volumes",
    params(("volume" = String, Path, description = "Name or ID of the volume."), PathQuery),
    responses(
        (status = 200, description = "The entries of the directory.", body = wire::VolumeFiles),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn files(
    ForRequest(service): ForRequest,
    Reference(volume): Reference,
    Query(PathQuery { path }): Query<PathQuery>,
) -> Result<axum::Json<wire::VolumeFiles>, ApiError> {
    let entries = service.list_volume(&volume, &path).await?;
    Ok(axum::Json(wire::VolumeFiles { entries: entries.into_iter().map(Convert::convert).collect() }))
}
