//! Where the time comes from, and noticing that the wall clock was set.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    ahead_millis: Mutex<i64>,
    jumps: AtomicU64,
}

/// The wall clock was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Jump {
    /// Counts the jumps since the daemon began, from 1.
    pub(crate) number: u64,
    pub(crate) millis: i64,
}

impl ClockWatch {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let ahead_millis = Mutex::new(ahead(&*clock));
        Self { clock, ahead_millis, jumps: AtomicU64::new(0) }
    }

    /// The number of the last jump.
    pub(crate) fn jumps(&self) -> u64 {
        self.jumps.load(Ordering::SeqCst)
    }

    /// The jump since the last look, if there was one. Slow drift is followed and is none.
    pub(crate) fn look(&self) -> Option<Jump> {
        let mut before = self.ahead_millis.lock().unwrap_or_else(PoisonError::into_inner);
        let now = ahead(&*self.clock);
        let millis = now.saturating_sub(*before);
        *before = now;
        if millis.abs() < JUMP_MILLIS {
            return None;
        }
        Some(Jump { number: self.jumps.fetch_add(1, Ordering::SeqCst) + 1, millis })
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
        assert_eq!(watch.look(), Some(Jump { number: 1, millis: -3_600_000 }));
        assert_eq!((watch.look(), watch.jumps()), (None, 1));
    }
}
