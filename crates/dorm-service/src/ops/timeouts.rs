//! Changes the time limits of a sandbox, its holds, and which sleep images are kept.

use std::time::Duration;

use dorm_lifecycle::{Command, Hold, HoldId, Initiator, SandboxId, SleepRetention, Timeouts};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::SandboxView;
use dorm_store::Made;

impl Service {
    /// Replaces the time limits of a sandbox. They count from now, except `max_run`, which counts
    /// from the start of the run.
    ///
    /// # Errors
    ///
    /// `Spec` for a limit of zero, `Denied` for a terminated sandbox.
    pub async fn set_timeouts(&self, id: &SandboxId, timeouts: Timeouts) -> Result<SandboxView, ServiceError> {
        timeouts.check()?;
        self.command(id, Command::SetTimeouts(timeouts), Initiator::User).await
    }

    /// Changes how many sleep images of a sandbox are kept, and what happens if none can be
    /// restored.
    ///
    /// # Errors
    ///
    /// `Spec` for a number that is out of range, `Denied` for a terminated sandbox.
    pub async fn set_retention(&self, id: &SandboxId, retention: SleepRetention) -> Result<SandboxView, ServiceError> {
        retention.check()?;
        self.command(id, Command::SetRetention(retention), Initiator::User).await
    }

    /// Keeps a sandbox awake for `ttl` from now, regardless of its time limits except `max_run`.
    /// `renew` names an existing hold to lengthen or shorten. It does not wake a suspended sandbox.
    ///
    /// # Errors
    ///
    /// `Denied` for a terminated sandbox, or one with the maximum number of holds.
    pub async fn hold(
        &self,
        id: &SandboxId,
        ttl: Duration,
        reason: String,
        renew: Option<HoldId>,
    ) -> Result<(SandboxView, Hold), ServiceError> {
        if let Some(Made::Hold(earlier)) = self.earlier() {
            let view = self.describe(id).await?;
            let hold = view.sandbox.holds.iter().find(|hold| hold.id == *earlier).cloned();
            return Ok((view, hold.ok_or_else(|| ServiceError::made_is_gone("hold", earlier))?));
        }
        let hold =
            Hold { id: renew.unwrap_or_else(|| self.shared.ids().hold()), reason, until: self.shared.now().after(ttl) };
        let view = self.command(id, Command::Hold(hold.clone()), Initiator::User).await?;
        Ok((view, hold))
    }

    /// Releases a hold. Releasing a hold that does not exist is a success.
    ///
    /// # Errors
    ///
    /// `Denied` for a terminated sandbox.
    pub async fn release(&self, id: &SandboxId, hold: HoldId) -> Result<SandboxView, ServiceError> {
        self.command(id, Command::Release(hold), Initiator::User).await
    }
}
