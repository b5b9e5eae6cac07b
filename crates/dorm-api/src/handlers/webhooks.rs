//! Where events are sent to.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use dorm_lifecycle::EventKind;
use dorm_store::WebhookRecord;

use crate::convert;
use crate::error::ApiError;
use crate::extract::{Json, Webhook};
use crate::routes::Api;
use crate::{webhooks, wire};

/// Makes a webhook: every event of these kinds is sent to it in order, signed, again and again until it is taken. The
/// answer holds the secret, which is never shown again.
#[utoipa::path(post, path = "/v1/webhooks", operation_id = "createWebhook", tag = "webhooks",
    request_body = wire::CreateWebhook,
    responses(
        (status = 201, body = wire::Webhook),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn create(
    State(api): State<Api>,
    Json(asked): Json<wire::CreateWebhook>,
) -> Result<(StatusCode, axum::Json<wire::Webhook>), ApiError> {
    let url: Uri = asked
        .url
        .parse()
        .map_err(|error| ApiError::invalid(format!("'{}' is not an address: {error}", asked.url), ""))?;
    if url.scheme_str() != Some("http") || url.host().is_none_or(str::is_empty) {
        let message = format!("'{}' is not an address that begins with http://", asked.url);
        return Err(ApiError::invalid(message, "put a relay before a receiver that only speaks TLS"));
    }
    webhooks::check(&asked.url, api.service.webhook_destinations()).map_err(|error| {
        ApiError::invalid(format!("no webhook is sent to '{}': {error}", asked.url), webhooks::ALLOW)
    })?;
    let kinds: Result<Vec<_>, _> = asked.kinds.iter().map(|word| kind(word)).collect();
    let webhook = api.service.add_webhook(asked.url, kinds?, asked.after).await?;
    let secret = Some(convert::webhook_secret(&webhook));
    Ok((StatusCode::CREATED, axum::Json(wire::Webhook { secret, ..webhook.into() })))
}

fn kind(word: &str) -> Result<EventKind, ApiError> {
    EventKind::ALL.iter().copied().find(|kind| kind.as_str() == word).ok_or_else(|| {
        let words: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        ApiError::invalid(format!("'{word}' is not a kind of event: kinds are {}", words.join(", ")), "")
    })
}

/// Every webhook.
#[utoipa::path(get, path = "/v1/webhooks", operation_id = "listWebhooks", tag = "webhooks", responses(
    (status = 200, body = wire::WebhookList),
    (status = "default", body = wire::ErrorAnswer, description = "an error"),
))]
pub(crate) async fn list(State(api): State<Api>) -> Result<axum::Json<wire::WebhookList>, ApiError> {
    let webhooks = api.service.webhooks().await?.into_iter().map(wire::Webhook::from).collect();
    Ok(axum::Json(wire::WebhookList { webhooks }))
}

/// Sends a webhook everything after an event again.
#[utoipa::path(post, path = "/v1/webhooks/{id}/replay", operation_id = "replayWebhook", tag = "webhooks",
    request_body = wire::ReplayWebhook,
    params(("id" = String, Path, description = "the webhook")),
    responses(
        (status = 200, body = wire::Webhook),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn replay(
    State(api): State<Api>,
    Webhook(id): Webhook,
    Json(asked): Json<wire::ReplayWebhook>,
) -> Result<axum::Json<wire::Webhook>, ApiError> {
    let webhook: WebhookRecord = api.service.replay_webhook(&id, asked.after).await?;
    Ok(axum::Json(webhook.into()))
}

/// Removes a webhook. One that is not there is a success.
#[utoipa::path(delete, path = "/v1/webhooks/{id}", operation_id = "deleteWebhook", tag = "webhooks",
    params(("id" = String, Path, description = "the webhook")),
    responses(
        (status = 204),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn delete(State(api): State<Api>, Webhook(id): Webhook) -> Result<StatusCode, ApiError> {
    api.service.remove_webhook(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
