//! What running sandboxes have used: samples at regular intervals, kept in memory for an hour.
//!
//! The host is asked, never a guest, so sampling wakes nobody. A sandbox that does not run uses
//! nothing and has no samples of that time. The history of a terminated sandbox is dropped with the
//! next samples, and a new daemon starts with none.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dorm_engine::Usage;
use dorm_lifecycle::{Resources, RunId, SandboxId, State, Timestamp};
use dorm_ports::Clock as _;
use futures_util::{StreamExt as _, stream};
use tokio::time::MissedTickBehavior;

use crate::error::ServiceError;
use crate::shared::{Service, Shared};

/// How long samples are kept.
const KEPT: Duration = Duration::from_secs(3600);
/// How many sandboxes are measured at a time.
const PARALLEL: usize = 4;
/// How long one measurement may take. A sandbox that is busy with something else is left out.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a sandbox used at one time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct UsageSample {
    /// When it was measured, by the wall clock.
    pub taken: Timestamp,
    /// The CPU time used since the previous sample of the same run, in thousandths of a CPU; `None`
    /// for the first sample of a run.
    pub cpu_millis: Option<u32>,
    /// The limits at that time.
    pub resources: Resources,
    /// What it used.
    pub usage: Usage,
}

/// The history of one sandbox.
#[derive(Default)]
struct History {
    samples: VecDeque<UsageSample>,
    /// The run of the last sample, its CPU time, and when it was measured by the steady clock.
    last: Option<(RunId, u64, Duration)>,
}

/// The histories of all sandboxes.
#[derive(Default)]
pub(crate) struct UsageHistory(Mutex<BTreeMap<SandboxId, History>>);

impl UsageHistory {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SandboxId, History>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, run: &RunId, steady: Duration, most: usize, sample: UsageSample) {
        let mut all = self.lock();
        let history = all.entry(run.sandbox.clone()).or_default();
        let cpu_micros = sample.usage.cpu_micros;
        let before = history.last.replace((run.clone(), cpu_micros, steady));
        let before = before.filter(|(last, used, _)| last == run && *used <= cpu_micros);
        let cpu_millis = before.and_then(|(_, used, at)| {
            let elapsed = u64::try_from(steady.checked_sub(at)?.as_micros()).ok()?;
            u32::try_from((cpu_micros - used).saturating_mul(1000).checked_div(elapsed)?).ok()
        });
        while history.samples.len() >= most.max(1) {
            history.samples.pop_front();
        }
        history.samples.push_back(UsageSample { cpu_millis, ..sample });
    }

    /// Drops what is too old, and all of sandboxes that are not among `living`.
    fn prune(&self, living: impl Fn(&SandboxId) -> bool, oldest: Timestamp) {
        self.lock().retain(|sandbox, history| {
            // The wall clock may have been set back, so samples need not be in its order.
            history.samples.retain(|sample| sample.taken >= oldest);
            living(sandbox) && !history.samples.is_empty()
        });
    }

    fn of(&self, sandbox: &SandboxId) -> Vec<UsageSample> {
        self.lock().get(sandbox).map(|history| history.samples.iter().copied().collect()).unwrap_or_default()
    }
}

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
        (running, records.keys().cloned().collect::<std::collections::BTreeSet<_>>())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn run(generation: u64) -> RunId {
        RunId { sandbox: SandboxId::from_random([1; 20]), generation }
    }

    fn sample(taken: u64, cpu_micros: u64) -> UsageSample {
        let usage = Usage { cpu_micros, ..Usage::default() };
        let taken = Timestamp::from_millis(taken);
        UsageSample { taken, cpu_millis: None, resources: Resources::default(), usage }
    }

    fn cpu(history: &UsageHistory) -> Vec<Option<u32>> {
        history.of(&run(1).sandbox).iter().map(|sample| sample.cpu_millis).collect()
    }

    #[test]
    fn cpu_use_is_the_difference_to_the_sample_before_of_the_same_run() {
        let history = UsageHistory::default();
        let at = Duration::from_secs;
        history.add(&run(1), at(10), 10, sample(1, 1_000_000));
        history.add(&run(1), at(15), 10, sample(2, 3_500_000));
        history.add(&run(2), at(20), 10, sample(3, 100));
        history.add(&run(2), at(20), 10, sample(4, 200));
        history.add(&run(2), at(25), 10, sample(5, 150));
        history.add(&run(2), at(30), 10, sample(6, 150));
        assert_eq!(cpu(&history), [None, Some(500), None, None, None, Some(0)]);
    }

    #[test]
    fn an_hour_is_kept_whatever_the_clock_does() {
        let history = UsageHistory::default();
        for taken in [500, 9, 100, 101] {
            history.add(&run(1), Duration::from_millis(taken), 3, sample(taken, 0));
        }
        assert_eq!(history.of(&run(1).sandbox).len(), 3, "no more than fit an hour");
        history.prune(|_| true, Timestamp::from_millis(100));
        let taken: Vec<_> = history.of(&run(1).sandbox).iter().map(|sample| sample.taken.as_millis()).collect();
        assert_eq!(taken, [100, 101]);
        history.prune(|_| false, Timestamp::from_millis(0));
        assert_eq!(history.of(&run(1).sandbox), []);
    }
}
