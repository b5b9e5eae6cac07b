//! Operations on record: those in progress, and ended ones until retention removes them.

use std::time::Duration;

use dorm_lifecycle::{OperationId, Timestamp};
use dorm_store::{OperationFilter, OperationRecord};

use crate::error::ServiceError;
use crate::shared::Service;

/// A page of operations, newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationPage {
    /// The operations.
    pub operations: Vec<OperationRecord>,
    /// [`OperationFilter::after`] for the next page; `None` on the last one.
    pub next: Option<(Timestamp, OperationId)>,
}

impl Service {
    /// Returns one operation, in progress or ended.
    ///
    /// # Errors
    ///
    /// `NoOperation`; `Store` if its record cannot be read.
    pub async fn operation(&self, id: &OperationId) -> Result<OperationRecord, ServiceError> {
        let found = self.shared.store.operation(id).await?;
        let found = found.filter(|operation| operation.project == *self.project());
        let operation = found.ok_or_else(|| ServiceError::NoOperation(id.clone()))?;
        Ok(self.shared.shown_operation(operation))
    }

    /// Returns one operation when it has ended, or after `patience` as it is then.
    ///
    /// # Errors
    ///
    /// Those of [`Service::operation`].
    pub async fn operation_within(
        &self,
        id: &OperationId,
        patience: Duration,
    ) -> Result<OperationRecord, ServiceError> {
        let operation = self.operation(id).await?;
        if operation.ended.is_some() || patience.is_zero() {
            return Ok(operation);
        }
        let ended = tokio::time::timeout(patience, self.ended(id)).await;
        match ended {
            Ok(Err(error)) => Err(error),
            Ok(Ok(_)) | Err(_) => self.operation(id).await,
        }
    }

    /// Returns the operations of this project that match a filter, newest first, and the cursor of
    /// the next page.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn operation_page(&self, filter: &OperationFilter) -> Result<OperationPage, ServiceError> {
        let project = Some(self.project().clone());
        let wanted = OperationFilter { project, limit: filter.limit.saturating_add(1), ..filter.clone() };
        let mut operations = self.shared.store.find_operations(&wanted).await?;
        let more = operations.len() > filter.limit;
        operations.truncate(filter.limit);
        let next = operations.last().filter(|_| more).map(|last| (last.began, last.id.clone()));
        let shown = operations.into_iter().map(|operation| self.shared.shown_operation(operation));
        Ok(OperationPage { operations: shown.collect(), next })
    }
}
