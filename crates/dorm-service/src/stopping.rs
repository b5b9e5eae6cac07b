//! The end of the service: no new work, an end to what is under way, and a limit on waiting for that.
//!
//! ```text
//! stop ─► no new operations, every retry gives up ─► operations under way end ─► engine closed
//!            └─ the limit passes: they are left, as a death of the daemon leaves them
//! ```
//!
//! Whatever is under way is on record before it begins, so that the next start finds and finishes or undoes it. A task that
//! is left is dropped where it waits; the process may end at any moment from then on.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::failure::STOPPED;
use crate::shared::{Service, Shared};

/// How long tasks that are left may take to be dropped. One that blocks its thread is not waited for.
const DROPPING: Duration = Duration::from_millis(500);

/// Work of the service in a task of its own.
pub(crate) struct Working<T>(JoinHandle<Option<T>>);

/// Work that has not come to its end: the service has stopped before, or it panicked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{STOPPED}")]
pub(crate) struct Unfinished;

impl<T> Future for Working<T> {
    type Output = Result<T, Unfinished>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)).ok().flatten().ok_or(Unfinished))
    }
}

impl Shared {
    /// Does work in a task of its own, which goes on when nobody waits for it. A stop of the service waits for its end, and
    /// leaves it when that takes too long.
    pub(crate) fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Working<T> {
        let left = self.left.clone();
        Working(self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = left.cancelled() => None,
                done = work => Some(done),
            }
        }))
    }
}

impl Service {
    /// Stops the service: operations in progress are waited for, running sandboxes go on running and parked ones stay
    /// parked; the next start finds them.
    pub async fn stop(&self) {
        self.end().await;
    }

    /// [`Service::stop`] that waits no longer than `limit`. Answers what was still under way then, a line for each: the next
    /// start finds it.
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
