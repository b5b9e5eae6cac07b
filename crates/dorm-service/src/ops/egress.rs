//! Changes the egress policy of a sandbox.

use dorm_lifecycle::{Command, Egress, Initiator, SandboxId, SpecError};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::SandboxView;

impl Service {
    /// Replaces the egress policy of a sandbox. A running sandbox has the new policy when this
    /// returns: connections that it does not allow have ended. A suspended sandbox has it before
    /// its guest runs again.
    ///
    /// # Errors
    ///
    /// `Spec` for an invalid policy; `Denied` for a terminated sandbox, and for a change from or to
    /// `Egress::None`. If the change fails, the error says which policy the sandbox has.
    pub async fn set_egress(&self, id: &SandboxId, egress: Egress) -> Result<SandboxView, ServiceError> {
        let egress = egress.of_project(self.project());
        egress.check().map_err(SpecError::from)?;
        self.command(id, Command::SetEgress(egress), Initiator::User).await
    }
}
