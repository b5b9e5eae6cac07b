//! Samples the usage of running sandboxes at regular intervals, and keeps an hour of it.
//!
//! The host is asked, never a guest, so sampling wakes nobody. A sandbox that does not run uses
//! nothing and has no samples of that time. The history of a terminated sandbox is dropped with the
//! next samples, and a new daemon starts with none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::{SandboxId, State, Timestamp};
use dorm_ports::Clock as _;
use futures_util::{StreamExt as _, stream};
use tokio::time::MissedTickBehavior;

use crate::error::ServiceError;
use crate::shared::{Service, Shared};
use crate::usage_history::UsageSample;

/// How long samples are kept.
const KEPT: Duration = Duration::from_secs(3600);
/// How many sandboxes are measured at a time.
const PARALLEL: usize = 4;
/// How long one measurement may take. A sandbox that is busy with something else is left out.
const PATIENCE: Duration = Duration::from_secs(2);

/// Samples all running sandboxes until the service stops.
pub(crate) async fn keep_sampling(shared: Arc<Shared>) {
    let Some(every) = shared.settings.usage_every.filter(|every| !every.is_zero()) else { return };
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        sample(&shared, every).await;
    }
}

async fn sample(shared: &Arc<Shared>, every: Duration) {
    let look = shared.living.look(&*shared.store, |records| {
        let running = records.values().filter(|record| matches!(record.sandbox.state, State::Running { .. }));
        let running: Vec<_> = running.map(|record| (record.sandbox.run_id(), record.sandbox.spec.resources)).collect();
        (running, records.keys().cloned().collect::<BTreeSet<_>>())
    });
    // If the store fails, everything that needs it says so.
    let Ok((running, living)) = look.await else { return };
    let most = usize::try_from(KEPT.as_millis() / every.as_millis().max(1)).unwrap_or(usize::MAX);
    let measured = stream::iter(running).map(|(run, resources)| async move {
        let usage = tokio::time::timeout(PATIENCE, shared.engine.usage(&run)).await;
        (run, resources, shared.clock.steady(), usage)
    });
    let mut measured = measured.buffer_unordered(PARALLEL);
    while let Some((run, resources, steady, usage)) = measured.next().await {
        // A run that has just ended, or cannot be measured now, has a gap in its history.
        if let Ok(Ok(usage)) = usage {
            let sample = UsageSample { taken: shared.clock.wall(), cpu_millis: None, resources, usage };
            shared.usage_history.add(&run, steady, most, sample);
        }
    }
    let now = shared.clock.wall();
    let oldest = now.as_millis().saturating_sub(u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX));
    shared.usage_history.prune(|sandbox| living.contains(sandbox), Timestamp::from_millis(oldest));
}

impl Service {
    /// Returns the samples of a sandbox between two times, in the order they were taken. Nothing is
    /// measured now, and a suspended sandbox stays suspended.
    ///
    /// # Errors
    ///
    /// `NoSandbox`.
    pub async fn usage_history(
        &self,
        id: &SandboxId,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> Result<Vec<UsageSample>, ServiceError> {
        self.record(id).await?;
        let mut samples = self.shared.usage_history.of(id);
        samples.retain(|sample| {
            since.is_none_or(|since| sample.taken >= since) && until.is_none_or(|until| sample.taken <= until)
        });
        Ok(samples)
    }

    /// Returns the interval between two samples; `None` if none are taken.
    pub fn usage_every(&self) -> Option<Duration> {
        self.shared.settings.usage_every
    }
}
