//! Killing and pausing a sandbox, and changing its time limit and its network.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::{Keep, SandboxId, StateName, Timeouts};
use dorm_service::{Changed, IfBusy, Manner, Service, ServiceError};
use serde::Deserialize;

use super::create::timeout;
use super::wire::NetworkChange;
use super::{Call, existing, network};
use crate::error::Refusal;
use crate::text;

/// A time limit that has passed as soon as it is set.
const NOW: Duration = Duration::from_millis(1);
/// The least by which a keep-alive of earlier clients extends a sandbox, in seconds.
const REFRESH_MIN: i64 = 15;

fn done() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Answers a request to kill a sandbox. The second of two gets 404.
pub(super) async fn kill(id: &str, call: Call) -> Result<Response, Refusal> {
    let service = call.service;
    let (sandbox, _) = existing(&service, id).await?;
    let view = service.terminate(&sandbox).await.map_err(|error| Refusal::of(&sandbox, error))?;
    match view.changed {
        Some(Changed::No) => Err(Refusal::no_sandbox(id)),
        Some(Changed::Yes) | None => Ok(done()),
    }
}

#[derive(Deserialize)]
struct TimeoutRequest {
    timeout: i64,
}

/// Answers a request to set the time limit of a running sandbox, from now. Zero and less end it
/// now.
pub(super) async fn set_timeout(id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let TimeoutRequest { timeout: seconds } = text::json(request).await?;
    let (sandbox, view) = running(&service, id).await?;
    let total = if seconds <= 0 { NOW } else { timeout(seconds)? };
    let timeouts = Timeouts { total: Some(total), ..view.sandbox.spec.timeouts };
    service.set_timeouts(&sandbox, timeouts).await.map_err(|error| Refusal::of(&sandbox, error))?;
    Ok(done())
}

#[derive(Deserialize)]
struct RefreshRequest {
    duration: Option<i64>,
}

/// Answers a keep-alive of an earlier client, which only ever extends the time limit.
pub(super) async fn refresh(id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let RefreshRequest { duration } = text::json(request).await?;
    let by = timeout(duration.unwrap_or(REFRESH_MIN).max(REFRESH_MIN))?;
    let (sandbox, _) = running(&service, id).await?;
    service.extend(&sandbox, by).await.map_err(|error| Refusal::of(&sandbox, error))?;
    Ok(done())
}

/// A sandbox that is not paused.
async fn running(service: &Service, id: &str) -> Result<(SandboxId, dorm_service::SandboxView), Refusal> {
    let (sandbox, view) = existing(service, id).await?;
    match view.sandbox.state.name() {
        StateName::Suspended | StateName::Suspending => Err(Refusal::no_sandbox(id)),
        StateName::Resuming => Err(Refusal::conflict(format!("Sandbox {sandbox} is being resumed: try again"))),
        _ => Ok((sandbox, view)),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PauseRequest {
    memory: Option<bool>,
    require_healthy_guest: Option<bool>,
}

/// Answers a request to pause a sandbox, once its state is on disk and verified.
pub(super) async fn pause(id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let asked: PauseRequest = text::json(request).await?;
    let (sandbox, view) = existing(&service, id).await?;
    let in_transition = |state: StateName| {
        Refusal::conflict(format!("Sandbox '{sandbox}' cannot be paused while in '{}' state", state.as_str()))
    };
    let already = || Refusal::conflict(format!("Error pausing sandbox - sandbox '{sandbox}' is already paused"));
    match view.sandbox.state.name() {
        StateName::Suspended => return Err(already()),
        state @ (StateName::Suspending | StateName::Resuming | StateName::Pending | StateName::Snapshotting) => {
            return Err(in_transition(state));
        }
        StateName::Running | StateName::Terminating | StateName::Terminated => {}
    }
    if asked.require_healthy_guest == Some(true) && view.sandbox.unreachable.is_some() {
        let message = format!("Sandbox '{sandbox}' was not paused: its guest does not answer");
        let refusal = Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message).not_again();
        return Err(refusal.with_code("sandbox_snapshot_guest_agent_unresponsive"));
    }
    let keep = if asked.memory == Some(false) { Keep::Files } else { Keep::Memory };
    let service = service.in_manner(Manner { if_busy: IfBusy::Refuse, ..Manner::default() });
    match service.suspend_with(&sandbox, keep).await {
        // Another call has paused it a moment ago.
        Ok(view) if view.changed == Some(Changed::No) => Err(already()),
        Ok(_) => Ok(done()),
        Err(ServiceError::Busy { state, .. }) => Err(in_transition(state)),
        Err(error) => Err(Refusal::of(&sandbox, error)),
    }
}

/// Answers a request to replace the egress of a running sandbox.
pub(super) async fn set_network(id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let asked: NetworkChange = text::json(request).await?;
    network::refuse_unsupported(&asked.network)?;
    let egress = network::egress(&asked.network, asked.allow_internet_access, service.project())?;
    let (sandbox, _) = running(&service, id).await?;
    service.set_egress(&sandbox, egress).await.map_err(|error| Refusal::of(&sandbox, error))?;
    Ok(done())
}
