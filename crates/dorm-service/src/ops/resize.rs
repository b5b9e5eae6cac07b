//! Changes the limits of CPU and memory of a sandbox.

use dorm_lifecycle::{Command, Initiator, Resize, SandboxId, State};

use crate::admission::RoomRequest;
use crate::error::ServiceError;
use crate::shared::{Service, Share};
use crate::view::SandboxView;

impl Service {
    /// Changes the limits of CPU and memory of a sandbox. A running sandbox has them when this
    /// returns, a suspended one before its guest runs again.
    ///
    /// # Errors
    ///
    /// `Denied` for a terminated sandbox and for a value that is out of range; `NotAdmitted` if the
    /// host or the project has no room for it; `OperationFailed` if the sandbox uses more memory
    /// than it would have, or its engine cannot change it: it has the previous limits.
    pub async fn resize(&self, id: &SandboxId, wanted: Resize) -> Result<SandboxView, ServiceError> {
        let sandbox = self.record(id).await?.sandbox;
        let after = wanted.apply(sandbox.spec.resources);
        after.check()?;
        let runs = !matches!(sandbox.state, State::Suspended { .. } | State::Terminated { .. });
        let (now, need) = (Share::of_sandbox(&sandbox), Share::of(&after));
        if runs && need != now {
            // Its present limits count until it has the new ones.
            let share = need.max(now);
            let room = RoomRequest { what: "resize a sandbox", project: self.project(), share, count: 1, of: Some(id) };
            let admitted = self.shared.admit_run(room).await?;
            self.shared.ledger.reserve(id, self.project(), share);
            drop(admitted);
        }
        let answer = self.command(id, Command::Resize(wanted), Initiator::User).await;
        if answer.is_err()
            && let Ok(record) = self.record(id).await
        {
            self.shared.ledger.note(&record.sandbox);
        }
        answer
    }
}
