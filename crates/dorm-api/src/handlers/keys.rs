//! API keys.

use axum::http::StatusCode;
use dorm_api_types as wire;
use dorm_service::{ApiKeySpec, KeyForm};
use dorm_store::KeyScope;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ApiKey, ForRequest, Json, Query, seconds};
use crate::page::{Dated, PageQuery};

/// Create an API key
///
/// The response contains the key, which is not shown again: the daemon stores only its hash.
#[utoipa::path(post, path = "/v1/keys", operation_id = "createKey", tag = "keys", request_body = wire::CreateKey,
    responses(
        (status = 201, description = "The key and its record.", body = wire::CreatedKey),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn create(
    ForRequest(service): ForRequest,
    Json(asked): Json<wire::CreateKey>,
) -> Result<(StatusCode, axum::Json<wire::CreatedKey>), ApiError> {
    let scope = match (asked.scope, asked.sandbox) {
        (wire::KeyScope::Full, None) => KeyScope::Full,
        (wire::KeyScope::ReadOnly, None) => KeyScope::ReadOnly,
        (wire::KeyScope::Sandbox, Some(named)) => KeyScope::Sandbox(service.find(&named).await?),
        (wire::KeyScope::Sandbox, None) => {
            return Err(ApiError::invalid("scope is sandbox, but sandbox is missing", "name the sandbox in `sandbox`"));
        }
        (wire::KeyScope::Full | wire::KeyScope::ReadOnly, Some(_)) => {
            let message = "sandbox is given, but scope is not sandbox";
            return Err(ApiError::invalid(message, "leave out `sandbox`, or set the scope to `sandbox`"));
        }
    };
    let lifetime = asked.lifetime_secs.map(|lifetime| seconds("lifetime_secs", lifetime)).transpose()?;
    let form = match asked.form {
        wire::KeyForm::Dormouse => KeyForm::Dormouse,
        wire::KeyForm::E2b => KeyForm::E2b,
    };
    let (record, key) = service.create_key(ApiKeySpec { name: asked.name, scope, lifetime, form }).await?;
    Ok((StatusCode::CREATED, axum::Json(wire::CreatedKey { key, record: record.convert() })))
}

/// List API keys
///
/// All keys that were created and not revoked, including expired ones, oldest first. The key in the
/// daemon's data directory is not listed.
#[utoipa::path(get, path = "/v1/keys", operation_id = "listKeys", tag = "keys", params(PageQuery),
    responses(
        (status = 200, description = "One page of keys.", body = wire::KeyList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<wire::KeyList>, ApiError> {
    let (keys, next) = query.of(service.keys(), |key| Dated(key.created, key.id.clone()))?;
    Ok(axum::Json(wire::KeyList { keys: keys.into_iter().map(Convert::convert).collect(), next }))
}

/// Revoke an API key
///
/// The next request with this key is refused. Revoking a key that does not exist succeeds.
#[utoipa::path(delete, path = "/v1/keys/{id}", operation_id = "deleteKey", tag = "keys",
    params(("id" = String, Path, description = "ID of the key.")),
    responses(
        (status = 204, description = "The key is revoked."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn delete(ForRequest(service): ForRequest, ApiKey(id): ApiKey) -> Result<StatusCode, ApiError> {
    service.revoke_key(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
