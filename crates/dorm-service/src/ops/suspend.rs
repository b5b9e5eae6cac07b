//! Suspending, and giving back the memory of what is suspended.

use dorm_lifecycle::{Actor, Command, SandboxId};

use crate::actor::Message;
use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::SandboxView;

impl Service {
    /// Saves a sandbox and lets it sleep. When this returns its image is on disk, verified. Suspending a suspended one
    /// is a success.
    ///
    /// # Errors
    /// `Denied` for an ephemeral one; `OperationFailed` when it could not be saved: it goes on running then.
    pub async fn suspend(&self, id: &SandboxId) -> Result<SandboxView, ServiceError> {
        self.command(id, Command::Suspend, Actor::User).await
    }

    /// Gives back the memory that a suspended sandbox still holds; its image is on disk. Does nothing to any other.
    ///
    /// # Errors
    /// When the engine could not end its run.
    pub async fn evict(&self, id: &SandboxId) -> Result<SandboxView, ServiceError> {
        match self.ask(id, |reply| Message::Evict { reply: Some(reply) }).await {
            Err(ServiceError::NoSandbox(_)) => self.describe(id).await,
            other => other,
        }
    }
}
