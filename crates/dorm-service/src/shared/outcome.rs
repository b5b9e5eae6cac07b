//! Commits whose result is unknown.
//!
//! A store that fails at the end of a commit may have made the change. Nothing may be undone,
//! removed or reported as failed before the result is known, so the store is asked until it
//! answers. Meanwhile everything stays as it is: files stay on the disk, a paused guest stays
//! paused, and the caller waits. Only a stop of the daemon ends the wait; the next start reads what
//! holds.

use std::time::Duration;

use dorm_store::{Change, EventFilter, EventRecord, Settled, StoreError};

use super::Shared;
use crate::backoff::Backoff;
use crate::error::{ServiceError, chain};

/// The delays before the store is asked again, first and longest.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

impl Shared {
    /// Commits a change and returns once its result is known: [`StoreError::Unknown`] is returned
    /// only if the daemon is stopping.
    pub(crate) async fn commit_known(&self, change: Change) -> Result<Vec<EventRecord>, StoreError> {
        let (operation, ticket, source) = match self.living.commit(&*self.store, change).await {
            Err(StoreError::Unknown { operation, ticket, source }) => (operation, ticket, source),
            known => return known,
        };
        #[cfg(feature = "planted-bugs")]
        if dorm_steps::planted::is(dorm_steps::planted::Planted::CommitReportedFailed) {
            return Err(StoreError::Failed { operation, source });
        }
        let mut again = Backoff::new(AGAIN);
        loop {
            let settled = self.store.settle(ticket).await;
            // Values that were read in between may date from before the change.
            self.living.forget();
            match settled {
                Ok(Settled::Made) => {
                    tracing::warn!(error = %chain(&*source), "a commit reported a failure, but the change was made");
                    return Ok(self.newest_event().await);
                }
                Ok(Settled::NotMade) => return Err(StoreError::Failed { operation, source }),
                Err(error) => {
                    metrics::counter!("dorm_store_unsettled_total").increment(1);
                    tracing::error!(error = %chain(&error), "cannot determine whether a change was recorded; retrying");
                }
            }
            if self.stops_within(again.wait()).await {
                return Err(StoreError::Unknown { operation, ticket, source });
            }
        }
    }

    /// Returns the last event, for followers of events; empty if it cannot be read, in which case
    /// the next event makes followers read it too.
    async fn newest_event(&self) -> Vec<EventRecord> {
        let newest = EventFilter { newest: 1, ..EventFilter::default() };
        self.store.events(&newest).await.unwrap_or_default()
    }
}

impl ServiceError {
    /// Returns whether it is unknown if the change was recorded. Then nothing that the change needs
    /// may be removed.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_unknown())
    }
}
