//! Webhooks.

use axum::http::{StatusCode, Uri};
use dorm_api_types as wire;
use dorm_lifecycle::EventKind;
use dorm_store::WebhookRecord;

use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Query, Webhook};
use crate::page::PageQuery;
use crate::webhooks;

/// Create a webhook
///
/// Events of the selected kinds are sent to the URL in order, signed, and each is retried until it
/// is accepted. The response contains the signing secret, which is not shown again.
#[utoipa::path(post, path = "/v1/webhooks", operation_id = "createWebhook", tag = "webhooks",
    request_body = wire::CreateWebhook,
    responses(
        (status = 201, description = "The webhook with its signing secret.", body = wire::Webhook),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn create(
    ForRequest(service): ForRequest,
    Json(asked): Json<wire::CreateWebhook>,
) -> Result<(StatusCode, axum::Json<wire::Webhook>), ApiError> {
    let url: Uri =
        asked.url.parse().map_err(|error| ApiError::invalid(format!("'{}' is not a URL: {error}", asked.url), ""))?;
    if url.scheme_str() != Some("http") || url.host().is_none_or(str::is_empty) {
        let message = format!("'{}' is not a URL that begins with http://", asked.url);
        return Err(ApiError::invalid(message, "use a relay for a receiver that requires TLS"));
    }
    webhooks::check(&asked.url, service.webhook_destinations()).map_err(|error| {
        ApiError::invalid(format!("a webhook cannot be sent to '{}': {error}", asked.url), webhooks::ALLOW)
    })?;
    let kinds: Result<Vec<_>, _> = asked.kinds.iter().map(|word| kind(word)).collect();
    let webhook = service.add_webhook(asked.url, kinds?, asked.after).await?;
    let secret = Some(convert::webhook_secret(&webhook));
    Ok((StatusCode::CREATED, axum::Json(wire::Webhook { secret, ..webhook.convert() })))
}

fn kind(word: &str) -> Result<EventKind, ApiError> {
    EventKind::ALL.iter().copied().find(|kind| kind.as_str() == word).ok_or_else(|| {
        let words: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        ApiError::invalid(format!("'{word}' is not a kind of event; kinds are {}", words.join(", ")), "")
    })
}

/// List webhooks
///
/// Ordered by id.
#[utoipa::path(get, path = "/v1/webhooks", operation_id = "listWebhooks", tag = "webhooks", params(PageQuery),
    responses(
        (status = 200, description = "One page of webhooks.", body = wire::WebhookList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<wire::WebhookList>, ApiError> {
    let (webhooks, next) = query.of(service.webhooks().await?, |webhook| webhook.id.clone())?;
    Ok(axum::Json(wire::WebhookList { webhooks: webhooks.into_iter().map(Convert::convert).collect(), next }))
}

/// Resend events to a webhook
///
/// Sends all events after a given one again.
#[utoipa::path(post, path = "/v1/webhooks/{id}/replay", operation_id = "replayWebhook", tag = "webhooks",
    request_body = wire::ReplayWebhook,
    params(("id" = String, Path, description = "ID of the webhook.")),
    responses(
        (status = 200, description = "The webhook.", body = wire::Webhook),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn replay(
    ForRequest(service): ForRequest,
    Webhook(id): Webhook,
    Json(asked): Json<wire::ReplayWebhook>,
) -> Result<axum::Json<wire::Webhook>, ApiError> {
    let webhook: WebhookRecord = service.replay_webhook(&id, asked.after).await?;
    Ok(axum::Json(webhook.convert()))
}

/// Delete a webhook
///
/// Deleting a webhook that does not exist succeeds.
#[utoipa::path(delete, path = "/v1/webhooks/{id}", operation_id = "deleteWebhook", tag = "webhooks",
    params(("id" = String, Path, description = "ID of the webhook.")),
    responses(
        (status = 204, description = "The webhook is deleted."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn delete(ForRequest(service): ForRequest, Webhook(id): Webhook) -> Result<StatusCode, ApiError> {
    service.remove_webhook(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
