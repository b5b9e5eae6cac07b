//! Suspending, and releasing the memory of suspended sandboxes.

use dorm_lifecycle::{Command, Initiator, Keep, SandboxId};

use crate::error::ServiceError;
use crate::messages::Message;
use crate::shared::Service;
use crate::view::SandboxView;

impl Service {
    /// Saves a sandbox and suspends it. When this returns, its sleep image is on disk and verified.
    /// Suspending a suspended sandbox is a success.
    ///
    /// # Errors
    ///
    /// `Denied` for an ephemeral sandbox; `OperationFailed` if it could not be saved: it keeps
    /// running then.
    pub async fn suspend(&self, id: &SandboxId) -> Result<SandboxView, ServiceError> {
        self.suspend_with(id, Keep::Memory).await
    }

    /// Like [`Service::suspend`]; with [`Keep::Files`], only the files of the sandbox are kept, and
    /// it boots from them when it wakes. Sandboxes that are not suspendable can be suspended so,
    /// too. A suspended sandbox stays as it is, whatever was kept of it.
    ///
    /// # Errors
    ///
    /// Those of [`Service::suspend`].
    pub async fn suspend_with(&self, id: &SandboxId, keep: Keep) -> Result<SandboxView, ServiceError> {
        self.command(id, Command::Suspend(keep), Initiator::User).await
    }

    /// Releases the memory that a suspended sandbox still holds; its sleep image is on disk. Does
    /// nothing to any other sandbox.
    ///
    /// # Errors
    ///
    /// Fails if the engine could not end its run.
    pub async fn evict(&self, id: &SandboxId) -> Result<SandboxView, ServiceError> {
        let by = self.asked_by(Initiator::User);
        match self.ask(id, |reply| Message::Evict { by, reply: Some(reply) }).await {
            Err(ServiceError::NoSandbox(_)) => self.describe(id).await,
            other => other,
        }
    }
}
