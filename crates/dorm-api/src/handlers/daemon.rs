//! The daemon itself.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use dorm_api_types as wire;
use dorm_service::Figures;
use dorm_storage::Stored;
use dorm_store::RowKind;
use metrics_exporter_prometheus::PrometheusHandle;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Query};
use crate::state::Api;

/// Get version, project and engine
#[utoipa::path(get, path = "/v1/info", operation_id = "getInfo", tag = "daemon", responses(
    (status = 200, description = "The daemon's version, the project of the key, and the engine.", body = wire::Info),
    (status = "default", response = ApiError),
))]
pub(crate) async fn info(ForRequest(service): ForRequest, State(api): State<Api>) -> axum::Json<wire::Info> {
    let engine = service.capabilities();
    axum::Json(wire::Info {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        project: service.project().to_string(),
        engine: wire::Engine {
            name: engine.name.to_owned(),
            build: engine.build.clone(),
            format: engine.format.map(str::to_owned),
            also: engine.also.clone(),
            released: engine.released.clone(),
            cpu: engine.cpu.clone(),
            maps_memory: engine.memory.copied_because().is_none(),
            copies_memory_because: engine.memory.copied_because().map(str::to_owned),
            shares_blocks: engine.shares_blocks,
            holds_after_restore: engine.holds_after_restore,
        },
        doors: api.access.doors.iter().map(|(door, address)| (door.to_string(), address.to_string())).collect(),
    })
}

/// Check that the daemon responds
///
/// Does not require an API key.
#[utoipa::path(get, path = "/v1/health", operation_id = "getHealth",
    tag = "daemon", security(()), responses(
    (status = 200, description = "The daemon is running.", body = wire::Health),
    (status = "default", response = ApiError),
))]
pub(crate) async fn health() -> axum::Json<wire::Health> {
    axum::Json(wire::Health { status: "ok".to_owned() })
}

/// Preview garbage collection
///
/// Lists everything on disk, whether garbage collection would keep or delete it, and why. Changes
/// nothing.
#[utoipa::path(get, path = "/v1/gc", operation_id = "previewGarbageCollection", tag = "daemon", responses(
    (status = 200, description = "The contents of the data directory.", body = wire::CollectorItemList),
    (status = "default", response = ApiError),
))]
pub(crate) async fn items(ForRequest(service): ForRequest) -> Result<axum::Json<wire::CollectorItemList>, ApiError> {
    let items = service.items().await?.into_iter().map(Convert::convert).collect();
    Ok(axum::Json(wire::CollectorItemList { items }))
}

/// Collect garbage
///
/// Deletes files that records mark for deletion and that could not be deleted earlier, for example
/// because the daemon was stopped. With `runs=true`, it also ends runs of this data directory that
/// no record names.
#[utoipa::path(post, path = "/v1/gc", operation_id = "collectGarbage", tag = "daemon", params(wire::CollectOptions),
    responses(
        (status = 200, description = "The objects that were deleted or ended.", body = wire::CollectorItemList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn collect(
    ForRequest(service): ForRequest,
    Query(options): Query<wire::CollectOptions>,
) -> Result<axum::Json<wire::CollectorItemList>, ApiError> {
    let mut collected = service.collect().await?;
    if options.runs {
        collected.extend(service.end_unrecorded_runs().await?);
    }
    let items = collected.into_iter().map(Convert::convert).collect();
    Ok(axum::Json(wire::CollectorItemList { items }))
}

/// List what can be verified on disk
#[utoipa::path(get, path = "/v1/verify", operation_id = "listStoredObjects", tag = "daemon", responses(
    (status = 200, description = "The images, image layers and saved states on disk.", body = wire::StoredList),
    (status = "default", response = ApiError),
))]
pub(crate) async fn stored(ForRequest(service): ForRequest) -> Result<axum::Json<wire::StoredList>, ApiError> {
    let stored = service.stored().await?.into_iter().map(Convert::convert).collect();
    Ok(axum::Json(wire::StoredList { stored }))
}

/// Verify an image, layer or saved state
///
/// Reads every byte of one stored object and compares it with what was written. A damaged object is
/// not used again.
#[utoipa::path(post, path = "/v1/verify", operation_id = "verifyStoredObject", tag = "daemon",
    request_body = wire::Stored,
    responses(
        (status = 200, description = "The result of the verification.", body = wire::Verified),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn verify(
    ForRequest(service): ForRequest,
    Json(asked): Json<wire::Stored>,
) -> Result<axum::Json<wire::Verified>, ApiError> {
    let stored = Stored::named(&asked.kind, &asked.id).ok_or_else(|| {
        let message =
            format!("there is no {} '{}': kinds are image, image_layer and saved state", asked.kind, asked.id);
        ApiError::invalid(message, "list what can be verified with GET /v1/verify")
    })?;
    let verified = match service.verify(&stored).await? {
        Some(checked) => checked.convert(),
        None => {
            wire::Verified { kind: asked.kind, id: asked.id, verdict: "gone".to_owned(), bytes: 0, files: Vec::new() }
        }
    };
    Ok(axum::Json(verified))
}

/// List unreadable records and damaged files
///
/// Records, saved states and images that cannot be read, and those that verification found damaged.
#[utoipa::path(get, path = "/v1/quarantine", operation_id = "getQuarantine", tag = "daemon", responses(
    (status = 200, description = "Everything in quarantine.", body = wire::Quarantine),
    (status = "default", response = ApiError),
))]
pub(crate) async fn quarantine(ForRequest(service): ForRequest) -> Result<axum::Json<wire::Quarantine>, ApiError> {
    let records = service.unreadable().await?.into_iter().map(Convert::convert).collect();
    let files = service.storage().unreadable().await.map_err(dorm_service::ServiceError::from)?;
    let files = files.into_iter().map(|(what, error)| wire::QuarantinedFile { what, reason: error.to_string() });
    let mut files: Vec<_> = files.collect();
    for damage in service.damaged() {
        let (what, reason) = (damage.stored.to_string(), damage.sentence());
        if !files.iter().any(|file| file.what == what) {
            files.push(wire::QuarantinedFile { what, reason });
        }
    }
    Ok(axum::Json(wire::Quarantine { records, files }))
}

/// Get metrics in the Prometheus text format
#[utoipa::path(get, path = "/metrics", operation_id = "getMetrics", tag = "daemon", responses(
    (status = 200, description = "Metrics in the Prometheus text format.", body = String, content_type = "text/plain"),
    (status = "default", response = ApiError),
))]
pub(crate) async fn metrics(ForRequest(service): ForRequest, State(api): State<Api>) -> Result<Response, ApiError> {
    let figures = service.figures().await?;
    gauges(&figures);
    let engine = service.capabilities();
    engine_gauge(&engine.build, engine.memory.copied_because());
    let text = api.metrics.as_ref().map(PrometheusHandle::render).unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

/// The engine's build, and whether the memory of resumed sandboxes is mapped from their saved
/// states.
fn engine_gauge(build: &str, copied_because: Option<&str>) {
    let maps_memory = if copied_because.is_none() { "true" } else { "false" };
    let reason = copied_because.unwrap_or_default().to_owned();
    metrics::gauge!("dorm_engine", "build" => build.to_owned(), "maps_memory" => maps_memory, "reason" => reason)
        .set(1.0);
}

#[allow(clippy::cast_precision_loss, reason = "gauges are floating point numbers")]
fn gauges(figures: &Figures) {
    for (state, count) in &figures.sandboxes {
        metrics::gauge!("dorm_sandboxes", "state" => state.as_str()).set(*count as f64);
    }
    for kind in RowKind::ALL {
        let count = figures.quarantined.get(&kind).copied().unwrap_or_default();
        metrics::gauge!("dorm_quarantined", "kind" => kind.as_str()).set(count as f64);
    }
    for (kind, count) in &figures.damaged {
        metrics::gauge!("dorm_damaged", "kind" => *kind).set(*count as f64);
    }
    metrics::gauge!("dorm_disk_paused").set(figures.paused_for_disk as f64);
    metrics::gauge!("dorm_unreachable").set(figures.unreachable as f64);
    metrics::gauge!("dorm_parked").set(figures.parked as f64);
    metrics::gauge!("dorm_unrecorded_runs").set(figures.unrecorded_runs as f64);
    metrics::gauge!("dorm_foreign_runs").set(figures.foreign_runs as f64);
    let bytes = [
        ("dorm_parked_bytes", Some(figures.parked_bytes)),
        ("dorm_memory_committed_bytes", Some(figures.committed_bytes)),
        ("dorm_memory_available_bytes", figures.available_bytes),
        ("dorm_memory_budget_bytes", figures.budgets.memory_bytes),
        ("dorm_disk_free_bytes", Some(figures.disk_free_bytes)),
        ("dorm_disk_saved_states_bytes", Some(figures.saved_states_bytes)),
        ("dorm_disk_deleted_images_bytes", Some(figures.deleted_image_bytes)),
        ("dorm_disk_promised_bytes", Some(figures.disks_bytes)),
        ("dorm_disk_promise_budget_bytes", figures.budgets.disks_bytes),
        ("dorm_disk_floor_bytes", Some(figures.budgets.disk_floor_bytes)),
        ("dorm_disk_budget_bytes", figures.budgets.disk_bytes),
    ];
    for (name, value) in bytes {
        if let Some(value) = value {
            metrics::gauge!(name).set(value as f64);
        }
    }
}
