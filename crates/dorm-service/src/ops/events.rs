//! Reading events.

use dorm_store::{EventFilter, EventRecord};

use crate::error::ServiceError;
use crate::shared::Service;

impl Service {
    /// Returns recorded events in order; `after` is the cursor.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn events(&self, filter: &EventFilter) -> Result<Vec<EventRecord>, ServiceError> {
        let events = self.shared.store.events(filter).await?;
        Ok(events.into_iter().map(|event| self.shared.shown_event(event)).collect())
    }

    /// Returns the number up to which old events have been removed; 0 while all exist.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn events_removed(&self) -> Result<u64, ServiceError> {
        Ok(self.shared.store.events_removed().await?)
    }
}
