//! Samples of the usage of sandboxes, kept in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dorm_engine::Usage;
use dorm_lifecycle::{Resources, RunId, SandboxId, Timestamp};

/// The usage of a sandbox at one time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct UsageSample {
    /// When it was measured, by the wall clock.
    pub taken: Timestamp,
    /// The CPU time used since the previous sample of the same run, in thousandths of a CPU; `None`
    /// for the first sample of a run.
    pub cpu_millis: Option<u32>,
    /// The limits at that time.
    pub resources: Resources,
    /// Its usage.
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

    /// Adds a sample of a run, of which `most` are kept.
    pub(crate) fn add(&self, run: &RunId, steady: Duration, most: usize, sample: UsageSample) {
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

    /// Drops samples that are too old, and all of sandboxes that are not among `living`.
    pub(crate) fn prune(&self, living: impl Fn(&SandboxId) -> bool, oldest: Timestamp) {
        self.lock().retain(|sandbox, history| {
            // The wall clock may have been set back, so samples need not be in its order.
            history.samples.retain(|sample| sample.taken >= oldest);
            living(sandbox) && !history.samples.is_empty()
        });
    }

    /// Returns the samples of a sandbox in the order they were added.
    pub(crate) fn of(&self, sandbox: &SandboxId) -> Vec<UsageSample> {
        self.lock().get(sandbox).map(|history| history.samples.iter().copied().collect()).unwrap_or_default()
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
