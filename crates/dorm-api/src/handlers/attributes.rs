//! Extended attributes of files inside a sandbox.

use dorm_api_types as wire;
use dorm_service::Use;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Query, Sandbox, guest_path, guest_path_of, guest_string};

/// The file.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AttributesQuery {
    /// Absolute path in the sandbox.
    path: String,
}

/// Get the extended attributes of a file
///
/// Returns those whose names begin with `user.`. Follows symbolic links.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/attributes", operation_id = "getFileAttributes", tag = "files",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one."), AttributesQuery),
    responses(
        (status = 200, description = "The attributes.", body = wire::FileAttributes),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn attributes(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Query(query): Query<AttributesQuery>,
) -> Result<axum::Json<wire::FileAttributes>, ApiError> {
    let path = guest_path(&query.path)?;
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    Ok(axum::Json(convert::attributes(agent.attributes(&path).await?)))
}

/// Change the extended attributes of a file
///
/// Sets and removes attributes one after another, and returns all that the file has then. If one
/// cannot be changed, those before it are. Follows symbolic links.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files/attributes", operation_id = "setFileAttributes", tag = "files",
    request_body = wire::SetFileAttributes,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The attributes after the change.", body = wire::FileAttributes),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn set_attributes(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::SetFileAttributes>,
) -> Result<axum::Json<wire::FileAttributes>, ApiError> {
    let path = guest_path_of("path", &asked.path)?;
    let set = asked.set.iter().map(convert::attribute).collect::<Result<_, _>>()?;
    let remove = asked.remove.iter().map(|name| guest_string("remove", name)).collect::<Result<_, _>>()?;
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    Ok(axum::Json(convert::attributes(agent.set_attributes(&path, set, remove).await?)))
}
