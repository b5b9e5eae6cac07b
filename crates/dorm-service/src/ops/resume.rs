//! Resuming.

use dorm_lifecycle::{Actor, Command, SandboxId, State};

use crate::admission::Share;
use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::SandboxView;

impl Service {
    /// Lets a suspended sandbox go on where it was, under the same id. Resuming a running one is a success; any number
    /// of callers at once cause one resume.
    ///
    /// # Errors
    /// `Denied` for a terminated one; `OperationFailed` when it could not be brought back: it stays suspended, its
    /// image untouched. `Pool` when its image or a layer is damaged: nothing was begun.
    pub async fn resume(&self, id: &SandboxId, by: Actor) -> Result<SandboxView, ServiceError> {
        let sandbox = self.record(id).await?.sandbox;
        if let State::Suspended { .. } = &sandbox.state {
            if !self.shared.parking.holds(id) {
                self.shared.refuse_damaged(&sandbox.spec.image, sandbox.spec.layer.as_ref()).await?;
            }
            let share = Share::of(&sandbox.spec.resources);
            let admitted = self.shared.admit_run("resume a sandbox", share).await?;
            self.shared.ledger.reserve(id, share);
            drop(admitted);
        }
        let answer = self.command(id, Command::Resume, by).await;
        if answer.is_err()
            && let Ok(record) = self.record(id).await
        {
            self.shared.ledger.note(&record.sandbox);
        }
        answer
    }
}
