//! Announcements of runs: creates containers for them, several at a time, and keeps some for a
//! while afterwards.
//!
//! ```text
//! announced ─► workers: make, freeze ─► expected
//! over ─► soon, one worker: make up for some ─► not announced again for a while: destroyed
//! ```
//!
//! This module does not know which run takes which container.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use dorm_cgroup::Precedence;
use dorm_engine::RunSpec;

use crate::error::chain;
use crate::expected::Batch;
use crate::filling::create;
use crate::shared::Shared;
use crate::warm_pool::Progress;

/// How long containers are kept after the runs.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// How long the first commands in the runs have the processors to themselves before containers are
/// created for another announcement.
const UNDISTURBED: Duration = Duration::from_secs(1);

/// An announcement.
pub(crate) struct Announced {
    shared: Weak<Shared>,
    batch: Arc<Batch>,
}

impl Shared {
    /// Begins to create containers for `count` runs like `like`; none if the warm pool is off.
    pub(crate) fn expect(self: &Arc<Self>, like: &RunSpec, count: usize) -> Option<Announced> {
        let mut order = self.order(like);
        // Runs have precedence, until one of them claims the container.
        order.limits.precedence = Precedence::Last;
        if !self.warm_pool.is_on() {
            return None;
        }
        let batch = self.expected.announce(order, count)?;
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(count) {
            tokio::spawn(create_all(self.clone(), batch.clone()));
        }
        Some(Announced { shared: Arc::downgrade(self), batch })
    }

    /// Removes the containers of all announcements, and creates no more.
    pub(crate) async fn close_expected(&self) {
        for batch in self.expected.close() {
            batch.remove(&self.host, batch.close()).await;
            batch.settled().await;
        }
    }
}

/// Creates containers until none is missing. The first failure ends it: the runs create their own.
async fn create_all(shared: Arc<Shared>, batch: Arc<Batch>) {
    while batch.begin() {
        let made = create(&shared, &batch.order, Progress::Empty).await;
        let failed = made.is_err();
        if let Err(error) = &made
            && batch.order.is_there()
        {
            tracing::warn!(error = %chain(error), "cannot create a container ahead of a run; runs start more slowly");
        }
        let surplus = batch.complete(made.ok());
        batch.remove(&shared.host, surplus.into_iter().collect()).await;
        if failed {
            return;
        }
    }
}

impl Announced {
    /// Ends the announcement. Some containers are kept for a while, in case of another one.
    pub(crate) fn end(self) {
        let Self { shared, batch } = self;
        // Without a runtime or an engine the process ends, and the next daemon removes them.
        let (Some(living), Ok(runtime)) = (shared.upgrade(), tokio::runtime::Handle::try_current()) else { return };
        let Some((announcements, surplus)) = batch.end_announcement() else { return };
        runtime.spawn(async move {
            batch.remove(&living.host, surplus).await;
            // Waiting must not keep the engine alive.
            drop(living);
            tokio::time::sleep(UNDISTURBED).await;
            let Some(living) = shared.upgrade() else { return };
            tokio::spawn(create_all(living, batch.clone()));
            tokio::time::sleep(KEPT_FOR).await;
            let Some(shared) = shared.upgrade() else { return };
            if let Some(left) = batch.close_unless_announced(announcements) {
                batch.remove(&shared.host, left).await;
                batch.settled().await;
                shared.expected.forget(&batch);
            }
        });
    }
}
