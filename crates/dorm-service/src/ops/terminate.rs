//! Terminating.

use dorm_lifecycle::{Actor, Command, SandboxId};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::SandboxView;

impl Service {
    /// Terminates a sandbox for good and releases all its resources. Terminating a terminated
    /// sandbox is a success.
    ///
    /// # Errors
    ///
    /// Fails if the change could not be recorded; nothing has changed then.
    pub async fn terminate(&self, id: &SandboxId) -> Result<SandboxView, ServiceError> {
        self.command(id, Command::Terminate, Actor::User).await
    }
}
