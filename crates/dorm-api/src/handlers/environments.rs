//! Environments: sandboxes that are asked for by a key.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use dorm_api_types as wire;
use dorm_http::sse;
use dorm_lifecycle::{IdError, LeaseId};
use dorm_service::{BUILD_LOG_LINES_MAX, EnsureProgress, EnsureSpec, RunOutcome, Service};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use utoipa::IntoParams;

use super::create::source_of;
use crate::convert::{self, Convert, Of};
use crate::error::{self, ApiError};
use crate::extract::{ForRequest, Json, Query, WantsEvents, parameter, seconds};
use crate::page::{Dated, PageQuery};
use crate::state::Api;

/// The longest wait for a line of a log.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// The environment of `{environment}`, by id or key.
pub(crate) struct Environment(String);

impl FromRequestParts<Api> for Environment {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        parameter(parts, api, "environment").await.map(Self)
    }
}

/// The lease of `{lease}`.
pub(crate) struct Lease(LeaseId);

impl FromRequestParts<Api> for Lease {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        lease(&parameter(parts, api, "lease").await?).map(Self)
    }
}

fn lease(text: &str) -> Result<LeaseId, ApiError> {
    text.parse().map_err(|error: IdError| ApiError::invalid(format!("lease: {error}"), ""))
}

/// Get the sandbox of an environment
///
/// Returns the running sandbox of the key, else resumes the suspended one, else restores one from
/// the latest snapshot of the environment or of the same definition, else creates one and sets it
/// up. For one key there is only ever one sandbox, and for one definition only one setup at a time,
/// however many callers ask: the others wait for the same work. The work is recorded, and continues
/// if its caller goes away or the daemon restarts.
///
/// With `Accept: text/event-stream`, the response is a stream of server-sent events: `considered`
/// with the ways, `attempt` with the environment as the work advances, `line` for each line of its
/// log, and at the end `ensured` or `error`.
#[utoipa::path(post, path = "/v1/ensure", operation_id = "ensureEnvironment", tag = "environments",
    request_body = wire::EnsureRequest,
    responses(
        (status = 200, description = "The sandbox, which runs, and how it was had.",
            content((wire::Ensured = "application/json"), (wire::EnvironmentLogLine = "text/event-stream"))),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn ensure(
    ForRequest(service): ForRequest,
    WantsEvents(events): WantsEvents,
    Json(asked): Json<wire::EnsureRequest>,
) -> Result<Response, ApiError> {
    let spec = spec(&service, asked).await?;
    if !events {
        let ensured = service.ensure(spec, &|_| {}).await?;
        return Ok(axum::Json(wire::Ensured::of(ensured)).into_response());
    }
    let (tell, told) = mpsc::unbounded_channel();
    let (work, progress) = (service.clone(), tell.clone());
    // The stream owns the work: a client that goes away does not wait any more.
    let work = async move {
        let ensured = work
            .ensure(spec, &move |progress_of| {
                let _ = progress.send(event(progress_of));
            })
            .await;
        let _ = tell.send(match ensured {
            Ok(ensured) => sse::event("ensured", &wire::Ensured::of(ensured)),
            Err(error) => error::last_event(error.into()),
        });
    };
    let work = stream::once(work).filter_map(|()| std::future::ready(None));
    Ok(sse::answer(stream::select(work, UnboundedReceiverStream::new(told))))
}

fn event(progress: EnsureProgress) -> axum::response::sse::Event {
    match progress {
        EnsureProgress::Considered(considered) => {
            let considered: Vec<wire::Considered> = considered.into_iter().map(Convert::convert).collect();
            sse::event("considered", &considered)
        }
        EnsureProgress::Attempt(record) => sse::event("attempt", &wire::Environment::of(*record)),
        EnsureProgress::Line { offset, line, .. } => {
            sse::event("line", &wire::EnvironmentLogLine::of((offset, line))).id(offset.to_string())
        }
    }
}

/// The environment that a request asks for.
async fn spec(service: &Service, asked: wire::EnsureRequest) -> Result<EnsureSpec, ApiError> {
    let named = (asked.image.as_deref(), asked.snapshot.as_deref(), asked.template.as_deref());
    let (from, _) = source_of(service, named, asked.pull).await?;
    let base = service.resources_of(&from).await?;
    convert::ensure(asked, from, base)
}

/// Explain what a request for an environment would do
///
/// Changes nothing, except that a missing image is pulled.
#[utoipa::path(post, path = "/v1/ensure/explain", operation_id = "explainEnsure", tag = "environments",
    request_body = wire::EnsureRequest,
    responses(
        (status = 200, description = "The ways that would be considered.", body = wire::EnsureExplanation),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn explain(
    ForRequest(service): ForRequest,
    Json(asked): Json<wire::EnsureRequest>,
) -> Result<axum::Json<wire::EnsureExplanation>, ApiError> {
    let spec = spec(&service, asked).await?;
    Ok(axum::Json(service.explain_ensure(spec).await?.convert()))
}

/// List environments
///
/// Ordered by the time of the first request, the oldest first.
#[utoipa::path(get, path = "/v1/environments", operation_id = "listEnvironments", tag = "environments",
    params(PageQuery),
    responses(
        (status = 200, description = "One page of environments.", body = wire::EnvironmentList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<wire::EnvironmentList>, ApiError> {
    let (found, next) = query.of(service.environments().await?, |one| Dated(one.created, one.id.clone()))?;
    Ok(axum::Json(wire::EnvironmentList { environments: found.into_iter().map(Convert::convert).collect(), next }))
}

/// Get an environment
#[utoipa::path(get, path = "/v1/environments/{environment}", operation_id = "getEnvironment", tag = "environments",
    params(("environment" = String, Path, description = "ID or key of the environment.")),
    responses(
        (status = 200, description = "The environment.", body = wire::Environment),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    Environment(named): Environment,
) -> Result<axum::Json<wire::Environment>, ApiError> {
    Ok(axum::Json(service.environment(&named).await?.convert()))
}

/// Remove an environment
///
/// Its sandboxes are terminated. Its snapshots are deleted as soon as nothing needs them, unless
/// another environment has the same definition.
#[utoipa::path(delete, path = "/v1/environments/{environment}", operation_id = "removeEnvironment",
    tag = "environments",
    params(("environment" = String, Path, description = "ID or key of the environment.")),
    responses(
        (status = 204, description = "It is removed."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn delete(
    ForRequest(service): ForRequest,
    Environment(named): Environment,
) -> Result<StatusCode, ApiError> {
    service.remove_environment(&named).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cancel making the sandbox of an environment
///
/// Every caller that waits for it gets an error. Does nothing if no sandbox is being made.
#[utoipa::path(post, path = "/v1/environments/{environment}/cancel", operation_id = "cancelEnvironment",
    tag = "environments",
    params(("environment" = String, Path, description = "ID or key of the environment.")),
    responses(
        (status = 200, description = "The environment.", body = wire::Environment),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn cancel(
    ForRequest(service): ForRequest,
    Environment(named): Environment,
) -> Result<axum::Json<wire::Environment>, ApiError> {
    Ok(axum::Json(service.cancel_environment(&named).await?.convert()))
}

/// End a run that uses an environment
///
/// When no other run has a lease, `lifecycle` says what follows: a snapshot is taken, and the
/// sandbox is terminated. The response comes when that is done.
#[utoipa::path(post, path = "/v1/environments/{environment}/release", operation_id = "releaseEnvironment",
    tag = "environments", request_body = wire::ReleaseEnvironment,
    params(("environment" = String, Path, description = "ID or key of the environment.")),
    responses(
        (status = 200, description = "The environment.", body = wire::Environment),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn release(
    ForRequest(service): ForRequest,
    Environment(named): Environment,
    Json(asked): Json<wire::ReleaseEnvironment>,
) -> Result<axum::Json<wire::Environment>, ApiError> {
    let of = asked.lease.as_deref().map(lease).transpose()?;
    let outcome = match asked.outcome {
        Some(wire::RunOutcome::Failed) => RunOutcome::Failed,
        Some(wire::RunOutcome::Completed) | None => RunOutcome::Completed,
    };
    Ok(axum::Json(service.release_lease(&named, of.as_ref(), outcome).await?.convert()))
}

/// Renew a lease of an environment
#[utoipa::path(post, path = "/v1/environments/{environment}/leases/{lease}/renew",
    operation_id = "renewEnvironmentLease", tag = "environments", request_body = wire::RenewLease,
    params(
        ("environment" = String, Path, description = "ID or key of the environment."),
        ("lease" = String, Path, description = "ID of the lease."),
    ),
    responses(
        (status = 200, description = "The lease.", body = wire::EnvironmentLease),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn renew(
    ForRequest(service): ForRequest,
    Environment(named): Environment,
    Lease(id): Lease,
    Json(asked): Json<wire::RenewLease>,
) -> Result<axum::Json<wire::EnvironmentLease>, ApiError> {
    let time = seconds("lease_secs", asked.lease_secs)?;
    Ok(axum::Json(service.renew_lease(&named, &id, time).await?.convert()))
}

/// The lines of a log to return.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogQuery {
    /// Offset of the first line. Default 0.
    offset: Option<u64>,
    /// Largest number of lines to return, 1 to 1000. Default 1000.
    lines: Option<usize>,
    /// How many seconds to wait for a line, at most 600, while the sandbox is being made. Default
    /// 0.
    wait_secs: Option<f64>,
}

/// Read the log of an environment
///
/// The log is that of the latest attempt to make its sandbox. The offset of a line is its position
/// in the log, so a client continues with `next_offset`.
#[utoipa::path(get, path = "/v1/environments/{environment}/logs", operation_id = "getEnvironmentLog",
    tag = "environments",
    params(("environment" = String, Path, description = "ID or key of the environment."), LogQuery),
    responses(
        (status = 200, description = "Lines of the log.", body = wire::EnvironmentLog),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn logs(
    ForRequest(service): ForRequest,
    Environment(named): Environment,
    Query(query): Query<LogQuery>,
) -> Result<axum::Json<wire::EnvironmentLog>, ApiError> {
    let limit = query.lines.unwrap_or(BUILD_LOG_LINES_MAX);
    if !(1..=BUILD_LOG_LINES_MAX).contains(&limit) {
        let what = format!("lines is {limit}: it must be from 1 to {BUILD_LOG_LINES_MAX}");
        return Err(ApiError::invalid(what, "omit it for the largest number"));
    }
    let wait = query.wait_secs.filter(|wait| *wait != 0.0).map(|wait| seconds("wait_secs", wait)).transpose()?;
    let (from, patience) = (query.offset.unwrap_or(0), wait.unwrap_or_default().min(WAIT_MAX));
    let (page, record) = service.environment_log(&named, from, limit, patience).await?;
    let lines = (from..).zip(page.lines).map(wire::EnvironmentLogLine::of).collect();
    let in_progress = record.attempt.is_some();
    Ok(axum::Json(wire::EnvironmentLog { lines, next_offset: page.next.max(from), in_progress }))
}
