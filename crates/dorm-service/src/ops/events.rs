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
        Ok(self.shared.store.events(filter).await?)
    }
}
