//! Changes properties of a sandbox that need no work on its run.

use std::time::Duration;

use dorm_lifecycle::{Command, Initiator, SandboxId, SpecError, Update};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::SandboxView;

impl Service {
    /// Changes properties of a sandbox, all of them or none.
    ///
    /// # Errors
    ///
    /// `Denied` for a terminated sandbox, and if it would have to be suspended at its deadline but
    /// cannot be; `Store` with `NameTaken`.
    pub async fn update(&self, id: &SandboxId, update: Update) -> Result<SandboxView, ServiceError> {
        self.command(id, Command::Update(Box::new(update)), Initiator::User).await
    }

    /// Postpones the deadline that the `total` limit of a sandbox sets to `by` from now. Never
    /// shortens the limit; a sandbox without one has no deadline to postpone.
    ///
    /// # Errors
    ///
    /// `Spec` for zero, `Denied` for a terminated sandbox.
    pub async fn extend(&self, id: &SandboxId, by: Duration) -> Result<SandboxView, ServiceError> {
        if by.is_zero() {
            return Err(SpecError::ZeroTimeout("timeout").into());
        }
        self.command(id, Command::Extend(by), Initiator::User).await
    }
}
