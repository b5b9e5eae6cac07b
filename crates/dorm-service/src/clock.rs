//! Where the time comes from, and noticing that the wall clock was set.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dorm_lifecycle::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The present wall-clock time.
    fn now(&self) -> Timestamp;

    /// Time that passes whatever the wall clock is set to, also while the host sleeps; from any beginning.
    fn steady(&self) -> Duration;
}

/// The host's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn steady(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
    }
}

/// A clock that follows tokio's time, so that a test can stop and move it.
#[derive(Clone, Debug)]
pub struct TokioClock {
    start: tokio::time::Instant,
    base: Timestamp,
    set_by: Arc<AtomicI64>,
}

impl TokioClock {
    /// A clock that shows `base` now.
    pub fn starting_at(base: Timestamp) -> Self {
        Self { start: tokio::time::Instant::now(), base, set_by: Arc::default() }
    }

    /// Sets the wall clock, of all clones, by so many milliseconds.
    pub fn set_by(&self, millis: i64) {
        self.set_by.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.base.after(self.start.elapsed()).shifted(self.set_by.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A difference that is no drift any more: somebody has set the clock.
const JUMP_MILLIS: i64 = 2000;

/// Compares the two times of a clock.
pub(crate) struct ClockWatch {
    clock: Arc<dyn Clock>,
    seen: Mutex<Seen>,
}

struct Seen {
    ahead_millis: i64,
    /// By how much the clock had been set in all after each jump; the first is before any.
    totals: Vec<i64>,
}

impl ClockWatch {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let seen = Mutex::new(Seen { ahead_millis: ahead(&*clock), totals: vec![0] });
        Self { clock, seen }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many jumps have been seen.
    pub(crate) fn jumps(&self) -> usize {
        self.seen().totals.len() - 1
    }

    /// By how many milliseconds the clock was set since that many jumps had been seen.
    pub(crate) fn since(&self, jumps: usize) -> i64 {
        let seen = self.seen();
        let last = seen.totals.last().copied().unwrap_or_default();
        last - seen.totals.get(jumps).copied().unwrap_or(last)
    }

    /// The jump since the last look in milliseconds, if there was one. Slow drift is followed and is none.
    pub(crate) fn look(&self) -> Option<i64> {
        let mut seen = self.seen();
        let now = ahead(&*self.clock);
        let millis = now.saturating_sub(seen.ahead_millis);
        seen.ahead_millis = now;
        if millis.abs() < JUMP_MILLIS {
            return None;
        }
        let total = seen.totals.last().copied().unwrap_or_default().saturating_add(millis);
        seen.totals.push(total);
        Some(millis)
    }
}

fn ahead(clock: &dyn Clock) -> i64 {
    let signed = |millis: u128| i64::try_from(millis).unwrap_or(i64::MAX);
    signed(u128::from(clock.now().as_millis())) - signed(clock.steady().as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_is_told_from_one_that_runs() {
        let clock = TokioClock::starting_at(Timestamp::from_millis(1_000_000));
        let watch = ClockWatch::new(Arc::new(clock.clone()));
        tokio::time::advance(Duration::from_secs(100_000)).await;
        assert_eq!(watch.look(), None);
        clock.set_by(1999);
        assert_eq!(watch.look(), None);
        clock.set_by(-3_600_000);
        assert_eq!(watch.look(), Some(-3_600_000));
        clock.set_by(5000);
        assert_eq!(watch.look(), Some(5000));
        assert_eq!((watch.look(), watch.jumps()), (None, 2));
        assert_eq!([0, 1, 2, 3].map(|jumps| watch.since(jumps)), [-3_595_000, 5000, 0, 0]);
    }
}
