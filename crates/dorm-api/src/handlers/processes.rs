//! Processes that go on by themselves.

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use dorm_agent_client::{Agent, AgentError, ProcessStatus, Signal, Target};
use futures_util::StreamExt;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert;
use crate::error::ApiError;
use crate::extract::{Json, PAGE_MAX, Process, Query, Sandbox, page_limit_or};
use crate::routes::Api;
use crate::wire;
use dorm_service::Use;

/// Starts a process that goes on by itself.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes", operation_id = "startProcess", tag = "processes",
    request_body = wire::StartProcess,
    params(("id" = String, Path, description = "id, or name of a living sandbox")),
    responses(
        (status = 201, body = wire::ProcessStarted),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn start(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::StartProcess>,
) -> Result<(StatusCode, axum::Json<wire::ProcessStarted>), ApiError> {
    let spec = convert::process_spec(asked)?;
    Ok((StatusCode::CREATED, axum::Json(api.service.start(&id, spec).await?.into())))
}

/// Which processes to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only those that come after the process with this handle.
    after: Option<u64>,
    /// At most so many, 1 to 1000. Default 1000.
    limit: Option<usize>,
}

/// The processes that were started here, oldest first, page by page: all that live, and some that ended.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes", operation_id = "listProcesses", tag = "processes",
    params(("id" = String, Path, description = "id, or name of a living sandbox"), ListQuery),
    responses(
        (status = 200, body = wire::ProcessList),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn list(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<wire::ProcessList>, ApiError> {
    let limit = page_limit_or(query.limit, PAGE_MAX)?;
    let (agent, _in_use) = api.service.agent(&id, Use::Process).await?;
    let page = agent.processes_after(query.after, limit).await?;
    let next = page.items.last().filter(|_| page.more).map(|last| last.process);
    Ok(axum::Json(wire::ProcessList { processes: page.items.into_iter().map(Into::into).collect(), next }))
}

/// A process.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes/{process}", operation_id = "getProcess", tag = "processes",
    params(
        ("id" = String, Path, description = "id, or name of a living sandbox"),
        ("process" = u64, Path, description = "the process's handle"),
    ),
    responses(
        (status = 200, body = wire::Process),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn describe(
    State(api): State<Api>,
    Process(id, process): Process,
) -> Result<axum::Json<wire::Process>, ApiError> {
    let (agent, _in_use) = api.service.agent(&id, Use::Process).await?;
    Ok(axum::Json(status(&agent, process).await?.into()))
}

/// What is known of one process.
pub(crate) async fn status(agent: &Agent, process: u64) -> Result<ProcessStatus, ApiError> {
    Ok(agent.process(process).await?)
}

/// Writes the body to a process's input as it comes; answers when the sandbox's kernel has taken all of it.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/stdin", operation_id = "writeProcessStdin",
    tag = "processes",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    params(
        ("id" = String, Path, description = "id, or name of a living sandbox"),
        ("process" = u64, Path, description = "the process's handle"),
    ),
    responses(
        (status = 200, body = wire::StdinWritten),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn stdin(
    State(api): State<Api>,
    Process(id, process): Process,
    body: Body,
) -> Result<axum::Json<wire::StdinWritten>, ApiError> {
    let (agent, _in_use) = api.service.agent(&id, Use::Process).await?;
    let mut body = body.into_data_stream();
    let mut bytes = 0;
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| {
            let message = format!("the body broke off after {bytes} bytes, which were written: {error}");
            ApiError::invalid(message, "send the rest")
        })?;
        let length = chunk.len() as u64;
        agent.write_stdin(process, chunk).await?;
        bytes += length;
    }
    Ok(axum::Json(wire::StdinWritten { bytes }))
}

/// Closes a process's input behind what was written before; on a terminal, sends the end-of-file character.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/stdin/close", operation_id = "closeProcessStdin",
    tag = "processes",
    params(
        ("id" = String, Path, description = "id, or name of a living sandbox"),
        ("process" = u64, Path, description = "the process's handle"),
    ),
    responses(
        (status = 204, description = "it is closed"),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn close_stdin(State(api): State<Api>, Process(id, process): Process) -> Result<StatusCode, ApiError> {
    let (agent, _in_use) = api.service.agent(&id, Use::Process).await?;
    agent.close_stdin(process).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends a signal to a process, or to its group.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/signal", operation_id = "signalProcess",
    tag = "processes",
    request_body = wire::SignalRequest,
    params(
        ("id" = String, Path, description = "id, or name of a living sandbox"),
        ("process" = u64, Path, description = "the process's handle"),
    ),
    responses(
        (status = 204, description = "it is sent"),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn signal(
    State(api): State<Api>,
    Process(id, process): Process,
    Json(asked): Json<wire::SignalRequest>,
) -> Result<StatusCode, ApiError> {
    let signal = Signal::try_from(asked.signal).map_err(|failure| ApiError::from(AgentError::from(failure)))?;
    let target = match asked.target {
        wire::SignalTarget::Process => Target::Process,
        wire::SignalTarget::Group => Target::Group,
    };
    let (agent, _in_use) = api.service.agent(&id, Use::Process).await?;
    agent.signal(process, signal, target).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes the size of a process's terminal.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/resize", operation_id = "resizeProcessTerminal",
    tag = "processes",
    request_body = wire::TerminalSize,
    params(
        ("id" = String, Path, description = "id, or name of a living sandbox"),
        ("process" = u64, Path, description = "the process's handle"),
    ),
    responses(
        (status = 204, description = "it has the new size"),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn resize(
    State(api): State<Api>,
    Process(id, process): Process,
    Json(asked): Json<wire::Resize>,
) -> Result<StatusCode, ApiError> {
    let (agent, _in_use) = api.service.agent(&id, Use::Process).await?;
    agent.resize(process, asked.rows, asked.cols).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Waits until a process has ended; answers at once when it has.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes/{process}/wait", operation_id = "waitForProcess",
    tag = "processes",
    params(
        ("id" = String, Path, description = "id, or name of a living sandbox"),
        ("process" = u64, Path, description = "the process's handle"),
    ),
    responses(
        (status = 200, body = wire::ExitStatus),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn wait(
    State(api): State<Api>,
    Process(id, process): Process,
) -> Result<axum::Json<wire::ExitStatus>, ApiError> {
    let (agent, _in_use) = api.service.agent(&id, Use::Process).await?;
    Ok(axum::Json(agent.wait(process).await?.into()))
}
