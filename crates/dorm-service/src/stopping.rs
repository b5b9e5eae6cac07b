//! The end of the service: no new work starts, work in progress ends, and waiting for that is
//! limited.
//!
//! ```text
//! stop ─► no new operations, no more retries ─► operations in progress end ─► engine closed
//!            └─ the limit passes: they are abandoned, as if the daemon had died
//! ```
//!
//! Work in progress is recorded before it begins, so that the next start finds it and finishes it
//! or rolls it back. An abandoned task is dropped at its await point; the process may end at any
//! moment from then on.

use std::time::Duration;

use crate::shared::Service;

/// How long dropping abandoned tasks may take. A task that blocks its thread is not waited for.
const DROPPING: Duration = Duration::from_millis(500);

impl Service {
    /// Stops the service: waits for operations in progress; running sandboxes keep running and
    /// parked ones stay parked, and the next start finds them.
    pub async fn stop(&self) {
        self.end().await;
    }

    /// Like [`Service::stop`], but waits at most `limit`. Returns what was still in progress then,
    /// one line each: the next start finds it.
    pub async fn stop_within(&self, limit: Duration) -> Vec<String> {
        let shared = &self.shared;
        if tokio::time::timeout(limit, self.end()).await.is_ok() {
            return Vec::new();
        }
        let mut under_way = shared.living.under_way();
        if under_way.is_empty() {
            under_way.push(format!("{} tasks of the daemon, or its engine", shared.tasks.len()));
        }
        shared.left.cancel();
        let _ = tokio::time::timeout(DROPPING, shared.tasks.wait()).await;
        under_way
    }

    async fn end(&self) {
        let shared = &self.shared;
        shared.stopping.cancel();
        shared.tasks.close();
        shared.tasks.wait().await;
        if shared.volumes.has_mounted() {
            shared.settle_volumes_now().await;
        }
        shared.engine.close().await;
    }
}
