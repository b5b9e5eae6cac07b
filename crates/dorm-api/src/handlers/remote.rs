//! Snapshots in registries.

use axum::extract::State;
use axum::response::Response;
use dorm_service::{ImportSettings, Pull};

use super::progress::follow;
use super::snapshots::Snapshot;
use crate::error::ApiError;
use crate::extract::{self, Json, WantsEvents};
use crate::routes::Api;
use crate::{convert, wire};

/// Sends a snapshot to a registry, as the file of an export in parts. Parts that are there already are not sent again, also
/// after a push that did not come to its end. With `Accept: text/event-stream` it answers with the events `progress`, then
/// `done` with what was sent, or `error`.
#[utoipa::path(post, path = "/v1/snapshots/{id}/push", operation_id = "pushSnapshot", tag = "snapshots",
    request_body = wire::PushSnapshot,
    params(("id" = String, Path, description = "snapshot id")),
    responses(
        (status = 201, body = wire::PushedSnapshot),
        (status = 200, description = "server-sent events", content_type = "text/event-stream",
            body = wire::ImportProgress),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn push(
    State(api): State<Api>,
    Snapshot(id): Snapshot,
    WantsEvents(events): WantsEvents,
    Json(asked): Json<wire::PushSnapshot>,
) -> Result<Response, ApiError> {
    let service = api.service.clone();
    let to = named(asked.reference, asked.insecure);
    follow(events, move |report| async move {
        let pushed = service.push_snapshot(&id, to, report).await?;
        Ok(wire::PushedSnapshot {
            reference: pushed.name,
            manifest: pushed.manifest,
            bytes: pushed.bytes,
            sent_bytes: pushed.sent_bytes,
        })
    })
    .await
}

/// Fetches a snapshot from a registry. It gets an id of its own; every byte is compared with what is said of it, and nothing
/// is left of one that is refused. With `Accept: text/event-stream` it answers with the events `progress`, then `done` with
/// the snapshot, or `error`.
#[utoipa::path(post, path = "/v1/snapshots/pull", operation_id = "pullSnapshot", tag = "snapshots",
    request_body = wire::PullSnapshot,
    responses(
        (status = 201, body = wire::Snapshot),
        (status = 200, description = "server-sent events", content_type = "text/event-stream",
            body = wire::ImportProgress),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn pull(
    State(api): State<Api>,
    WantsEvents(events): WantsEvents,
    Json(asked): Json<wire::PullSnapshot>,
) -> Result<Response, ApiError> {
    let service = api.service.clone();
    let expires = asked.expires_secs.map(|value| extract::seconds("expires_secs", value)).transpose()?;
    let settings = ImportSettings { labels: asked.labels, expires };
    let from = named(asked.reference, asked.insecure);
    follow(events, move |report| async move {
        Ok(wire::Snapshot::from(service.pull_snapshot(from, settings, report).await?))
    })
    .await
}

fn named(reference: String, insecure: bool) -> Pull {
    Pull { reference, architecture: None, transport: convert::transport(insecure) }
}
