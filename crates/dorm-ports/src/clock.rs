//! Clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dorm_lifecycle::Timestamp;

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current wall-clock time.
    fn now(&self) -> Timestamp;

    /// Returns a time that advances steadily, independent of the wall clock and also while the host
    /// is suspended; its origin is arbitrary.
    fn steady(&self) -> Duration;

    /// Returns the host boot since which [`Clock::steady`] counts; `None` if unknown.
    fn boot(&self) -> Option<String>;
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

    fn boot(&self) -> Option<String> {
        #[allow(clippy::disallowed_methods, reason = "a file of the kernel: no disk is involved")]
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(boot.trim().to_owned())
    }
}

/// A clock that follows tokio's time, so that a test can stop and advance it.
#[derive(Clone, Debug)]
pub struct TokioClock {
    start: tokio::time::Instant,
    base: Timestamp,
    set_by: Arc<AtomicI64>,
    boots: Arc<AtomicU64>,
}

impl TokioClock {
    /// Returns a clock that shows `base` now.
    pub fn starting_at(base: Timestamp) -> Self {
        Self { start: tokio::time::Instant::now(), base, set_by: Arc::default(), boots: Arc::default() }
    }

    /// Adjusts the wall clock of all clones by `millis` milliseconds.
    pub fn set_by(&self, millis: i64) {
        self.set_by.fetch_add(millis, Ordering::SeqCst);
    }

    /// Returns the sum of all adjustments, in milliseconds.
    pub fn is_set_by(&self) -> i64 {
        self.set_by.load(Ordering::SeqCst)
    }

    /// Makes the clock behave like that of a rebooted host from now on.
    pub fn reboot(&self) {
        self.boots.fetch_add(1, Ordering::SeqCst);
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.base.after(self.start.elapsed()).shifted(self.set_by.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Duration {
        self.start.elapsed()
    }

    fn boot(&self) -> Option<String> {
        Some(self.boots.load(Ordering::SeqCst).to_string())
    }
}
