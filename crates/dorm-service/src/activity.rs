//! Who is using a sandbox right now: an open exec, stream, terminal or connection keeps its idle limit from passing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dorm_lifecycle::Timestamp;

use crate::clock::Clock;

/// What is known of a sandbox's use since its record was written.
pub(crate) struct Activity {
    open: AtomicUsize,
    last: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl Activity {
    pub(crate) fn new(clock: Arc<dyn Clock>, last: Timestamp) -> Arc<Self> {
        Arc::new(Self { open: AtomicUsize::new(0), last: AtomicU64::new(last.as_millis()), clock })
    }

    /// When it was last used; now, while something is open.
    pub(crate) fn last(&self) -> Timestamp {
        if self.open.load(Ordering::SeqCst) > 0 {
            return self.clock.now();
        }
        Timestamp::from_millis(self.last.load(Ordering::SeqCst))
    }

    pub(crate) fn begin(self: &Arc<Self>) -> InUse {
        self.open.fetch_add(1, Ordering::SeqCst);
        InUse { activity: self.clone() }
    }
}

/// Keeps a sandbox from being idle until it is dropped.
pub struct InUse {
    activity: Arc<Activity>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.activity.last.fetch_max(self.activity.clock.now().as_millis(), Ordering::SeqCst);
        self.activity.open.fetch_sub(1, Ordering::SeqCst);
    }
}
