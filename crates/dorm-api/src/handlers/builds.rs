//! Builds of images and templates.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dorm_api_types as wire;
use dorm_http::sse;
use dorm_lifecycle::{BuildId, Digest, IdError};
use dorm_service::{BUILD_LOG_LINES_MAX, Service};
use futures_util::{TryStreamExt as _, stream};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::{self, Convert, Of};
use crate::error::{self, ApiError};
use crate::extract::{ForRequest, Json, Query, WantsEvents, parameter, seconds};
use crate::page::{Dated, PageQuery};
use crate::state::Api;

/// The longest wait for the end of a build, or for a line of its log.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// The build of `{build}`.
pub(crate) struct Build(BuildId);

impl FromRequestParts<Api> for Build {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let text = parameter(parts, api, "build").await?;
        let invalid = |error: IdError| ApiError::not_found(format!("there is no build '{text}': {error}"), "");
        text.parse().map(Self).map_err(invalid)
    }
}

/// The hash of a context in a path.
pub(crate) struct Hash(Digest);

impl FromRequestParts<Api> for Hash {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        convert::digest("hash", &parameter(parts, api, "hash").await?).map(Self)
    }
}

/// Upload a build context
///
/// The body is a tar archive, plain or compressed with gzip or zstd. `hash` is chosen by the
/// client: the same hash must always mean the same files, because a context that exists is not
/// replaced. A context belongs to the project. It is removed when the builds that use it have
/// ended, or after an hour without one.
#[utoipa::path(put, path = "/v1/contexts/{hash}", operation_id = "uploadBuildContext", tag = "builds",
    request_body(content = wire::Binary, content_type = "application/x-tar"),
    params(("hash" = String, Path, description = "64 lower-case hexadecimal digits, such as a SHA-256 hash.")),
    responses(
        (status = 201, description = "The context.", body = wire::BuildContext),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn upload(
    ForRequest(service): ForRequest,
    Hash(hash): Hash,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, axum::Json<wire::BuildContext>), ApiError> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let body = body.into_data_stream().map_err(io::Error::other);
    let context = service.upload_context(&hash, body, length).await?;
    Ok((StatusCode::CREATED, axum::Json(shown(context))))
}

/// Get a build context
///
/// Tells whether a context was uploaded before and still exists.
#[utoipa::path(get, path = "/v1/contexts/{hash}", operation_id = "getBuildContext", tag = "builds",
    params(("hash" = String, Path, description = "64 lower-case hexadecimal digits.")),
    responses(
        (status = 200, description = "The context.", body = wire::BuildContext),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn context(
    ForRequest(service): ForRequest,
    Hash(hash): Hash,
) -> Result<axum::Json<wire::BuildContext>, ApiError> {
    Ok(axum::Json(shown(service.context(&hash).await?)))
}

fn shown(context: dorm_service::UploadedContext) -> wire::BuildContext {
    let dorm_service::UploadedContext { key, entries, bytes } = context;
    wire::BuildContext { hash: key.to_string(), entries, bytes }
}

/// Build an image or a template
///
/// Responds at once: the build is carried out by the daemon, whether or not its client stays, and
/// continues after a restart of the daemon. Builds of a project begin in the order in which they
/// were requested, and projects take turns.
#[utoipa::path(post, path = "/v1/builds", operation_id = "createBuild", tag = "builds",
    request_body = wire::CreateBuild,
    responses(
        (status = 202, description = "The build, which waits for its turn.", body = wire::Build),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn create(
    ForRequest(service): ForRequest,
    Json(asked): Json<wire::CreateBuild>,
) -> Result<(StatusCode, axum::Json<wire::Build>), ApiError> {
    let build = service.create_build(convert::plan(asked)?).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(build.convert())))
}

/// List builds
///
/// Ordered by the time of the request, the oldest first. Ended builds are kept for two weeks.
#[utoipa::path(get, path = "/v1/builds", operation_id = "listBuilds", tag = "builds", params(PageQuery),
    responses(
        (status = 200, description = "One page of builds.", body = wire::BuildList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<wire::BuildList>, ApiError> {
    let (builds, next) = query.of(service.builds().await?, |build| Dated(build.created, build.id.clone()))?;
    Ok(axum::Json(wire::BuildList { builds: builds.into_iter().map(Convert::convert).collect(), next }))
}

/// The build to wait for.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DescribeQuery {
    /// How many seconds to wait for the end of the build, at most 600. Default 0.
    wait_secs: Option<f64>,
}

fn patience(wait: Option<f64>) -> Result<Duration, ApiError> {
    let wait = wait.filter(|wait| *wait != 0.0).map(|wait| seconds("wait_secs", wait)).transpose()?;
    Ok(wait.unwrap_or_default().min(WAIT_MAX))
}

/// Get a build
///
/// With `wait_secs`, the response comes when the build has ended, or after that time.
#[utoipa::path(get, path = "/v1/builds/{build}", operation_id = "getBuild", tag = "builds",
    params(("build" = String, Path, description = "ID of the build."), DescribeQuery),
    responses(
        (status = 200, description = "The build.", body = wire::Build),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    Build(id): Build,
    Query(query): Query<DescribeQuery>,
) -> Result<axum::Json<wire::Build>, ApiError> {
    Ok(axum::Json(service.await_build(&id, patience(query.wait_secs)?).await?.convert()))
}

/// Cancel a build
///
/// A build in progress ends soon; its state is `cancelled` once nothing of it is left. One that has
/// ended, or whose result is being named, stays as it is.
#[utoipa::path(post, path = "/v1/builds/{build}/cancel", operation_id = "cancelBuild", tag = "builds",
    params(("build" = String, Path, description = "ID of the build.")),
    responses(
        (status = 200, description = "The build.", body = wire::Build),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn cancel(
    ForRequest(service): ForRequest,
    Build(id): Build,
) -> Result<axum::Json<wire::Build>, ApiError> {
    Ok(axum::Json(service.cancel_build(&id).await?.convert()))
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
    /// How many seconds to wait for a line, at most 600, unless the build has ended. Default 0.
    wait_secs: Option<f64>,
}

/// Read the log of a build
///
/// The offset of a line is its position in the log, so a client continues with `next_offset`. With
/// `Accept: text/event-stream`, the response is a stream of server-sent events: `line` with its
/// offset as the ID of the event, as lines are written, and `end` with the build when it has ended.
/// A log keeps its first 8 MiB of output; lines of the builder are always kept.
#[utoipa::path(get, path = "/v1/builds/{build}/logs", operation_id = "getBuildLog", tag = "builds",
    params(("build" = String, Path, description = "ID of the build."), LogQuery),
    responses(
        (status = 200, description = "Lines of the log.", content((wire::BuildLog = "application/json"),
            (wire::BuildLogLine = "text/event-stream"))),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn logs(
    ForRequest(service): ForRequest,
    Build(id): Build,
    WantsEvents(events): WantsEvents,
    headers: HeaderMap,
    Query(query): Query<LogQuery>,
) -> Result<Response, ApiError> {
    let limit = query.lines.unwrap_or(BUILD_LOG_LINES_MAX);
    if !(1..=BUILD_LOG_LINES_MAX).contains(&limit) {
        let what = format!("lines is {limit}: it must be from 1 to {BUILD_LOG_LINES_MAX}");
        return Err(ApiError::invalid(what, "omit it for the largest number"));
    }
    let seen =
        sse::last_event_id(&headers).and_then(|id| id.parse::<u64>().ok()).map(|offset| offset.saturating_add(1));
    let from = seen.or(query.offset).unwrap_or(0);
    if events {
        service.describe_build(&id).await?;
        return Ok(sse::answer(follow(service, id, from)));
    }
    let (page, build) = service.build_log(&id, from, limit, patience(query.wait_secs)?).await?;
    let lines = (from..).zip(page.lines).map(wire::BuildLogLine::of).collect();
    let log = wire::BuildLog { lines, next_offset: page.next, state: (&build.state).convert() };
    Ok(axum::Json(log).into_response())
}

/// Follows a log until its build has ended.
fn follow(
    service: Service,
    id: BuildId,
    from: u64,
) -> impl futures_util::Stream<Item = axum::response::sse::Event> + Send + 'static {
    use futures_util::StreamExt as _;
    let pages = stream::unfold(Some((service, id, from)), |at| async move {
        let (service, id, from) = at?;
        let (page, build) = match service.build_log(&id, from, BUILD_LOG_LINES_MAX, WAIT_MAX).await {
            Ok(found) => found,
            Err(error) => return Some((vec![error::last_event(error.into())], None)),
        };
        let is_over = build.state.has_ended() && page.lines.is_empty();
        let mut events: Vec<_> = (from..)
            .zip(page.lines)
            .map(|(offset, line)| sse::event("line", &wire::BuildLogLine::of((offset, line))).id(offset.to_string()))
            .collect();
        if is_over {
            events.push(sse::event("end", &wire::Build::of(build)));
            return Some((events, None));
        }
        Some((events, Some((service, id, page.next))))
    });
    pages.flat_map(stream::iter)
}
