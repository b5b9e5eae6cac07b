//! Terminating.

use dorm_lifecycle::{Actor, Command, SandboxId};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::SandboxView;

impl Service {
    /// Ends a sandbox for ever and gives back all it held. Terminating a terminated one is a success.
    ///
    /// # Errors
    /// When the change could not be recorded; nothing has changed then.
    pub async fn terminate(&self, id: &SandboxId) -> Result<SandboxView, ServiceError> {
        self.command(id, Command::Terminate, Actor::User).await
    }
}
