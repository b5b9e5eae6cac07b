//! Sending events to webhooks: in order, signed as the Standard Webhooks describe, again and again until each is taken.
//!
//! One task for each webhook. What was taken is on record, so that a restart goes on where it was; an event may come
//! twice when the daemon dies between the two, never not at all.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dorm_lifecycle::WebhookId;
use dorm_service::{Service, ServiceError};
use dorm_store::{EventFilter, EventRecord, WebhookRecord};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::wire;

/// How many events are read at once.
const PAGE: usize = 100;
/// How long a receiver may take to answer.
const ANSWER: Duration = Duration::from_secs(15);
/// The waits between attempts: from the first, twice as long each time, up to the last.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(300));

/// Sends events until `stop`.
pub(crate) async fn run(service: Service, stop: CancellationToken) {
    let client = match reqwest::Client::builder().timeout(ANSWER).redirect(reqwest::redirect::Policy::none()).build() {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "no webhook is sent anything");
            return;
        }
    };
    let mut news = service.webhook_news();
    let tasks = TaskTracker::new();
    let mut running: HashMap<WebhookId, CancellationToken> = HashMap::new();
    loop {
        news.mark_unchanged();
        match service.webhooks().await {
            Ok(webhooks) => {
                running.retain(|id, ended| {
                    let stays = webhooks.iter().any(|webhook| webhook.id == *id);
                    if !stays {
                        ended.cancel();
                    }
                    stays
                });
                for webhook in webhooks {
                    running.entry(webhook.id.clone()).or_insert_with(|| {
                        let ended = stop.child_token();
                        tasks.spawn(one(service.clone(), client.clone(), webhook.id, ended.clone()));
                        ended
                    });
                }
            }
            Err(error) => tracing::error!(error = %error.message(), "webhooks cannot be read"),
        }
        tokio::select! {
            () = stop.cancelled() => break,
            changed = news.changed() => if changed.is_err() { break },
        }
    }
    tasks.close();
    tasks.wait().await;
}

/// Sends one webhook what comes, until it is removed.
async fn one(service: Service, client: reqwest::Client, id: WebhookId, ended: CancellationToken) {
    tokio::select! {
        () = ended.cancelled() => {}
        result = deliver(&service, &client, &id) => {
            if let Err(error) = result {
                tracing::error!(webhook = %id, error = %error.message(), "a webhook is sent nothing until the next start");
            }
        }
    }
}

async fn deliver(service: &Service, client: &reqwest::Client, id: &WebhookId) -> Result<(), ServiceError> {
    let (mut news, mut changes) = (service.news(), service.webhook_news());
    let (shortest, longest) = WAITS;
    let mut wait = shortest;
    loop {
        news.mark_unchanged();
        changes.mark_unchanged();
        let webhook = service.webhook(id).await?;
        let from = webhook.delivered;
        let filter =
            EventFilter { project: Some(webhook.project.clone()), after: from, limit: PAGE, ..EventFilter::default() };
        let mut events = service.events(&filter).await?;
        let Some(last) = events.last().map(|event| event.number) else {
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return Ok(()) },
                changed = changes.changed() => if changed.is_err() { return Ok(()) },
            }
            continue;
        };
        events.retain(|event| webhook.kinds.is_empty() || webhook.kinds.contains(&event.event.kind));
        let Some(event) = events.into_iter().next() else {
            service.webhook_delivered(id, from, last).await?;
            continue;
        };
        let number = event.number;
        match send(client, &webhook, event).await {
            Ok(()) => {
                metrics::counter!("dorm_webhooks_total", "result" => "taken").increment(1);
                service.webhook_delivered(id, from, number).await?;
                wait = shortest;
            }
            Err(reason) => {
                metrics::counter!("dorm_webhooks_total", "result" => "refused").increment(1);
                tracing::warn!(webhook = %id, event = number, reason, "a webhook was not taken; it is sent again");
                tokio::select! {
                    () = tokio::time::sleep(wait) => wait = (wait * 2).min(longest),
                    // It was told to begin somewhere else, which may be sooner.
                    changed = changes.changed() => if changed.is_err() { return Ok(()) },
                }
            }
        }
    }
}

async fn send(client: &reqwest::Client, webhook: &WebhookRecord, event: EventRecord) -> Result<(), String> {
    let id = format!("{}_{}", webhook.id, event.number);
    let body = serde_json::to_vec(&wire::Event::from(event)).map_err(|error| error.to_string())?;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let time = since.as_secs().to_string();
    let signature = sign(&webhook.secret, &id, &time, &body);
    let request = client
        .post(&webhook.url)
        .header("content-type", "application/json")
        .header("webhook-id", id)
        .header("webhook-timestamp", time)
        .header("webhook-signature", signature)
        .body(body);
    let answer = request.send().await.map_err(|error| error.without_url().to_string())?;
    match answer.status().is_success() {
        true => Ok(()),
        false => Err(format!("the receiver answered {}", answer.status())),
    }
}

/// `v1,` and the base64 HMAC-SHA256 of id, time and body, as the Standard Webhooks have it.
fn sign(secret: &[u8; 32], id: &str, time: &str, body: &[u8]) -> String {
    // A key may have any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    for part in [id.as_bytes(), b".", time.as_bytes(), b".", body] {
        mac.update(part);
    }
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with Python: `base64(hmac(b"\x07" * 32, b"msg_1.1700000000.{}", "sha256"))`.
    #[test]
    fn a_signature_is_that_of_the_standard_webhooks() {
        let signature = sign(&[7; 32], "msg_1", "1700000000", b"{}");
        assert_eq!(signature, "v1,nuLLyheCKcS2N8JNOFt5stk98R+umYWr26/ZTfdtGM8=");
    }
}
