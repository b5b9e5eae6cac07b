//! Where the time comes from.

use std::time::{SystemTime, UNIX_EPOCH};

use dorm_lifecycle::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The present wall-clock time.
    fn now(&self) -> Timestamp;
}

/// The host's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock that follows tokio's time, so that a test can stop and move it.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: tokio::time::Instant,
    base: Timestamp,
}

impl TokioClock {
    /// A clock that shows `base` now.
    pub fn starting_at(base: Timestamp) -> Self {
        Self { start: tokio::time::Instant::now(), base }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.base.after(self.start.elapsed())
    }
}
