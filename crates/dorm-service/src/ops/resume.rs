//! Resuming.

use dorm_lifecycle::{Actor, Command, SandboxId};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::SandboxView;

impl Service {
    /// Lets a suspended sandbox go on where it was, under the same id. Resuming a running one is a success; any number
    /// of callers at once cause one resume.
    ///
    /// # Errors
    /// `Denied` for a terminated one; `OperationFailed` when it could not be brought back: it stays suspended, its
    /// image untouched.
    pub async fn resume(&self, id: &SandboxId, by: Actor) -> Result<SandboxView, ServiceError> {
        self.command(id, Command::Resume, by).await
    }
}
