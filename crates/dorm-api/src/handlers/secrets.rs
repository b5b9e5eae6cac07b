//! Secrets of a project.

use axum::http::StatusCode;
use dorm_api_types as wire;
use dorm_service::SecretView;

use crate::convert::{Of, time};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Query, SecretName};
use crate::page::PageQuery;

/// Set a secret
///
/// Header rules in the egress of sandboxes name it. Its value is added to requests of these
/// sandboxes outside of them, and is never returned. A new value is used by the next request.
#[utoipa::path(put, path = "/v1/secrets/{secret}", operation_id = "setSecret", tag = "secrets",
    request_body = wire::SetSecret,
    params(("secret" = String, Path, description = "Name: 1 to 64 letters, digits and underscores.")),
    responses(
        (status = 200, description = "The secret, without its value.", body = wire::ProjectSecret),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn set(
    ForRequest(service): ForRequest,
    SecretName(name): SecretName,
    Json(asked): Json<wire::SetSecret>,
) -> Result<axum::Json<wire::ProjectSecret>, ApiError> {
    let value = dorm_ports::SecretValue::new(asked.value.0);
    Ok(axum::Json(Of::of(service.set_secret(&name, &value).await?)))
}

/// List secrets
///
/// Ordered by name, without values.
#[utoipa::path(get, path = "/v1/secrets", operation_id = "listSecrets", tag = "secrets", params(PageQuery),
    responses(
        (status = 200, description = "One page of secrets.", body = wire::SecretList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<wire::SecretList>, ApiError> {
    let (secrets, next) = query.of(service.secrets().await?, |secret| secret.name.clone())?;
    Ok(axum::Json(wire::SecretList { secrets: secrets.into_iter().map(Of::of).collect(), next }))
}

/// Get a secret
///
/// Without its value.
#[utoipa::path(get, path = "/v1/secrets/{secret}", operation_id = "getSecret", tag = "secrets",
    params(("secret" = String, Path, description = "Name of the secret.")),
    responses(
        (status = 200, description = "The secret.", body = wire::ProjectSecret),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    SecretName(name): SecretName,
) -> Result<axum::Json<wire::ProjectSecret>, ApiError> {
    Ok(axum::Json(Of::of(service.secret(&name).await?)))
}

/// Remove a secret
///
/// Header rules that name it stay, and requests that they apply to are refused. Removing a secret
/// that does not exist succeeds.
#[utoipa::path(delete, path = "/v1/secrets/{secret}", operation_id = "deleteSecret", tag = "secrets",
    params(("secret" = String, Path, description = "Name of the secret.")),
    responses(
        (status = 204, description = "The secret is removed."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn delete(
    ForRequest(service): ForRequest,
    SecretName(name): SecretName,
) -> Result<StatusCode, ApiError> {
    service.remove_secret(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Of<SecretView> for wire::ProjectSecret {
    fn of(view: SecretView) -> Self {
        let SecretView { name, created, changed, used_by } = view;
        Self { name: name.to_string(), created_at: time(created), changed_at: time(changed), used_by }
    }
}
