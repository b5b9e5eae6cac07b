//! Services inside a sandbox.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use dorm_api_types as wire;
use dorm_service::Use;
use serde::Deserialize;
use utoipa::IntoParams;

use super::output::{self, OutputQuery};
use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, NamedService, PAGE_MAX, Query, Sandbox, milliseconds, page_limit_or};

/// The time that a process gets to end, by default.
const GRACE_SECS: f64 = 10.0;
const GRACE_MAX_MS: u64 = 300_000;

/// Start a service
///
/// The agent in the sandbox starts the process again when it ends, and checks its health. It does
/// so without the daemon, and continues across a suspend and a resume; the children of a fork have
/// a copy of the service. A boot from files ends all services.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/services", operation_id = "startService", tag = "processes",
    request_body = wire::StartService,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 201, description = "The service.", body = wire::Service),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn start(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::StartService>,
) -> Result<(StatusCode, axum::Json<wire::Service>), ApiError> {
    let spec = convert::service_spec(asked)?;
    let name = spec.name.clone();
    service.start_service(&id, spec).await?;
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    Ok((StatusCode::CREATED, axum::Json(agent.service(&name).await?.convert())))
}

/// List services
///
/// All services of the sandbox, also those that are over, ordered by name.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/services", operation_id = "listServices", tag = "processes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The services.", body = wire::ServiceList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
) -> Result<axum::Json<wire::ServiceList>, ApiError> {
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    let services = agent.services().await?.into_iter().map(Convert::convert).collect();
    Ok(axum::Json(wire::ServiceList { services }))
}

/// Get a service
#[utoipa::path(get, path = "/v1/sandboxes/{id}/services/{service}", operation_id = "getService", tag = "processes",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("service" = String, Path, description = "Name of the service."),
    ),
    responses(
        (status = 200, description = "The service.", body = wire::Service),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    NamedService(id, name): NamedService,
) -> Result<axum::Json<wire::Service>, ApiError> {
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    Ok(axum::Json(agent.service(&name).await?.convert()))
}

/// Stop a service
///
/// Its process and process group get SIGTERM. When the process has ended, or after the grace, all
/// that is left of its process tree is killed. Responds after that. A service that is over stays as
/// it is.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/services/{service}/stop", operation_id = "stopService",
    tag = "processes",
    request_body = wire::StopService,
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("service" = String, Path, description = "Name of the service."),
    ),
    responses(
        (status = 200, description = "The service.", body = wire::Service),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn stop(
    ForRequest(service): ForRequest,
    NamedService(id, name): NamedService,
    Json(asked): Json<wire::StopService>,
) -> Result<axum::Json<wire::Service>, ApiError> {
    let grace = Duration::from_millis(match asked.grace_secs {
        Some(0.0) => 0,
        grace => milliseconds("grace_secs", grace.unwrap_or(GRACE_SECS), GRACE_MAX_MS)?,
    });
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    agent.stop_service(&name, grace).await?;
    Ok(axum::Json(agent.service(&name).await?.convert()))
}

/// Remove a service
///
/// Its output and its events are removed too. A service that is not over is stopped first, with the
/// default grace.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/services/{service}", operation_id = "removeService",
    tag = "processes",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("service" = String, Path, description = "Name of the service."),
    ),
    responses(
        (status = 204, description = "The service is removed."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn remove(
    ForRequest(service): ForRequest,
    NamedService(id, name): NamedService,
) -> Result<StatusCode, ApiError> {
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    agent.stop_service(&name, Duration::from_secs_f64(GRACE_SECS)).await?;
    agent.remove_service(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Stream the output of a service
///
/// The output of all its processes, as that of one process; the last event is `exit`, when the
/// service is over.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/services/{service}/output", operation_id = "streamServiceOutput",
    tag = "processes",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("service" = String, Path, description = "Name of the service."),
        OutputQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "ID of the last event received."),
    ),
    responses(
        (status = 200, description = "The output as server-sent events.",
            content_type = "text/event-stream", body = wire::OutputEvent),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn output(
    ForRequest(service): ForRequest,
    NamedService(id, name): NamedService,
    headers: HeaderMap,
    Query(query): Query<OutputQuery>,
) -> Result<Response, ApiError> {
    let from = query.from(&headers)?;
    let (agent, in_use) = service.agent(&id, Use::Output).await?;
    let now = agent.service(&name).await?;
    let (from, until) = query.span(from, now.written, now.state.is_over());
    Ok(output::answer(agent.service_log(&name, from).await?, (from, until), in_use))
}

/// Parameters of the events of a service.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Cursor: `next` of the previous response. Default: none.
    after: Option<u64>,
    /// Largest number of events to return, 1 to 1000. Default 1000.
    limit: Option<usize>,
}

/// List the events of a service
///
/// Lists also events from when no client was connected.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/services/{service}/events", operation_id = "listServiceEvents",
    tag = "processes",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("service" = String, Path, description = "Name of the service."),
        EventsQuery,
    ),
    responses(
        (status = 200, description = "The events.", body = wire::ServiceEvents),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn events(
    ForRequest(service): ForRequest,
    NamedService(id, name): NamedService,
    Query(query): Query<EventsQuery>,
) -> Result<axum::Json<wire::ServiceEvents>, ApiError> {
    let limit = page_limit_or(query.limit, PAGE_MAX)?;
    let after = query.after.unwrap_or(0);
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    let page = agent.service_events(&name, after, limit).await?;
    let next = page.items.last().map_or(after, |last| last.number).to_string();
    let events = page.items.into_iter().map(Convert::convert).collect();
    Ok(axum::Json(wire::ServiceEvents { events, next, more: page.more }))
}
