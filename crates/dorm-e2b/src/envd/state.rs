//! The state of a sandbox: whether it runs, its figures, and its variables.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use dorm_service::Use;
use jiff::Timestamp;
use serde_json::json;

use super::access::Call;
use super::fault::Failed;
use crate::control::usage::metric;

const MIB: u64 = 1 << 20;

/// Tells whether the sandbox runs.
pub(super) async fn health(call: &Call) -> Response {
    match call.agent(Use::Process).await {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(failed) => call.refuse(failed).await,
    }
}

/// Tells the figures of the sandbox.
pub(super) async fn metrics(call: &Call) -> Response {
    match measured(call).await {
        Ok(figures) => axum::Json(figures).into_response(),
        Err(failed) => call.refuse(failed).await,
    }
}

/// Measures memory and disk now. The use of CPU is that of the last sample.
async fn measured(call: &Call) -> Result<serde_json::Value, Failed> {
    let (agent, _in_use) = call.agent(Use::Process).await?;
    let found = agent.metrics().await?;
    let samples = call.service.usage_history(call.sandbox(), None, None).await?;
    let resources = call.view.sandbox.spec.resources;
    let (total, used) = (resources.memory_bytes, found.memory_used_bytes);
    Ok(json!({
        "ts": Timestamp::now().as_second(),
        "cpu_count": found.cpus,
        "cpu_used_pct": samples.last().map_or(0.0, |last| metric(last).cpu_used_pct),
        "mem_total": total,
        "mem_used": used,
        "mem_cache": 0,
        "mem_total_mib": total / MIB,
        "mem_used_mib": used / MIB,
        "disk_used": found.disk_used_bytes.min(resources.disk_bytes),
        "disk_total": resources.disk_bytes,
    }))
}

/// The variables that the sandbox was created with.
pub(super) fn variables(call: &Call) -> Response {
    axum::Json(&call.view.sandbox.spec.variables.0).into_response()
}
