//! Images: import, pull, compose, export. Only the owner of the daemon may name paths of its host;
//! other clients stream the bytes.

use std::io;
use std::path::PathBuf;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dorm_api_types as wire;
use dorm_lifecycle::IdError;
use dorm_service::{Composition, CreateFrom, PullPolicy, ServiceError};
use futures_util::TryStreamExt as _;
use serde::Deserialize;
use utoipa::IntoParams;

use super::progress::follow;
use crate::convert::{self, Convert, Of};
use crate::error::ApiError;
use crate::extract::{ForRequest, HostPaths, Json, Query, WantsEvents, parameter};
use crate::page::PageQuery;
use crate::state::Api;

/// The `{reference}` of a path: a tag, a digest, or the beginning of one.
pub(crate) struct Reference(String);

impl FromRequestParts<Api> for Reference {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        Ok(Self(parameter(parts, api, "reference").await?))
    }
}

/// List images
///
/// Ordered by digest.
#[utoipa::path(get, path = "/v1/images", operation_id = "listImages", tag = "images", params(PageQuery),
    responses(
        (status = 200, description = "One page of images.", body = wire::ImageList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<wire::ImageList>, ApiError> {
    let images = service.images().await?;
    let (images, next) = query.of(images, |image| image.digest.clone())?;
    Ok(axum::Json(wire::ImageList { images: images.into_iter().map(Convert::convert).collect(), next }))
}

/// Import an image from a path on the daemon's host
///
/// Reads a directory or an archive. Only available over the Unix socket `api.sock`, because the
/// path is read with the daemon's permissions.
///
/// With `Accept: text/event-stream`, the response is a stream of server-sent events: `progress`
/// while the operation runs, then `done` with the image, or `error`.
#[utoipa::path(post, path = "/v1/images/import", operation_id = "importImage", tag = "images",
    request_body = wire::ImportImage,
    responses(
        (status = 201, description = "The imported image.", body = wire::Image),
        (status = 200, description = "Progress as server-sent events.",
            content_type = "text/event-stream", body = wire::ImportProgress),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn import(
    ForRequest(service): ForRequest,
    _: HostPaths,
    WantsEvents(events): WantsEvents,
    Json(asked): Json<wire::ImportImage>,
) -> Result<Response, ApiError> {
    let path = absolute(&asked.path)?;
    let tag = asked.tag;
    let work =
        move |report| async move { service.import_image(&path, tag.as_deref(), report).await.map(wire::Image::of) };
    follow(events, work).await
}

/// Settings of the uploaded image.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct UploadQuery {
    /// Tag for the image. An image that has this tag loses it.
    tag: Option<String>,
}

/// Import an image from the request body
///
/// The body is a tar archive, plain or compressed with gzip or zstd, of a root file system, an OCI
/// layout or a Docker archive.
///
/// With `Accept: text/event-stream`, the response is a stream of server-sent events: `progress`
/// while the operation runs, then `done` with the image, or `error`. The stream starts when the
/// whole body has been received.
#[utoipa::path(post, path = "/v1/images/upload", operation_id = "uploadImage", tag = "images",
    request_body(content = wire::Binary, content_type = "application/x-tar"),
    params(UploadQuery),
    responses(
        (status = 201, description = "The imported image.", body = wire::Image),
        (status = 200, description = "Progress as server-sent events.",
            content_type = "text/event-stream", body = wire::ImportProgress),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn upload(
    ForRequest(service): ForRequest,
    WantsEvents(events): WantsEvents,
    Query(query): Query<UploadQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let body = body.into_data_stream().map_err(io::Error::other);
    let archive = service.receive_archive(body, length).await?;
    let work = move |report| async move {
        service.import_image(archive.path(), query.tag.as_deref(), report).await.map(wire::Image::of)
    };
    follow(events, work).await
}

/// Pull an image from a registry
///
/// Data that an earlier pull fetched and verified is not fetched again, even if that pull was
/// interrupted.
///
/// With `Accept: text/event-stream`, the response is a stream of server-sent events: `progress`
/// while the operation runs, then `done` with the image, or `error`. The operation continues if the
/// client disconnects.
#[utoipa::path(post, path = "/v1/images/pull", operation_id = "pullImage", tag = "images",
    request_body = wire::PullImage,
    responses(
        (status = 201, description = "The image.", body = wire::Image),
        (status = 200, description = "Progress as server-sent events.",
            content_type = "text/event-stream", body = wire::ImportProgress),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn pull(
    ForRequest(service): ForRequest,
    WantsEvents(events): WantsEvents,
    Json(asked): Json<wire::PullImage>,
) -> Result<Response, ApiError> {
    let wire::PullImage { reference, architecture, tag, insecure, pull } = asked;
    let transport = convert::transport(insecure);
    let asked =
        dorm_ports::RemoteSpec { reference, architecture, transport, logins: dorm_ports::Logins::Daemon, login: None };
    follow::<wire::Image, _>(events, move |report| async move {
        let image = match (pull, tag) {
            (wire::Pull::Always, tag) => service.pull_image(asked, tag.as_deref(), PullPolicy::Always, report).await?,
            (_, None) => service.find_image(asked, pull.convert(), report).await?,
            (_, Some(tag)) => {
                let image = service.find_image(asked, pull.convert(), report).await?;
                service.tag_image(&image.digest, &tag).await?
            }
        };
        Ok(image.convert())
    })
    .await
}

/// Create an image from a snapshot or another image
///
/// Combines the files of a filesystem snapshot or an image with a new configuration. Before the
/// image gets its tag, a sandbox is created from it, suspended and resumed; if that fails, the
/// image is deleted.
///
/// With `Accept: text/event-stream`, the response is a stream of server-sent events: `progress`
/// while the operation runs, then `done` with the image, or `error`. The operation continues if the
/// client disconnects.
#[utoipa::path(post, path = "/v1/images/compose", operation_id = "composeImage", tag = "images",
    request_body = wire::ComposeImage,
    responses(
        (status = 201, description = "The image.", body = wire::Image),
        (status = 200, description = "Progress as server-sent events.",
            content_type = "text/event-stream", body = wire::ImportProgress),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn compose(
    ForRequest(service): ForRequest,
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
            let message = "give exactly one of image and snapshot";
            return Err(ApiError::invalid(
                message,
                "list images with GET /v1/images, snapshots with GET /v1/snapshots",
            ));
        }
    };
    let asked = Composition { from, config: config.convert(), tag, build };
    follow(events, move |report| async move { service.compose_image(asked, report).await.map(wire::Image::of) }).await
}

/// Get an image
#[utoipa::path(get, path = "/v1/images/{reference}", operation_id = "getImage", tag = "images",
    params(("reference" = String, Path, description = "Tag, digest, or a digest prefix of at least 8 digits.")),
    responses(
        (status = 200, description = "The image.", body = wire::Image),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    Reference(reference): Reference,
) -> Result<axum::Json<wire::Image>, ApiError> {
    Ok(axum::Json(service.image(&reference).await?.convert()))
}

/// Export an image to a path on the daemon's host
///
/// Writes a tar archive with an OCI layout that has all files in one layer. The same image always
/// gives the same bytes. Only available over the Unix socket `api.sock`.
#[utoipa::path(post, path = "/v1/images/{reference}/export", operation_id = "exportImage", tag = "images",
    request_body = wire::ExportImage,
    params(("reference" = String, Path, description = "Tag, digest, or a digest prefix of at least 8 digits.")),
    responses(
        (status = 201, description = "The written archive.", body = wire::ExportedImage),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn export(
    ForRequest(service): ForRequest,
    _: HostPaths,
    Reference(reference): Reference,
    Json(asked): Json<wire::ExportImage>,
) -> Result<(StatusCode, axum::Json<wire::ExportedImage>), ApiError> {
    let path = absolute(&asked.path)?;
    let image = service.image(&reference).await?;
    let exported = service.storage().export_image(&image.digest, &path).await.map_err(ServiceError::from)?;
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

/// Download an image as a file
///
/// A tar archive with an OCI layout that has all files in one layer. The same image always gives
/// the same bytes. The header `X-Dormouse-Image` has the digest of the image, `X-Dormouse-Manifest`
/// that of the manifest in the archive. The response is cut off if the rest cannot be read.
#[utoipa::path(get, path = "/v1/images/{reference}/download", operation_id = "downloadImage", tag = "images",
    params(("reference" = String, Path, description = "Tag, digest, or a digest prefix of at least 8 digits.")),
    responses(
        (status = 200, description = "The archive.", content_type = "application/x-tar", body = wire::Binary),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn download(
    ForRequest(service): ForRequest,
    Reference(reference): Reference,
) -> Result<Response, ApiError> {
    let image = service.image(&reference).await?;
    let (file, manifest) = service.image_file(&image).await?;
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
    Err(ApiError::invalid(message, "give the whole path, starting with /"))
}

/// Delete an image
///
/// An image cannot be deleted while a living sandbox or a snapshot uses it. Another project than
/// `local` deletes only its own tags, and the image if nothing else uses it.
#[utoipa::path(delete, path = "/v1/images/{reference}", operation_id = "deleteImage", tag = "images",
    params(("reference" = String, Path, description = "Tag, digest, or a digest prefix of at least 8 digits.")),
    responses(
        (status = 204, description = "The image is deleted."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn delete(
    ForRequest(service): ForRequest,
    Reference(reference): Reference,
) -> Result<StatusCode, ApiError> {
    service.delete_image(&reference).await?;
    Ok(StatusCode::NO_CONTENT)
}
