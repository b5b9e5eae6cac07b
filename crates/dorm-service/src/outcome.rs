//! Commits whose end was not seen.
//!
//! A store that fails at the end of a commit may have made the change. Nothing may be undone, removed or reported as
//! failed before that is known, so the store is asked until it answers. Meanwhile everything stays as it is: files stay
//! on the disk, a guest that is held stays held, and the caller waits. Only a stop of the daemon ends the waiting; the
//! next start reads what holds.

use std::time::Duration;

use dorm_store::{Change, EventFilter, EventRecord, Settled, StoreError};

use crate::backoff::Backoff;
use crate::error::ServiceError;
use crate::shared::{Shared, chain};

/// How long after a failure the store is asked again, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

impl Shared {
    /// Commits a change. Answers when it is known whether it was made: [`StoreError::Unknown`] only comes when the daemon
    /// is stopping.
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
            // What was read in between may be from before the change.
            self.living.forget();
            match settled {
                Ok(Settled::Made) => {
                    tracing::warn!(error = %chain(&*source), "a commit reported a failure, and the change was made");
                    return Ok(self.newest_event().await);
                }
                Ok(Settled::NotMade) => return Err(StoreError::Failed { operation, source }),
                Err(error) => {
                    metrics::counter!("dorm_store_unsettled_total").increment(1);
                    tracing::error!(error = %chain(&error), "cannot find out whether a change was recorded; trying again");
                }
            }
            if self.stops_within(again.wait()).await {
                return Err(StoreError::Unknown { operation, ticket, source });
            }
        }
    }

    /// The last event, for whoever follows them; none when it cannot be read, and then the next one brings it along.
    async fn newest_event(&self) -> Vec<EventRecord> {
        let newest = EventFilter { newest: 1, ..EventFilter::default() };
        self.store.events(&newest).await.unwrap_or_default()
    }
}

impl ServiceError {
    /// Whether it is not known if the change was recorded. Then nothing that the change needs may be removed.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_unknown())
    }
}
