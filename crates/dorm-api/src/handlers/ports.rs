//! How a port inside a sandbox is reached through the gateway.

use axum::extract::State;

use crate::convert;
use crate::error::ApiError;
use crate::extract::{Json, Port};
use crate::gateway::OPEN_LINK;
use crate::routes::Api;
use crate::wire;

/// How a port is reached: the first label of its host name, who may reach it, and the token that opens it. Whether a
/// program listens there is not looked at.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ports/{port}", operation_id = "getPort", tag = "ports",
    params(
        ("id" = String, Path, description = "the sandbox's id or name"),
        ("port" = u16, Path, description = "the port inside"),
    ),
    responses(
        (status = 200, body = wire::Port),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn describe(State(api): State<Api>, Port(id, port): Port) -> Result<axum::Json<wire::Port>, ApiError> {
    let access = api.service.port_access(&id).await?.into();
    let token = api.service.port_token(&id);
    Ok(axum::Json(wire::Port { sandbox: id.to_string(), port, label: format!("{port}-{id}"), access, token }))
}

/// A link for a browser, which can show no key: opened once, within a minute, it sets a cookie that opens this port for 12
/// hours.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/ports/{port}/link", operation_id = "createPortLink", tag = "ports",
    request_body = wire::LinkRequest,
    params(
        ("id" = String, Path, description = "the sandbox's id or name"),
        ("port" = u16, Path, description = "the port inside"),
    ),
    responses(
        (status = 200, body = wire::PortLink),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn link(
    State(api): State<Api>,
    Port(id, port): Port,
    Json(wire::LinkRequest {}): Json<wire::LinkRequest>,
) -> Result<axum::Json<wire::PortLink>, ApiError> {
    // It has to be there.
    api.service.port_access(&id).await?;
    let (ticket, until) = api.service.port_link(&id, port);
    let path = format!("{OPEN_LINK}?ticket={ticket}");
    Ok(axum::Json(wire::PortLink { label: format!("{port}-{id}"), path, expires_at: convert::time(until) }))
}
