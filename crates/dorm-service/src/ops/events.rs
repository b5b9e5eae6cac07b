//! Reading what happened.

use dorm_store::{EventFilter, EventRecord};

use crate::error::ServiceError;
use crate::shared::Service;

impl Service {
    /// Recorded events in their order; `after` is the cursor.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn events(&self, filter: &EventFilter) -> Result<Vec<EventRecord>, ServiceError> {
        let events = self.shared.store.events(filter).await?;
        Ok(events.into_iter().map(|event| self.shared.shown_event(event)).collect())
    }

    /// The number up to which events have been removed because they were old; 0 while all are there.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn events_removed(&self) -> Result<u64, ServiceError> {
        Ok(self.shared.store.events_removed().await?)
    }
}
