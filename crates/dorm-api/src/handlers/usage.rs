//! Shows what sandboxes use.

use axum::extract::State;
use dorm_api_types as wire;

use crate::error::ApiError;
use crate::extract::Sandbox;
use crate::state::Api;

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
