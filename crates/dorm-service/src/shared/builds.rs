//! Facts about builds besides their records.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dorm_lifecycle::BuildId;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Facts about builds besides their records.
#[derive(Default)]
pub(crate) struct Builds {
    /// Notified when a build was requested or has ended.
    pub(crate) news: Notify,
    /// Held while the record of a build or template, or the removal of a context, is decided about.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// The builds that this daemon carries out, each with what cancels it.
    running: Mutex<BTreeMap<BuildId, CancellationToken>>,
}

impl Builds {
    fn running(&self) -> MutexGuard<'_, BTreeMap<BuildId, CancellationToken>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a build is being carried out; `None` if it is already.
    pub(crate) fn begin(&self, build: &BuildId) -> Option<CancellationToken> {
        let mut running = self.running();
        if running.contains_key(build) {
            return None;
        }
        let cancel = CancellationToken::new();
        running.insert(build.clone(), cancel.clone());
        Some(cancel)
    }

    /// Notes that a build is not carried out any more.
    pub(crate) fn end(&self, build: &BuildId) {
        self.running().remove(build);
        self.news.notify_waiters();
    }

    pub(crate) fn is_running(&self, build: &BuildId) -> bool {
        self.running().contains_key(build)
    }

    /// Cancels a build that is being carried out.
    pub(crate) fn cancel(&self, build: &BuildId) {
        if let Some(cancel) = self.running().get(build) {
            cancel.cancel();
        }
    }
}
