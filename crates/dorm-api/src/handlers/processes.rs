//! Background processes.

use axum::body::Body;
use axum::http::StatusCode;
use dorm_agent_client::{Agent, AgentError, ExitStatus, ProcessStatus, Signal, Target};
use dorm_api_types as wire;
use futures_util::StreamExt;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, PAGE_MAX, Process, Query, Sandbox, page_limit_or, seconds};
use dorm_service::Use;

/// Start a background process
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes", operation_id = "startProcess", tag = "processes",
    request_body = wire::StartProcess,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 201, description = "The started process.", body = wire::ProcessStarted),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn start(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::StartProcess>,
) -> Result<(StatusCode, axum::Json<wire::ProcessStarted>), ApiError> {
    let limit = asked.timeout_secs.map(|value| seconds("timeout_secs", value)).transpose()?;
    let spec = convert::process_spec(asked)?;
    Ok((StatusCode::CREATED, axum::Json(service.start(&id, spec, limit).await?.convert())))
}

/// Parameters of the list of processes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Cursor: `next` of the previous page.
    after: Option<u64>,
    /// Largest number of items to return, 1 to 1000. Default 1000.
    limit: Option<usize>,
    /// Only processes with exactly this label.
    label: Option<String>,
    /// Only the running process with this process ID inside the sandbox.
    pid: Option<u32>,
}

/// List processes
///
/// Processes that were started through this API, oldest first: all running ones, and ended ones
/// that are still remembered.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes", operation_id = "listProcesses", tag = "processes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one."), ListQuery),
    responses(
        (status = 200, description = "One page of processes.", body = wire::ProcessList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<wire::ProcessList>, ApiError> {
    let limit = page_limit_or(query.limit, PAGE_MAX)?;
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    let is_wanted = |status: &ProcessStatus| {
        query.label.as_ref().is_none_or(|label| status.label.as_ref() == Some(label))
            && query.pid.is_none_or(|pid| status.pid == pid && status.exit.is_none())
    };
    let page = agent.processes_that(query.after, limit, is_wanted).await?;
    let next = page.items.last().filter(|_| page.more).map(|last| last.process.to_string());
    Ok(axum::Json(wire::ProcessList { processes: page.items.into_iter().map(Convert::convert).collect(), next }))
}

/// Get a process
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes/{process}", operation_id = "getProcess", tag = "processes",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("process" = u64, Path, description = "Handle of the process."),
    ),
    responses(
        (status = 200, description = "The process.", body = wire::Process),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    Process(id, process): Process,
) -> Result<axum::Json<wire::Process>, ApiError> {
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    Ok(axum::Json(status(&agent, process).await?.convert()))
}

/// The status of one process.
pub(crate) async fn status(agent: &Agent, process: u64) -> Result<ProcessStatus, ApiError> {
    Ok(agent.process(process).await?)
}

/// Write to the standard input of a process
///
/// The body is written as it arrives. Responds when the kernel of the sandbox has accepted all of
/// it.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/stdin", operation_id = "writeProcessStdin",
    tag = "processes",
    request_body(content = wire::Binary, content_type = "application/octet-stream"),
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("process" = u64, Path, description = "Handle of the process."),
    ),
    responses(
        (status = 200, description = "The number of bytes written.", body = wire::StdinWritten),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn stdin(
    ForRequest(service): ForRequest,
    Process(id, process): Process,
    body: Body,
) -> Result<axum::Json<wire::StdinWritten>, ApiError> {
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    let mut body = body.into_data_stream();
    let mut bytes = 0;
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| {
            let message = format!("the request body ended early after {bytes} bytes, which were written: {error}");
            ApiError::invalid(message, "send the rest")
        })?;
        let length = chunk.len() as u64;
        agent.write_stdin(process, chunk).await?;
        bytes += length;
    }
    Ok(axum::Json(wire::StdinWritten { bytes }))
}

/// Close the standard input of a process
///
/// Input that was written earlier is delivered first. On a terminal, this sends the end-of-file
/// character.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/stdin/close", operation_id = "closeProcessStdin",
    tag = "processes",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("process" = u64, Path, description = "Handle of the process."),
    ),
    responses(
        (status = 204, description = "The input is closed."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn close_stdin(
    ForRequest(service): ForRequest,
    Process(id, process): Process,
) -> Result<StatusCode, ApiError> {
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    agent.close_stdin(process).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send a signal to a process or its group
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/signal", operation_id = "signalProcess",
    tag = "processes",
    request_body = wire::SignalRequest,
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("process" = u64, Path, description = "Handle of the process."),
    ),
    responses(
        (status = 204, description = "The signal was sent."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn signal(
    ForRequest(service): ForRequest,
    Process(id, process): Process,
    Json(asked): Json<wire::SignalRequest>,
) -> Result<StatusCode, ApiError> {
    let signal = Signal::try_from(asked.signal).map_err(|failure| ApiError::from(AgentError::from(failure)))?;
    let target = match asked.target {
        wire::SignalTarget::Process => Target::Process,
        wire::SignalTarget::Group => Target::Group,
    };
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    agent.signal(process, signal, target).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Kill a process and all its descendants
///
/// Kills the process and every process that descends from it, also those that have left its group
/// and session, and also if the process itself has ended. Not found is only a descendant whose
/// parents have ended, in a session of its own, that has removed the environment variable
/// `DORMOUSE_PROCESS`.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/kill", operation_id = "killProcess",
    tag = "processes",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("process" = u64, Path, description = "Handle of the process."),
    ),
    responses(
        (status = 200, description = "The number of processes that were killed.", body = wire::Killed),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn kill(
    ForRequest(service): ForRequest,
    Process(id, process): Process,
) -> Result<axum::Json<wire::Killed>, ApiError> {
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    Ok(axum::Json(wire::Killed { killed: agent.kill_tree(process).await? }))
}

/// Resize the terminal of a process
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/resize", operation_id = "resizeProcessTerminal",
    tag = "processes",
    request_body = wire::TerminalSize,
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("process" = u64, Path, description = "Handle of the process."),
    ),
    responses(
        (status = 204, description = "The terminal has the new size."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn resize(
    ForRequest(service): ForRequest,
    Process(id, process): Process,
    Json(asked): Json<wire::Resize>,
) -> Result<StatusCode, ApiError> {
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    agent.resize(process, asked.rows, asked.cols).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Wait for a process to end
///
/// Responds at once if the process has already ended.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes/{process}/wait", operation_id = "waitForProcess",
    tag = "processes",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("process" = u64, Path, description = "Handle of the process."),
    ),
    responses(
        (status = 200, description = "How the process ended.", body = wire::ExitStatus),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn wait(
    ForRequest(service): ForRequest,
    Process(id, process): Process,
) -> Result<axum::Json<wire::ExitStatus>, ApiError> {
    let (agent, _in_use) = service.agent(&id, Use::Process).await?;
    let status = agent.wait(process).await?;
    // Only a process that was killed can have exceeded its time limit. It may be forgotten already.
    let timed_out = match status {
        ExitStatus::Code(_) => false,
        ExitStatus::Signal(_) => agent.process(process).await.is_ok_and(|process| process.timed_out),
    };
    Ok(axum::Json(wire::ExitStatus { timed_out, ..status.convert() }))
}
