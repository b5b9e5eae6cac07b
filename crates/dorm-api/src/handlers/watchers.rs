//! Watchers that keep changes of files until they are asked for.

use axum::http::StatusCode;
use dorm_agent_client::Scope;
use dorm_api_types as wire;
use dorm_service::Use;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, PAGE_MAX, Query, Sandbox, Watcher, guest_path_of, page_limit_or};

/// Create a watcher
///
/// The watcher keeps every change in a directory that happens after the response, up to 65,536 of
/// them, until they are taken with `GET /v1/sandboxes/{id}/watchers/{watcher}/events`. It belongs
/// to the memory of the sandbox: it continues across a suspend and a resume, is copied by a fork,
/// and ends when the sandbox boots. A sandbox can have 64 of them.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/watchers", operation_id = "createWatcher", tag = "files",
    request_body = wire::CreateWatcher,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 201, description = "The watcher.", body = wire::Watcher),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn create(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::CreateWatcher>,
) -> Result<(StatusCode, axum::Json<wire::Watcher>), ApiError> {
    let path = guest_path_of("path", &asked.path)?;
    let recursive = asked.recursive == Some(true);
    let scope = if recursive { Scope::Below } else { Scope::Here };
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    let watcher = agent.create_watcher(&path, scope).await?;
    Ok((StatusCode::CREATED, axum::Json(wire::Watcher { watcher, path: asked.path, recursive, last: 0 })))
}

/// List watchers
///
/// All watchers of the sandbox, oldest first.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/watchers", operation_id = "listWatchers", tag = "files",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The watchers.", body = wire::WatcherList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
) -> Result<axum::Json<wire::WatcherList>, ApiError> {
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    let watchers = agent.watchers().await?.into_iter().map(Convert::convert).collect();
    Ok(axum::Json(wire::WatcherList { watchers }))
}

/// Parameters of the changes of a watcher.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Cursor: `next` of the previous response. The watcher forgets the changes up to it. Default:
    /// none.
    after: Option<u64>,
    /// Largest number of changes to return, 1 to 1000. Default 1000.
    limit: Option<usize>,
}

/// Take the changes of a watcher
///
/// Responds at once with the oldest changes, at most `limit`; `more` says whether others have
/// already happened. A request that is repeated with the same `after` returns the same changes
/// again. If changes are missing, because too many were kept or another request has taken them, a
/// change of the kind `overflow` stands for them.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/watchers/{watcher}/events", operation_id = "takeWatcherEvents",
    tag = "files",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("watcher" = u64, Path, description = "Handle of the watcher."),
        EventsQuery,
    ),
    responses(
        (status = 200, description = "The changes.", body = wire::WatcherEvents),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn events(
    ForRequest(service): ForRequest,
    Watcher(id, watcher): Watcher,
    Query(query): Query<EventsQuery>,
) -> Result<axum::Json<wire::WatcherEvents>, ApiError> {
    let limit = page_limit_or(query.limit, PAGE_MAX)?;
    let after = query.after.unwrap_or(0);
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    let page = agent.watcher_events(watcher, after, limit).await?;
    let next = page.items.last().map_or(after, |last| last.number).to_string();
    let events = page.items.into_iter().map(Convert::convert).collect();
    Ok(axum::Json(wire::WatcherEvents { events, next, more: page.more }))
}

/// Remove a watcher
///
/// The changes that it has kept are removed too.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/watchers/{watcher}", operation_id = "removeWatcher", tag = "files",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("watcher" = u64, Path, description = "Handle of the watcher."),
    ),
    responses(
        (status = 204, description = "The watcher is removed."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn remove(
    ForRequest(service): ForRequest,
    Watcher(id, watcher): Watcher,
) -> Result<StatusCode, ApiError> {
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    agent.remove_watcher(watcher).await?;
    Ok(StatusCode::NO_CONTENT)
}
