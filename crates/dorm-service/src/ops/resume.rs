//! Resuming.

use std::time::Duration;

use dorm_lifecycle::{Command, Initiator, SandboxId, SpecError, State};

use crate::admission::RoomRequest;
use crate::error::ServiceError;
use crate::messages::{IfBusy, Message};
use crate::shared::{Service, Share};
use crate::view::SandboxView;

/// How a sandbox is resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResumeSpec {
    /// Its total time limit from then on. If it runs already, its deadline is postponed to at least
    /// this time from now. Default: its limit does not change.
    pub total: Option<Duration>,
    /// How long it waits for room, in turn with others. Default: it does not wait.
    pub max_wait: Duration,
}

impl Default for ResumeSpec {
    fn default() -> Self {
        Self { total: None, max_wait: Duration::ZERO }
    }
}

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
        self.resume_as(id, by, ResumeSpec::default()).await
    }

    /// Like [`Service::resume`], with a time limit or a wait for room.
    ///
    /// # Errors
    ///
    /// Those of [`Service::resume`]; `Spec` for a limit of zero.
    pub async fn resume_as(
        &self,
        id: &SandboxId,
        by: Initiator,
        asked: ResumeSpec,
    ) -> Result<SandboxView, ServiceError> {
        if asked.total.is_some_and(|total| total.is_zero()) {
            return Err(SpecError::ZeroTimeout("timeout").into());
        }
        self.wake_with(id, by, asked, Command::Resume { total: asked.total }).await
    }

    /// Gives a command that resumes a sandbox, once there is room for it.
    pub(super) async fn wake_with(
        &self,
        id: &SandboxId,
        by: Initiator,
        asked: ResumeSpec,
        command: Command,
    ) -> Result<SandboxView, ServiceError> {
        let mut sandbox = self.record(id).await?.sandbox;
        if matches!(sandbox.state, State::Suspending { .. }) && self.manner.if_busy == IfBusy::Wait {
            // It gives its room to others, and then needs some again.
            self.ask(id, |reply| Message::Settled { reply }).await?;
            sandbox = self.record(id).await?.sandbox;
        }
        if let State::Suspended { .. } = &sandbox.state {
            if !self.shared.parking.holds(id) {
                self.shared.refuse_damaged(&sandbox.spec.image, sandbox.spec.layer.as_ref()).await?;
            }
            let share = Share::of(&sandbox.spec.resources);
            let project = self.project();
            let room = RoomRequest { what: "resume a sandbox", project, share, count: 1, of: Some(id) };
            let admitted = self.shared.admit_run_within(room, asked.max_wait).await?;
            self.shared.ledger.reserve(id, project, share);
            drop(admitted);
        }
        let answer = self.command(id, command, by).await;
        if answer.is_err()
            && let Ok(record) = self.record(id).await
        {
            self.shared.ledger.note(&record.sandbox);
        }
        answer
    }
}
