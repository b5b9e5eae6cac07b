//! Resuming.

use dorm_lifecycle::{Command, Initiator, SandboxId, State};

use crate::error::ServiceError;
use crate::shared::{Service, Share};
use crate::view::SandboxView;

impl Service {
    /// Resumes a suspended sandbox where it stopped, under the same id. Resuming a running sandbox
    /// is a success; any number of concurrent callers cause one resume.
    ///
    /// # Errors
    ///
    /// `Denied` for a terminated sandbox; `OperationFailed` if it could not be restored: it stays
    /// suspended, with its sleep image intact. `Storage` if its image or a layer is damaged:
    /// nothing was started.
    pub async fn resume(&self, id: &SandboxId, by: Initiator) -> Result<SandboxView, ServiceError> {
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
