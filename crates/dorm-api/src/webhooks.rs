//! Sending events to webhooks: in order, signed as the Standard Webhooks specify, and retried until
//! each is accepted.
//!
//! There is one task for each webhook. The last accepted event is recorded, so that a restart
//! continues after it. If the daemon dies before it has recorded an accepted event, that event is
//! sent twice; no event is lost. Events are read in pages. If the store fails, reading is retried
//! with increasing intervals for as long as the webhook exists.

mod receiver;

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dorm_api_types as wire;
use dorm_lifecycle::WebhookId;
use dorm_ports::Destinations;
use dorm_service::{Backoff, Service, ServiceError};
use dorm_store::{EventFilter, EventRecord, WebhookRecord};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::convert::Of;

pub(crate) use receiver::check;

/// Number of events in a page.
const PAGE: usize = 100;
/// The setting that permits webhooks to addresses that are not public.
pub(crate) const ALLOW: &str =
    "allow its network with `dorm serve --allow-network`, such as --allow-network 127.0.0.0/8";
/// The intervals between attempts: the first one, doubled after each attempt, and the largest one.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(300));

/// Sends events until `stop`. A daemon runs it once, however many doors it has.
pub async fn run(service: Service, stop: CancellationToken) {
    let client = match receiver::client(service.webhook_destinations().clone()) {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "no webhook is sent anything");
            return;
        }
    };
    let mut news = service.webhook_news();
    let tasks = TaskTracker::new();
    let mut running: HashMap<WebhookId, CancellationToken> = HashMap::new();
    let mut waits = Backoff::new(WAITS);
    loop {
        news.mark_unchanged();
        // Nothing wakes this task when the store works again.
        let mut again = None;
        let found = tokio::select! {
            () = stop.cancelled() => break,
            found = service.webhooks_of_all_projects() => found,
        };
        match found {
            Ok(webhooks) => {
                waits = Backoff::new(WAITS);
                running.retain(|id, ended| {
                    let stays = webhooks.iter().any(|webhook| webhook.id == *id);
                    if !stays {
                        ended.cancel();
                    }
                    stays
                });
                for webhook in webhooks {
                    // The project was removed meanwhile, and its webhooks with it.
                    let Ok(service) = service.for_project(&webhook.project) else { continue };
                    running.entry(webhook.id.clone()).or_insert_with(|| {
                        let ended = stop.child_token();
                        tasks.spawn(one(service, client.clone(), webhook.id, ended.clone()));
                        ended
                    });
                }
            }
            Err(error) => {
                tracing::warn!(error = %error.message(), "webhooks cannot be read; trying again");
                again = Some(waits.wait());
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            changed = news.changed() => if changed.is_err() { break },
            () = tokio::time::sleep(again.unwrap_or_default()), if again.is_some() => {}
        }
    }
    tasks.close();
    tasks.wait().await;
}

/// Sends events to one webhook until it is removed.
async fn one(service: Service, client: reqwest::Client, id: WebhookId, ended: CancellationToken) {
    tokio::select! {
        () = ended.cancelled() => {}
        never = deliver(&service, &client, &id) => if never.is_none() {
            tracing::debug!(webhook = %id, "a webhook that is gone is sent nothing more");
        }
    }
}

/// Sends events to a webhook. Returns when the webhook or the service is gone.
async fn deliver(service: &Service, client: &reqwest::Client, id: &WebhookId) -> Option<()> {
    let (mut news, mut changes) = (service.news(), service.webhook_news());
    let mut refusals = Backoff::new(WAITS);
    loop {
        news.mark_unchanged();
        changes.mark_unchanged();
        let (webhook, page) = lasting(id, "read the events to send", || page(service, id)).await?;
        if page.is_empty() {
            tokio::select! {
                changed = news.changed() => changed.ok()?,
                changed = changes.changed() => changed.ok()?,
            }
            continue;
        }
        send_page(service, client, &webhook, page, &mut changes, &mut refusals).await?;
    }
}

/// The webhook, and a page of the events after the last accepted one.
async fn page(service: &Service, id: &WebhookId) -> Result<(WebhookRecord, Vec<EventRecord>), ServiceError> {
    let webhook = service.webhook(id).await?;
    let (project, after) = (Some(webhook.project.clone()), webhook.delivered);
    let events = service.events(&EventFilter { project, after, limit: PAGE, ..EventFilter::default() }).await?;
    Ok((webhook, events))
}

/// Sends a page in order, up to the first event that is not accepted. Returns `None` when the
/// webhook is gone.
async fn send_page(
    service: &Service,
    client: &reqwest::Client,
    webhook: &WebhookRecord,
    page: Vec<EventRecord>,
    changes: &mut watch::Receiver<u64>,
    refusals: &mut Backoff,
) -> Option<()> {
    let id = &webhook.id;
    let record = |from, to| lasting(id, "record what was sent", move || service.webhook_delivered(id, from, to));
    let mut from = webhook.delivered;
    let last = page.last().map_or(from, |event| event.number);
    for event in page.into_iter().filter(|event| is_wanted(webhook, event)) {
        // The position of the webhook was changed, perhaps to an earlier event.
        if changes.has_changed().unwrap_or(true) {
            return Some(());
        }
        let number = event.number;
        if let Err(reason) = send(client, service.webhook_destinations(), webhook, event).await {
            metrics::counter!("dorm_webhooks_total", "result" => "refused").increment(1);
            tracing::warn!(webhook = %id, event = number, reason, "a webhook was not taken; it is sent again");
            tokio::select! {
                () = tokio::time::sleep(refusals.wait()) => {}
                changed = changes.changed() => changed.ok()?,
            }
            return Some(());
        }
        metrics::counter!("dorm_webhooks_total", "result" => "taken").increment(1);
        *refusals = Backoff::new(WAITS);
        record(from, number).await?;
        from = number;
    }
    // The rest of the page consists of event kinds that the webhook does not want.
    if from < last {
        record(from, last).await?;
    }
    Some(())
}

fn is_wanted(webhook: &WebhookRecord, event: &EventRecord) -> bool {
    webhook.kinds.is_empty() || webhook.kinds.contains(&event.event.kind)
}

/// Retries an operation until it succeeds. Returns `None` when the webhook is gone.
async fn lasting<T, F>(id: &WebhookId, what: &'static str, attempt: impl Fn() -> F) -> Option<T>
where
    F: Future<Output = Result<T, ServiceError>>,
{
    let mut waits = Backoff::new(WAITS);
    loop {
        match attempt().await {
            Ok(done) => return Some(done),
            Err(ServiceError::NoWebhook(_)) => return None,
            Err(error) => {
                #[cfg(feature = "planted-bugs")]
                if dorm_steps::planted::is(dorm_steps::planted::Planted::WebhookTaskDead) {
                    return None;
                }
                tracing::warn!(webhook = %id, error = %error.message(), "cannot {what}; trying again");
                tokio::time::sleep(waits.wait()).await;
            }
        }
    }
}

async fn send(
    client: &reqwest::Client,
    destinations: &Destinations,
    webhook: &WebhookRecord,
    event: EventRecord,
) -> Result<(), String> {
    check(&webhook.url, destinations).map_err(|error| format!("{error}: {ALLOW}"))?;
    let id = format!("{}_{}", webhook.id, event.number);
    let body = serde_json::to_vec(&wire::Event::of(event)).map_err(|error| error.to_string())?;
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
    let answer = request.send().await.map_err(|error| chain(&error.without_url()))?;
    match answer.status().is_success() {
        true => Ok(()),
        false => Err(format!("the receiver answered {}", answer.status())),
    }
}

/// An error with all its causes: the last one names the host that had no address.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// `v1,` and the base64 HMAC-SHA256 of id, time and body, as the Standard Webhooks specify.
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
