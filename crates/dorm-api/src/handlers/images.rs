//! Images.

use std::path::PathBuf;

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use dorm_service::ServiceError;
use futures_util::{StreamExt, stream};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use crate::error::ApiError;
use crate::extract::{Json, WantsEvents, parameter};
use crate::routes::Api;
use crate::{sse, wire};

/// The `{reference}` of a path: a tag, a digest, or the beginning of one.
pub(crate) struct Reference(String);

impl FromRequestParts<Api> for Reference {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        Ok(Self(parameter(parts, api, "reference").await?))
    }
}

/// All images, ordered by digest.
#[utoipa::path(get, path = "/v1/images", tag = "images", responses(
    (status = 200, body = wire::ImageList),
    (status = "default", body = wire::ErrorAnswer, description = "an error"),
))]
pub(crate) async fn list(State(api): State<Api>) -> Result<axum::Json<wire::ImageList>, ApiError> {
    let images = api.service.pool().images().await.map_err(ServiceError::from)?;
    Ok(axum::Json(wire::ImageList { images: images.into_iter().map(Into::into).collect() }))
}

/// Imports an image from a directory or archive of the daemon's own host. With `Accept: text/event-stream` it answers
/// with the events `progress`, then `done` with the image, or `error`.
#[utoipa::path(post, path = "/v1/images/import", tag = "images", request_body = wire::ImportImage, responses(
    (status = 201, body = wire::Image),
    (status = 200, description = "server-sent events", content_type = "text/event-stream", body = wire::ImportProgress),
    (status = "default", body = wire::ErrorAnswer, description = "an error"),
))]
pub(crate) async fn import(
    State(api): State<Api>,
    WantsEvents(events): WantsEvents,
    Json(asked): Json<wire::ImportImage>,
) -> Result<Response, ApiError> {
    let path = PathBuf::from(&asked.path);
    if !path.is_absolute() {
        let message = format!("'{}' is not an absolute path on the daemon's host", asked.path);
        return Err(ApiError::invalid(message, "give the whole path, beginning with /"));
    }
    let (reports, progress) = watch::channel(None);
    let service = api.service.clone();
    // A watch: a caller that reads slowly misses steps and holds nothing up.
    let work = async move {
        let report = move |progress| {
            let _ = reports.send(Some(wire::ImportProgress::from(progress)));
        };
        service.import_image(&path, asked.tag.as_deref(), report).await
    };
    if !events {
        return Ok((StatusCode::CREATED, axum::Json(wire::Image::from(work.await?))).into_response());
    }
    let work = tokio::spawn(work);
    let progress = WatchStream::new(progress)
        .filter_map(|progress| std::future::ready(progress.map(|progress| sse::event("progress", &progress))));
    let end = stream::once(async move {
        match work.await {
            Ok(Ok(image)) => sse::event("done", &wire::Image::from(image)),
            Ok(Err(error)) => sse::failure(error.into()),
            Err(_) => sse::failure(ServiceError::Stopping.into()),
        }
    });
    Ok(sse::answer(progress.chain(end)))
}

/// Removes an image that no living sandbox and no snapshot needs.
#[utoipa::path(delete, path = "/v1/images/{reference}", tag = "images",
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
