//! Changing time limits.

use dorm_lifecycle::{Actor, Command, SandboxId, Timeouts};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::SandboxView;

impl Service {
    /// Replaces both time limits of a sandbox; they count from now.
    ///
    /// # Errors
    /// `Spec` for a limit of zero, `Denied` for a terminated sandbox.
    pub async fn set_timeouts(&self, id: &SandboxId, timeouts: Timeouts) -> Result<SandboxView, ServiceError> {
        timeouts.check()?;
        self.command(id, Command::SetTimeouts(timeouts), Actor::User).await
    }
}
