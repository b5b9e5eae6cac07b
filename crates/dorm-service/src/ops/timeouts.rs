//! Changing how long a sandbox stays awake, and what is kept to bring it back.

use std::time::Duration;

use dorm_lifecycle::{Actor, Command, Hold, HoldId, Keeping, SandboxId, Timeouts};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::SandboxView;

impl Service {
    /// Replaces the time limits of a sandbox. They count from now, but for that of the longest run, which counts from the
    /// beginning of the run.
    ///
    /// # Errors
    /// `Spec` for a limit of zero, `Denied` for a terminated sandbox.
    pub async fn set_timeouts(&self, id: &SandboxId, timeouts: Timeouts) -> Result<SandboxView, ServiceError> {
        timeouts.check()?;
        self.command(id, Command::SetTimeouts(timeouts), Actor::User).await
    }

    /// Changes how many images are kept of a sandbox and what happens when none can be restored.
    ///
    /// # Errors
    /// `Spec` for a number out of its range, `Denied` for a terminated sandbox.
    pub async fn set_keeping(&self, id: &SandboxId, keeping: Keeping) -> Result<SandboxView, ServiceError> {
        keeping.check()?;
        self.command(id, Command::SetKeeping(keeping), Actor::User).await
    }

    /// Keeps a sandbox awake for `ttl` from now, whatever its time limits say, but for that of the longest run. `renew`
    /// names a hold that is to last longer, or shorter. It does not wake a suspended sandbox.
    ///
    /// # Errors
    /// `Denied` for a terminated sandbox, or one with very many holds.
    pub async fn hold(
        &self,
        id: &SandboxId,
        ttl: Duration,
        reason: String,
        renew: Option<HoldId>,
    ) -> Result<(SandboxView, Hold), ServiceError> {
        let hold =
            Hold { id: renew.unwrap_or_else(|| self.shared.ids().hold()), reason, until: self.shared.now().after(ttl) };
        let view = self.command(id, Command::Hold(hold.clone()), Actor::User).await?;
        Ok((view, hold))
    }

    /// Takes back a hold. One that is not there is a success.
    ///
    /// # Errors
    /// `Denied` for a terminated sandbox.
    pub async fn release(&self, id: &SandboxId, hold: HoldId) -> Result<SandboxView, ServiceError> {
        self.command(id, Command::Release(hold), Actor::User).await
    }
}
