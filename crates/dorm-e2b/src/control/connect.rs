//! Connecting to a sandbox, which resumes it if it is paused.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::{Initiator, Keep, SandboxId, StateName};
use dorm_service::{ResumeSpec, SandboxView, Service};
use serde::Deserialize;

use super::create::{PATIENCE, timeout};
use super::{Call, Version, existing, show};
use crate::door::E2b;
use crate::error::Refusal;
use crate::text;

#[derive(Deserialize)]
struct ConnectRequest {
    timeout: Option<i64>,
    /// `false` for a boot from the files, without the memory that was saved.
    memory: Option<bool>,
}

/// Answers a request to connect. A running sandbox gets at least the time limit asked for; a paused
/// one is resumed.
pub(super) async fn connect(door: &E2b, version: Version, id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let domain = show::domain(door, request.headers());
    let asked: ConnectRequest = text::json(request).await?;
    let seconds = match (asked.timeout, version) {
        (Some(seconds), _) => seconds,
        (None, Version::Second) => version.timeout_by_default(),
        (None, Version::First) => return Err(Refusal::invalid("timeout is missing")),
    };
    let total = timeout(seconds)?;
    let (sandbox, before) = existing(&service, id).await?;
    let was_paused = is_paused(&before);
    let spec = ResumeSpec { total: Some(total), max_wait: PATIENCE };
    let view = match (was_paused, asked.memory) {
        (true, Some(false)) => reboot(&service, &sandbox, &before, spec).await?,
        _ => resume(&service, &sandbox, spec).await?,
    };
    let status = if was_paused { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(show::sandbox(&service, &view, domain))).into_response())
}

/// Answers a request of an earlier client, which refuses to resume a running sandbox.
pub(super) async fn resume_paused(door: &E2b, id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let domain = show::domain(door, request.headers());
    let asked: ConnectRequest = text::json(request).await?;
    let total = timeout(asked.timeout.unwrap_or(Version::First.timeout_by_default()))?;
    let (sandbox, before) = existing(&service, id).await?;
    if !is_paused(&before) {
        return Err(Refusal::conflict(format!("Sandbox {sandbox} is already running")));
    }
    let spec = ResumeSpec { total: Some(total), max_wait: PATIENCE };
    let view = match asked.memory {
        Some(false) => reboot(&service, &sandbox, &before, spec).await?,
        _ => resume(&service, &sandbox, spec).await?,
    };
    Ok((StatusCode::CREATED, Json(show::sandbox(&service, &view, domain))).into_response())
}

fn is_paused(view: &SandboxView) -> bool {
    matches!(view.sandbox.state.name(), StateName::Suspended | StateName::Suspending | StateName::Resuming)
}

async fn resume(service: &Service, sandbox: &SandboxId, spec: ResumeSpec) -> Result<SandboxView, Refusal> {
    service.resume_as(sandbox, Initiator::User, spec).await.map_err(|error| Refusal::of(sandbox, error))
}

/// Boots a paused sandbox from its files. One whose memory was saved runs for a moment, until only
/// its files are kept: they are in the image of its memory.
async fn reboot(
    service: &Service,
    sandbox: &SandboxId,
    before: &SandboxView,
    spec: ResumeSpec,
) -> Result<SandboxView, Refusal> {
    let keeps_memory = before.sandbox.state.image().is_none_or(|image| image.keeps() == Keep::Memory);
    if keeps_memory {
        resume(service, sandbox, spec).await?;
        service.suspend_with(sandbox, Keep::Files).await.map_err(|error| Refusal::of(sandbox, error))?;
    }
    resume(service, sandbox, spec).await
}
