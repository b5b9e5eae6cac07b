//! Keys that open the API.

use axum::extract::State;
use axum::http::StatusCode;
use dorm_service::ApiKeySpec;
use dorm_store::KeyScope;

use crate::error::ApiError;
use crate::extract::{ApiKey, Json, seconds};
use crate::routes::Api;
use crate::wire;

/// Makes a key. The answer holds the key itself, which is never shown again: only its hash is kept.
#[utoipa::path(post, path = "/v1/keys", operation_id = "createKey", tag = "keys", request_body = wire::CreateKey,
    responses(
        (status = 201, body = wire::CreatedKey),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn create(
    State(api): State<Api>,
    Json(asked): Json<wire::CreateKey>,
) -> Result<(StatusCode, axum::Json<wire::CreatedKey>), ApiError> {
    let scope = match (asked.scope, asked.sandbox) {
        (wire::KeyScope::Full, None) => KeyScope::Full,
        (wire::KeyScope::ReadOnly, None) => KeyScope::ReadOnly,
        (wire::KeyScope::Sandbox, Some(named)) => KeyScope::Sandbox(api.service.find(&named).await?),
        (wire::KeyScope::Sandbox, None) => {
            return Err(ApiError::invalid("scope is sandbox, but there is no sandbox", "say which one with `sandbox`"));
        }
        (wire::KeyScope::Full | wire::KeyScope::ReadOnly, Some(_)) => {
            let message = "there is a sandbox, but scope is not sandbox";
            return Err(ApiError::invalid(message, "leave the sandbox out, or choose the scope `sandbox`"));
        }
    };
    let lifetime = asked.lifetime_secs.map(|lifetime| seconds("lifetime_secs", lifetime)).transpose()?;
    let (record, key) = api.service.create_key(ApiKeySpec { name: asked.name, scope, lifetime }).await?;
    Ok((StatusCode::CREATED, axum::Json(wire::CreatedKey { key, record: record.into() })))
}

/// Every key that was made and not revoked, expired ones included. The key in the daemon's data directory is not among
/// them.
#[utoipa::path(get, path = "/v1/keys", operation_id = "listKeys", tag = "keys", responses(
    (status = 200, body = wire::KeyList),
    (status = "default", body = wire::ErrorAnswer, description = "an error"),
))]
pub(crate) async fn list(State(api): State<Api>) -> Result<axum::Json<wire::KeyList>, ApiError> {
    let keys = api.service.keys().into_iter().map(wire::Key::from).collect();
    Ok(axum::Json(wire::KeyList { keys }))
}

/// Revokes a key: the next request with it is refused. One that is not there is a success.
#[utoipa::path(delete, path = "/v1/keys/{id}", operation_id = "deleteKey", tag = "keys",
    params(("id" = String, Path, description = "the key's id")),
    responses(
        (status = 204),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn delete(State(api): State<Api>, ApiKey(id): ApiKey) -> Result<StatusCode, ApiError> {
    api.service.revoke_key(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
