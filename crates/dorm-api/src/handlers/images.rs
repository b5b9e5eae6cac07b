//! Images: from files, from registries, into files. Paths of the daemon's host are taken from its owner alone; others send
//! and receive the bytes, which are passed on as they come.

use std::io;
use std::path::PathBuf;

use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dorm_lifecycle::IdError;
use dorm_service::{Composition, CreateFrom, PullPolicy, ServiceError};
use futures_util::TryStreamExt as _;
use serde::Deserialize;
use utoipa::IntoParams;

use super::progress::follow;
use crate::error::ApiError;
use crate::extract::{HostPaths, Json, Query, WantsEvents, parameter};
use crate::routes::Api;
use crate::{convert, wire};

/// The `{reference}` of a path: a tag, a digest, or the beginning of one.
pub(crate) struct Reference(String);

impl FromRequestParts<Api> for Reference {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        Ok(Self(parameter(parts, api, "reference").await?))
    }
}

/// All images, ordered by digest.
#[utoipa::path(get, path = "/v1/images", operation_id = "listImages", tag = "images", responses(
    (status = 200, body = wire::ImageList),
    (status = "default", body = wire::ErrorAnswer, description = "an error"),
))]
pub(crate) async fn list(State(api): State<Api>) -> Result<axum::Json<wire::ImageList>, ApiError> {
    let images = api.service.pool().images().await.map_err(ServiceError::from)?;
    Ok(axum::Json(wire::ImageList { images: images.into_iter().map(Into::into).collect() }))
}

/// Imports an image from a directory or archive of the daemon's own host. Only over the socket `api.sock` there. With `Accept: text/event-stream` it answers
/// with the events `progress`, then `done` with the image, or `error`.
#[utoipa::path(post, path = "/v1/images/import", operation_id = "importImage", tag = "images",
    request_body = wire::ImportImage,
    responses(
        (status = 201, body = wire::Image),
        (status = 200, description = "server-sent events", content_type = "text/event-stream",
            body = wire::ImportProgress),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn import(
    State(api): State<Api>,
    _: HostPaths,
    WantsEvents(events): WantsEvents,
    Json(asked): Json<wire::ImportImage>,
) -> Result<Response, ApiError> {
    let path = absolute(&asked.path)?;
    let service = api.service.clone();
    let tag = asked.tag;
    let work =
        move |report| async move { service.import_image(&path, tag.as_deref(), report).await.map(wire::Image::from) };
    follow(events, work).await
}

/// What an uploaded image is to have.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct UploadQuery {
    /// A tag; another image that had it loses it.
    tag: Option<String>,
}

/// Imports an image from an archive, the body: a root filesystem, an OCI layout or a docker archive, as tar, plain or
/// compressed by gzip or zstd. With `Accept: text/event-stream` it answers, as soon as the body is there, with the events
/// `progress`, then `done` with the image, or `error`.
#[utoipa::path(post, path = "/v1/images/upload", operation_id = "uploadImage", tag = "images",
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    params(UploadQuery),
    responses(
        (status = 201, body = wire::Image),
        (status = 200, description = "server-sent events", content_type = "text/event-stream",
            body = wire::ImportProgress),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn upload(
    State(api): State<Api>,
    WantsEvents(events): WantsEvents,
    Query(query): Query<UploadQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let body = body.into_data_stream().map_err(io::Error::other);
    let archive = api.service.receive_archive(body, length).await?;
    let service = api.service.clone();
    let work = move |report| async move {
        service.import_image(archive.path(), query.tag.as_deref(), report).await.map(wire::Image::from)
    };
    follow(events, work).await
}

/// Fetches an image from a registry. What was fetched and checked before is not fetched again, also after a pull that did
/// not come to its end. With `Accept: text/event-stream` it answers with the events `progress`, then `done` with the
/// image, or `error`. When the caller goes away it goes on.
#[utoipa::path(post, path = "/v1/images/pull", operation_id = "pullImage", tag = "images",
    request_body = wire::PullImage,
    responses(
        (status = 201, body = wire::Image),
        (status = 200, description = "server-sent events", content_type = "text/event-stream",
            body = wire::ImportProgress),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn pull(
    State(api): State<Api>,
    WantsEvents(events): WantsEvents,
    Json(asked): Json<wire::PullImage>,
) -> Result<Response, ApiError> {
    let service = api.service.clone();
    let wire::PullImage { reference, architecture, tag, insecure, pull } = asked;
    let transport = convert::transport(insecure);
    let asked = dorm_service::Pull { reference, architecture, transport };
    follow::<wire::Image, _>(events, move |report| async move {
        let image = match (pull, tag) {
            (wire::Pull::Always, tag) => service.pull_image(asked, tag.as_deref(), PullPolicy::Always, report).await?,
            (_, None) => service.find_image(asked, pull.into(), report).await?,
            (_, Some(tag)) => {
                let image = service.find_image(asked, pull.into(), report).await?;
                service.pool().tag(&image.digest, &tag).await?
            }
        };
        Ok(image.into())
    })
    .await
}

/// Makes an image of a filesystem snapshot or of another image, with settings of its own. It gets its tag when a sandbox of it
/// has been suspended and resumed; when that fails, the image is gone again. With `Accept: text/event-stream` it answers
/// with the events `progress`, then `done` with the image, or `error`. When the caller goes away it goes on.
#[utoipa::path(post, path = "/v1/images/compose", operation_id = "composeImage", tag = "images",
    request_body = wire::ComposeImage,
    responses(
        (status = 201, body = wire::Image),
        (status = 200, description = "server-sent events", content_type = "text/event-stream",
            body = wire::ImportProgress),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn compose(
    State(api): State<Api>,
    WantsEvents(events): WantsEvents,
    Json(asked): Json<wire::ComposeImage>,
) -> Result<Response, ApiError> {
    let wire::ComposeImage { image, snapshot, config, tag, build } = asked;
    let from = match (image, snapshot) {
        (Some(image), None) => CreateFrom::Image(image),
        (None, Some(id)) => {
            let id = id.parse().map_err(|error: IdError| ApiError::invalid(format!("snapshot: {error}"), ""))?;
            CreateFrom::Snapshot(id)
        }
        _ => {
            let message = "exactly one of image and snapshot says whose files the image gets";
            return Err(ApiError::invalid(message, "list the images or the snapshots that are there"));
        }
    };
    let asked = Composition { from, config: config.into(), tag, build };
    let service = api.service.clone();
    follow(events, move |report| async move { service.compose_image(asked, report).await.map(wire::Image::from) }).await
}

/// An image.
#[utoipa::path(get, path = "/v1/images/{reference}", operation_id = "getImage", tag = "images",
    params(("reference" = String, Path, description = "tag, digest, or the first 8 or more digits of one")),
    responses(
        (status = 200, body = wire::Image),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn describe(
    State(api): State<Api>,
    Reference(reference): Reference,
) -> Result<axum::Json<wire::Image>, ApiError> {
    Ok(axum::Json(api.service.pool().resolve(&reference).await.map_err(ServiceError::from)?.into()))
}

/// Writes an image into a file of the daemon's own host: an OCI layout in a tar archive, with all files in one layer.
/// The same image gives the same bytes. Only over the socket `api.sock` there.
#[utoipa::path(post, path = "/v1/images/{reference}/export", operation_id = "exportImage", tag = "images",
    request_body = wire::ExportImage,
    params(("reference" = String, Path, description = "tag, digest, or the first 8 or more digits of one")),
    responses(
        (status = 201, body = wire::ExportedImage),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn export(
    State(api): State<Api>,
    _: HostPaths,
    Reference(reference): Reference,
    Json(asked): Json<wire::ExportImage>,
) -> Result<(StatusCode, axum::Json<wire::ExportedImage>), ApiError> {
    let path = absolute(&asked.path)?;
    let pool = api.service.pool();
    let image = pool.resolve(&reference).await.map_err(ServiceError::from)?;
    let exported = pool.export_image(&image.digest, &path).await.map_err(ServiceError::from)?;
    let answer = wire::ExportedImage {
        image: image.digest.to_string(),
        path: asked.path,
        bytes: exported.bytes,
        manifest: exported.manifest.to_string(),
    };
    Ok((StatusCode::CREATED, axum::Json(answer)))
}

/// The digest of an image that is downloaded, and that of the manifest in its file.
const IMAGE: HeaderName = HeaderName::from_static("x-dormouse-image");
const MANIFEST: HeaderName = HeaderName::from_static("x-dormouse-manifest");

/// An image as a file: an OCI layout in a tar archive, with all files in one layer. The same image gives the same bytes.
/// Its digest is in the header `X-Dormouse-Image`, that of the manifest in the file in `X-Dormouse-Manifest`. The answer
/// breaks off when the rest cannot be read.
#[utoipa::path(get, path = "/v1/images/{reference}/download", operation_id = "downloadImage", tag = "images",
    params(("reference" = String, Path, description = "tag, digest, or the first 8 or more digits of one")),
    responses(
        (status = 200, content_type = "application/x-tar", body = Vec<u8>),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn download(State(api): State<Api>, Reference(reference): Reference) -> Result<Response, ApiError> {
    let image = api.service.pool().resolve(&reference).await.map_err(ServiceError::from)?;
    let (file, manifest) = api.service.image_file(&image).await?;
    let mut response = Body::from_stream(file.content).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    headers.insert(header::CONTENT_LENGTH, file.bytes.into());
    let text = |name, text: String| HeaderValue::from_str(&text).ok().map(|value| (name, value));
    headers.extend(text(header::CONTENT_DISPOSITION, format!("attachment; filename=\"{}\"", file.name)));
    headers.extend(text(IMAGE, image.digest.to_string()));
    headers.extend(text(MANIFEST, manifest.to_string()));
    Ok(response)
}

fn absolute(path: &str) -> Result<PathBuf, ApiError> {
    let whole = PathBuf::from(path);
    if whole.is_absolute() {
        return Ok(whole);
    }
    let message = format!("'{path}' is not an absolute path on the daemon's host");
    Err(ApiError::invalid(message, "give the whole path, beginning with /"))
}

/// Removes an image that no living sandbox and no snapshot needs.
#[utoipa::path(delete, path = "/v1/images/{reference}", operation_id = "deleteImage", tag = "images",
    params(("reference" = String, Path, description = "tag, digest, or the first 8 or more digits of one")),
    responses(
        (status = 204, description = "it is gone"),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn delete(State(api): State<Api>, Reference(reference): Reference) -> Result<StatusCode, ApiError> {
    let image = api.service.pool().resolve(&reference).await.map_err(ServiceError::from)?;
    api.service.remove_image(&image.digest).await?;
    Ok(StatusCode::NO_CONTENT)
}
