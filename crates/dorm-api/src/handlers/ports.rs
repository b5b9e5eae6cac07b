//! Addresses of ports inside a sandbox.

use dorm_api_types as wire;
use dorm_http::OPEN_LINK;

use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Port};

/// Get the address of a port
///
/// Returns the host name label, the access mode and the token of the port. Does not check whether a
/// program listens on it.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ports/{port}", operation_id = "getPort", tag = "ports",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("port" = u16, Path, description = "Port number inside the sandbox."),
    ),
    responses(
        (status = 200, description = "How to reach the port.", body = wire::Port),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    Port(id, port): Port,
) -> Result<axum::Json<wire::Port>, ApiError> {
    let terms = service.port_terms(&id, port).await?;
    let (access, host) = (terms.access.convert(), terms.host);
    let token = service.port_token(&id);
    Ok(axum::Json(wire::Port { sandbox: id.to_string(), port, label: format!("{port}-{id}"), access, host, token }))
}

/// Create a browser link to a port
///
/// A browser cannot send an API key. The link can be opened once within a minute, and sets a cookie
/// that gives access to this port for 12 hours.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/ports/{port}/link", operation_id = "createPortLink", tag = "ports",
    request_body = wire::LinkRequest,
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("port" = u16, Path, description = "Port number inside the sandbox."),
    ),
    responses(
        (status = 200, description = "The link.", body = wire::PortLink),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn link(
    ForRequest(service): ForRequest,
    Port(id, port): Port,
    Json(wire::LinkRequest {}): Json<wire::LinkRequest>,
) -> Result<axum::Json<wire::PortLink>, ApiError> {
    // Fails if there is no such sandbox.
    service.port_terms(&id, port).await?;
    let (ticket, until) = service.port_link(&id, port);
    let path = format!("{OPEN_LINK}?ticket={ticket}");
    Ok(axum::Json(wire::PortLink { label: format!("{port}-{id}"), path, expires_at: convert::time(until) }))
}
