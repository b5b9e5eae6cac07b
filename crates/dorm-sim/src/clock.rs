//! A wall clock that can be set, as people and time servers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use dorm_lifecycle::Timestamp;
use dorm_service::{Clock, TokioClock};

/// Follows tokio's time, plus what it was set by. Clones are the same clock.
#[derive(Clone, Debug)]
pub(crate) struct WallClock {
    steady: TokioClock,
    offset_ms: Arc<AtomicI64>,
}

impl WallClock {
    pub(crate) fn new() -> Self {
        let steady = TokioClock::starting_at(Timestamp::from_millis(1_800_000_000_000));
        Self { steady, offset_ms: Arc::default() }
    }

    pub(crate) fn jump(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let steady = self.steady.now().as_millis();
        Timestamp::from_millis(steady.saturating_add_signed(self.offset_ms.load(Ordering::SeqCst)))
    }
}
