//! The daemon itself.

use axum::extract::State;

use crate::routes::{self, Api};
use crate::wire;

/// What answers here: version, project, engine.
#[utoipa::path(get, path = "/v1/info", tag = "daemon", responses(
    (status = 200, body = wire::Info),
    (status = "default", body = wire::ErrorAnswer, description = "an error"),
))]
pub(crate) async fn info(State(api): State<Api>) -> axum::Json<wire::Info> {
    let engine = api.service.capabilities();
    axum::Json(wire::Info {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        project: api.service.project().to_string(),
        engine: wire::Engine {
            name: engine.name.to_owned(),
            build: engine.build.clone(),
            cpu: engine.cpu.clone(),
            holds_after_restore: engine.holds_after_restore,
        },
    })
}

/// Whether the daemon answers. Needs no key.
#[utoipa::path(get, path = "/v1/health", tag = "daemon", security(()), responses((status = 200, body = wire::Health)))]
pub(crate) async fn health() -> axum::Json<wire::Health> {
    axum::Json(wire::Health { status: "ok".to_owned() })
}

/// This description of the API.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "daemon", responses(
    (status = 200, body = Object, description = "an OpenAPI document"),
    (status = "default", body = wire::ErrorAnswer, description = "an error"),
))]
pub(crate) async fn openapi() -> axum::Json<utoipa::openapi::OpenApi> {
    axum::Json(routes::document())
}
