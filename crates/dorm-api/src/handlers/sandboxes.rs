//! Sandboxes, from create to terminate.

use axum::extract::State;
use axum::http::StatusCode;
use dorm_api_types as wire;
use dorm_lifecycle::{IdError, Initiator};
use dorm_ports::{RemoteSpec, Transport};
use dorm_service::{CheckpointSpec, CreateFrom, PullPolicy};
use dorm_store::SandboxFilter;
use utoipa::IntoParams;

use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Query, Sandbox, seconds};
use crate::state::Api;
use crate::tagged::Tagged;

type Answer = Result<Tagged, ApiError>;

/// The default size of a page.
const PAGE: usize = 100;
/// The largest size of a page.
const PAGE_MAX: usize = 1000;

/// Create a sandbox
///
/// Starts from an image or a snapshot. Responds when the sandbox is running.
#[utoipa::path(post, path = "/v1/sandboxes", operation_id = "createSandbox", tag = "sandboxes",
    request_body = wire::CreateSandbox,
    responses(
        (status = 201, description = "The running sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn create(
    ForRequest(service): ForRequest,
    Json(asked): Json<wire::CreateSandbox>,
) -> Result<(StatusCode, Tagged), ApiError> {
    if let Some(created) = service.created_by_first_request().await? {
        return Ok((StatusCode::CREATED, created.into()));
    }
    let (from, base) = match (&asked.image, &asked.snapshot) {
        (Some(image), None) => {
            let pull = asked.pull.map_or(PullPolicy::Missing, Convert::convert);
            let wanted = RemoteSpec { reference: image.clone(), architecture: None, transport: Transport::Secure };
            let found = service.find_image(wanted, pull, |_| {}).await?;
            if asked.start && found.config.start().is_empty() {
                let message = format!("the image '{image}' has no command to start");
                return Err(ApiError::invalid(message, "create the sandbox without `start` and run a command in it"));
            }
            (CreateFrom::Image(found.digest.to_string()), dorm_lifecycle::Resources::default())
        }
        (None, Some(id)) => {
            let id = id.parse().map_err(|error: IdError| ApiError::invalid(format!("snapshot: {error}"), ""))?;
            let base = service.snapshot(&id).await?.resources;
            (CreateFrom::Snapshot(id), base)
        }
        _ => {
            let message = "give exactly one of image and snapshot";
            return Err(ApiError::invalid(
                message,
                "list images with GET /v1/images, snapshots with GET /v1/snapshots",
            ));
        }
    };
    let asked = convert::create(asked, from, base)?;
    let view = service.create(asked).await?;
    Ok((StatusCode::CREATED, view.into()))
}

/// Parameters of the list of sandboxes.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "only describes the query, which is parsed pair by pair because `label` may be repeated")]
pub(crate) struct ListQuery {
    /// Only sandboxes in these states, separated by commas. Default: every state, including
    /// `terminated`.
    state: Option<String>,
    /// Only sandboxes with this name.
    name: Option<String>,
    /// Only sandboxes with this label, `KEY=VALUE`. Repeat to require several labels.
    label: Option<Vec<String>>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
    /// Largest number of items to return, 1 to 1000. Default 100.
    limit: Option<usize>,
}

/// List sandboxes
///
/// Ordered by id. Terminated sandboxes are included unless `state` excludes them.
#[utoipa::path(get, path = "/v1/sandboxes", operation_id = "listSandboxes", tag = "sandboxes", params(ListQuery),
    responses(
        (status = 200, description = "One page of sandboxes.", body = wire::SandboxPage),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    State(api): State<Api>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<axum::Json<wire::SandboxPage>, ApiError> {
    let mut filter = filter(query)?;
    filter.project = Some(api.service.project().clone());
    let wanted = filter.limit;
    filter.limit = wanted + 1;
    let mut views = api.service.list(&filter).await?;
    let more = views.len() > wanted;
    views.truncate(wanted);
    let next = views.last().filter(|_| more).map(|last| last.sandbox.id.to_string());
    Ok(axum::Json(wire::SandboxPage { sandboxes: views.into_iter().map(Convert::convert).collect(), next }))
}

fn filter(query: Vec<(String, String)>) -> Result<SandboxFilter, ApiError> {
    let mut filter = SandboxFilter { limit: PAGE, ..SandboxFilter::default() };
    let id_error = |error: IdError| ApiError::invalid(error.to_string(), "");
    for (key, value) in query {
        match key.as_str() {
            "state" => {
                for word in value.split(',') {
                    let state = convert::state_name(word).ok_or_else(|| {
                        let words: Vec<_> = dorm_lifecycle::StateName::ALL.iter().map(|state| state.as_str()).collect();
                        ApiError::invalid(format!("'{word}' is not a state: states are {}", words.join(", ")), "")
                    })?;
                    filter.states.push(state);
                }
            }
            "name" => filter.name = Some(value.parse().map_err(id_error)?),
            "after" => filter.after = Some(value.parse().map_err(id_error)?),
            "label" => {
                let (key, value) = value.split_once('=').ok_or_else(|| {
                    ApiError::invalid(format!("label '{value}' has no '='"), "write labels as KEY=VALUE")
                })?;
                filter.labels.push((key.to_owned(), value.to_owned()));
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
                filter.limit = limit.ok_or_else(|| {
                    ApiError::invalid(format!("limit is '{value}': it must be between 1 and {PAGE_MAX}"), "")
                })?;
            }
            other => {
                let message =
                    format!("unknown query parameter '{other}': known are state, name, label, after and limit");
                return Err(ApiError::invalid(message, ""));
            }
        }
    }
    Ok(filter)
}

/// Get a sandbox
///
/// Works in every state, including `terminated`.
#[utoipa::path(get, path = "/v1/sandboxes/{id}", operation_id = "getSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(State(api): State<Api>, Sandbox(id): Sandbox) -> Answer {
    Ok(api.service.describe(&id).await?.into())
}

/// Suspend a sandbox
///
/// Saves the memory, processes and files of a running sandbox. When this call responds, they are on
/// disk and verified.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/suspend", operation_id = "suspendSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The suspended sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn suspend(ForRequest(service): ForRequest, Sandbox(id): Sandbox) -> Answer {
    Ok(service.suspend(&id).await?.into())
}

/// Resume a suspended sandbox
///
/// The sandbox continues with the memory, processes and files it was suspended with.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/resume", operation_id = "resumeSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The running sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn resume(ForRequest(service): ForRequest, Sandbox(id): Sandbox) -> Answer {
    Ok(service.resume(&id, Initiator::User).await?.into())
}

/// Release the memory of a suspended sandbox
///
/// A suspended sandbox may be parked: its memory is still held for a faster resume. This call
/// releases that memory and leaves the sleep image on disk. It has no effect on a sandbox that is
/// not parked.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/evict", operation_id = "evictSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn evict(ForRequest(service): ForRequest, Sandbox(id): Sandbox) -> Answer {
    Ok(service.evict(&id).await?.into())
}

/// Terminate a sandbox
///
/// Termination is final: memory and files of the sandbox are deleted. Its snapshots remain.
/// Terminating a terminated sandbox succeeds.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/terminate", operation_id = "terminateSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The terminated sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn terminate(ForRequest(service): ForRequest, Sandbox(id): Sandbox) -> Answer {
    Ok(service.terminate(&id).await?.into())
}

/// Terminate a sandbox
///
/// The same as `POST /v1/sandboxes/{id}/terminate`.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}", operation_id = "deleteSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The terminated sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn delete(ForRequest(service): ForRequest, Sandbox(id): Sandbox) -> Answer {
    Ok(service.terminate(&id).await?.into())
}

/// Take a snapshot of a sandbox
///
/// A running sandbox continues to run, and a suspended sandbox stays suspended. By default the call
/// responds when the snapshot is on disk and verified. With `"wait": false` it responds at once;
/// poll the snapshot until its status is no longer `in_progress`.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/checkpoint", operation_id = "checkpointSandbox", tag = "snapshots",
    request_body = wire::CheckpointRequest,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 201, description = "The completed snapshot.", body = wire::Snapshot),
        (status = 202, description = "The snapshot in progress.", body = wire::Snapshot),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn checkpoint(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::CheckpointRequest>,
) -> Result<(StatusCode, axum::Json<wire::Snapshot>), ApiError> {
    let expires = asked.expires_secs.map(|value| seconds("expires_secs", value)).transpose()?;
    let settings = CheckpointSpec { kind: asked.kind.convert(), labels: asked.labels, expires };
    match asked.wait {
        true => Ok((StatusCode::CREATED, axum::Json(service.checkpoint_as(&id, settings).await?.convert()))),
        false => Ok((StatusCode::ACCEPTED, axum::Json(service.begin_checkpoint(&id, settings).await?.convert()))),
    }
}

/// Clone a sandbox
///
/// Takes a memory snapshot and creates a sandbox from it, with the settings and variables of the
/// source. The snapshot is kept.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/clone", operation_id = "cloneSandbox", tag = "sandboxes",
    request_body = wire::CloneRequest,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 201, description = "The new sandbox and the snapshot it was created from.", body = wire::Cloned),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn clone(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::CloneRequest>,
) -> Result<(StatusCode, axum::Json<wire::Cloned>), ApiError> {
    let name = asked.name.map(|name| name.parse()).transpose();
    let name = name.map_err(|error: IdError| ApiError::invalid(error.to_string(), ""))?;
    let made = service.clone_with(&id, name, &convert::secrets(asked.secrets), asked.volumes.convert()).await?;
    let cloned = wire::Cloned { sandbox: made.clone.convert(), snapshot: made.snapshot.convert() };
    Ok((StatusCode::CREATED, axum::Json(cloned)))
}

/// Replace the time limits of a sandbox
///
/// The new limits count from now, except `max_run_secs`, which counts from the start of the run.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/timeouts", operation_id = "setTimeouts", tag = "sandboxes",
    request_body = wire::SetTimeouts,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The sandbox with its new limits.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn timeouts(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::SetTimeouts>,
) -> Answer {
    let timeouts = convert::timeouts(asked.timeout_secs, asked.idle_timeout_secs, asked.max_run_secs)?;
    Ok(service.set_timeouts(&id, timeouts).await?.into())
}

/// Explain the state of a sandbox
///
/// Why the sandbox is in its state, what happens next and when, and what is kept on disk for it.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/why", operation_id = "explainSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The explanation.", body = wire::Why),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn why(State(api): State<Api>, Sandbox(id): Sandbox) -> Result<axum::Json<wire::Why>, ApiError> {
    Ok(axum::Json(convert::why(&id, api.service.why(&id).await?)))
}

/// Get the resource usage of a sandbox
#[utoipa::path(get, path = "/v1/sandboxes/{id}/usage", operation_id = "getSandboxUsage", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The resources of the host that the sandbox uses now.", body = wire::Usage),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn usage(State(api): State<Api>, Sandbox(id): Sandbox) -> Result<axum::Json<wire::Usage>, ApiError> {
    let usage = api.service.usage(&id).await?;
    Ok(axum::Json(wire::Usage {
        cpu_secs: std::time::Duration::from_micros(usage.cpu_micros).as_secs_f64(),
        memory_bytes: usage.memory_bytes,
        processes: usage.processes,
        disk_bytes: usage.disk_bytes,
        network: usage.network.map(|traffic| wire::NetworkUsage {
            sent_bytes: traffic.sent_bytes,
            received_bytes: traffic.received_bytes,
            limit_bytes_per_second: traffic.limit_bytes_per_second,
        }),
        disk_io: usage.disk_io.map(|io| wire::DiskIo {
            read_bytes: io.read_bytes,
            written_bytes: io.written_bytes,
            read_limit: io.read_limit,
            write_limit: io.write_limit,
            operations_limit: io.operations_limit,
        }),
    }))
}
