//! Snapshots in registries.

use axum::response::Response;
use dorm_api_types as wire;
use dorm_ports::{Logins, RemoteSpec};
use dorm_service::ImportSpec;

use super::progress::follow;
use super::snapshots::Snapshot;
use crate::convert::{self, Of};
use crate::error::ApiError;
use crate::extract::{self, ForRequest, Json, WantsEvents};

/// Push a snapshot to a registry
///
/// Sends the exported archive in parts. Parts that the registry already has are not sent again,
/// also after an interrupted push.
///
/// With `Accept: text/event-stream`, the response is a stream of server-sent events: `progress`
/// while the operation runs, then `done` with what was pushed, or `error`.
#[utoipa::path(post, path = "/v1/snapshots/{id}/push", operation_id = "pushSnapshot", tag = "snapshots",
    request_body = wire::PushSnapshot,
    params(("id" = String, Path, description = "ID of the snapshot, or name of one that can be used.")),
    responses(
        (status = 201, description = "The pushed snapshot.", body = wire::PushedSnapshot),
        (status = 200, description = "Progress as server-sent events.",
            content_type = "text/event-stream", body = wire::ImportProgress),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn push(
    ForRequest(service): ForRequest,
    Snapshot(id): Snapshot,
    WantsEvents(events): WantsEvents,
    Json(asked): Json<wire::PushSnapshot>,
) -> Result<Response, ApiError> {
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

/// Pull a snapshot from a registry
///
/// The snapshot gets a new id. Every byte is verified; if the pull is refused, nothing is kept.
///
/// With `Accept: text/event-stream`, the response is a stream of server-sent events: `progress`
/// while the operation runs, then `done` with the snapshot, or `error`.
#[utoipa::path(post, path = "/v1/snapshots/pull", operation_id = "pullSnapshot", tag = "snapshots",
    request_body = wire::PullSnapshot,
    responses(
        (status = 201, description = "The pulled snapshot.", body = wire::Snapshot),
        (status = 200, description = "Progress as server-sent events.",
            content_type = "text/event-stream", body = wire::ImportProgress),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn pull(
    ForRequest(service): ForRequest,
    WantsEvents(events): WantsEvents,
    Json(asked): Json<wire::PullSnapshot>,
) -> Result<Response, ApiError> {
    let expires = asked.expires_secs.map(|value| extract::seconds("expires_secs", value)).transpose()?;
    let settings = ImportSpec { labels: asked.labels, expires };
    let from = named(asked.reference, asked.insecure);
    follow(
        events,
        move |report| async move { Ok(wire::Snapshot::of(service.pull_snapshot(from, settings, report).await?)) },
    )
    .await
}

fn named(reference: String, insecure: bool) -> RemoteSpec {
    RemoteSpec {
        reference,
        architecture: None,
        transport: convert::transport(insecure),
        logins: Logins::Daemon,
        login: None,
    }
}
