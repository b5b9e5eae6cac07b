//! Removes old records: terminated sandboxes, operations that have ended, and events.
//!
//! One task removes one batch at a time and lets other writers in between. Age is measured by the
//! service clock, and nothing is removed while removal is on hold (decision 0023). The store keeps
//! what other records need.

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::Timestamp;
use dorm_store::{Prune, Pruned, StoreError};

use crate::error::chain;
use crate::shared::{Retention, Service, Shared};

/// The interval between two searches for old records.
const ROUND: Duration = Duration::from_secs(3600);
/// The delay of the first search after the start, when there is other work to do.
const FIRST: Duration = Duration::from_secs(60);
/// How many records of a kind are removed in one commit.
const BATCH: usize = 500;
/// The delay between two commits.
const PAUSE: Duration = Duration::from_millis(50);
/// Events that a webhook has not received are kept this many times as long as others.
const FOR_WEBHOOKS: u32 = 3;

/// The time for which a retry of a request with an idempotency key is recognised.
pub(crate) const REQUESTS_KEPT: Duration = Duration::from_secs(86_400);

/// Removes old records until the service stops.
pub(crate) async fn keep_pruning(service: Service) {
    let shared = &service.shared;
    if shared.stops_within(FIRST).await {
        return;
    }
    loop {
        let pruned = shared.prune().await;
        shared.prune_environments().await;
        match pruned {
            Ok(Pruned { sandboxes: 0, operations: 0, events: 0, requests: 0 }) => {}
            Ok(Pruned { sandboxes, operations, events, requests }) => {
                tracing::info!(sandboxes, operations, events, requests, "old records were removed");
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "cannot remove old records; retrying in an hour");
            }
        }
        if shared.stops_within(ROUND).await {
            return;
        }
    }
}

impl Shared {
    async fn prune(&self) -> Result<Pruned, StoreError> {
        let Retention { terminated, events } = self.settings.retention;
        let mut all = Pruned::default();
        let now = self.now();
        if now < self.clock.held_until() {
            return Ok(all);
        }
        let ended = Prune { ended_before: terminated.map(|kept| before(now, kept)), batch: BATCH, ..Prune::default() };
        self.prune_all(ended, &mut all).await?;
        let keyed = Prune { requests_before: Some(before(now, REQUESTS_KEPT)), batch: BATCH, ..Prune::default() };
        self.prune_all(keyed, &mut all).await?;
        let Some(kept) = events else { return Ok(all) };
        let taken = self.store.webhooks().await?.iter().map(|webhook| webhook.delivered).min().unwrap_or(u64::MAX);
        let old = Prune { events_before: Some(before(now, kept)), batch: BATCH, ..Prune::default() };
        self.prune_all(Prune { events_through: taken, ..old }, &mut all).await?;
        let waiting = all.events;
        let very_old = Some(before(now, kept.saturating_mul(FOR_WEBHOOKS)));
        self.prune_all(Prune { events_through: u64::MAX, events_before: very_old, ..old }, &mut all).await?;
        let untaken = all.events - waiting;
        if untaken > 0 {
            tracing::warn!(events = untaken, "removed events that a webhook had not received for a very long time");
        }
        Ok(all)
    }

    /// Removes the records of environments that no request finds any more, once their sandboxes
    /// are forgotten, too.
    async fn prune_environments(self: &Arc<Self>) {
        let Some(kept) = self.settings.retention.terminated else { return };
        match self.forget_spent(None, kept.max(REQUESTS_KEPT)).await {
            Ok(0) => {}
            Ok(environments) => tracing::info!(environments, "old records were removed"),
            Err(error) => tracing::warn!(error = %chain(&error), "cannot remove old environments; retrying in an hour"),
        }
    }

    async fn prune_all(&self, prune: Prune, all: &mut Pruned) -> Result<(), StoreError> {
        if prune.ended_before.is_none() && prune.events_before.is_none() && prune.requests_before.is_none() {
            return Ok(());
        }
        loop {
            let pruned = self.store.prune(&prune).await?;
            for (kind, count, sum) in [
                ("sandbox", pruned.sandboxes, &mut all.sandboxes),
                ("operation", pruned.operations, &mut all.operations),
                ("event", pruned.events, &mut all.events),
                ("request", pruned.requests, &mut all.requests),
            ] {
                *sum += count;
                metrics::counter!("dorm_pruned_total", "kind" => kind)
                    .increment(u64::try_from(count).unwrap_or(u64::MAX));
            }
            if pruned.most() < prune.batch || self.stops_within(PAUSE).await {
                return Ok(());
            }
        }
    }
}

fn before(now: Timestamp, kept: Duration) -> Timestamp {
    let kept = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    now.shifted(-kept)
}
