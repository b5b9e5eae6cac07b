//! The end of a server, as everything that outlives one request sees it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Signals for streams that outlive the request they began with.
#[derive(Clone, Debug)]
pub struct Life {
    /// The server accepts no new requests, and endless streams end.
    pub stop: CancellationToken,
    /// All connections that still exist are closed.
    pub cut: CancellationToken,
    /// The tasks that must end before the server ends.
    pub tasks: TaskTracker,
}

impl Life {
    /// The life of a server that ends with `stop`.
    pub fn until(stop: CancellationToken) -> Self {
        Self { stop, cut: CancellationToken::new(), tasks: TaskTracker::new() }
    }

    /// Gives the tasks this long to end, then closes all connections and waits for the tasks.
    pub async fn end(self, grace: Duration) {
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            self.cut.cancel();
            self.tasks.wait().await;
        }
    }
}
