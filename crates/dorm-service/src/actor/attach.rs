//! Changes of the attachments of a sandbox: the lifecycle decides, and the change is carried out in
//! the background while the sandbox keeps running or stays suspended.

use dorm_lifecycle::{
    Attachment, AttachmentError, Command, EventKind, Initiator, Input, Observation, Outcome, SpecError, State,
    check_attachments, free_slot,
};

use super::{Actor, Waiting};
use crate::asked_by::AskedBy;
use crate::error::{ServiceError, VolumeProblem};
use crate::messages::{AttachmentChange, Message, Reply};
use crate::view::SandboxView;

impl Actor {
    pub(super) async fn change_attachments(
        &mut self,
        change: AttachmentChange,
        by: AskedBy,
        reply: Reply<SandboxView>,
    ) {
        // The attachments are only known when the operation in the background ends.
        if self.record.sandbox.state.background().is_some() {
            self.later.push_back(Message::Attachments { change, by, reply });
            return;
        }
        let word = match change {
            AttachmentChange::Attach(_) => "attach a volume to",
            AttachmentChange::Detach(_) => "detach a volume from",
        };
        let made = self.attachments_after(&change).and_then(|after| {
            let sandbox = self.record.sandbox.id.clone();
            let asked = self.ask(Input::Command(Command::SetAttachments(after)));
            asked.map_err(|denied| ServiceError::Denied { operation: word, sandbox, denied })
        });
        let made = match made {
            Ok(made) if made.outcome == Outcome::Wait => {
                self.later.push_back(Message::Attachments { change, by, reply });
                return;
            }
            Ok(made) => made,
            Err(error) => {
                let _ = reply.send(Err(error));
                return;
            }
        };
        let Some(effect) = made.effect.clone() else {
            let _ = reply.send(Ok(self.view()));
            return;
        };
        match self.record_command(made, by, None).await {
            Ok(()) => {
                self.waiting.push(Waiting::View(word, reply));
                self.begin(effect);
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    fn attachments_after(&self, change: &AttachmentChange) -> Result<Vec<Attachment>, ServiceError> {
        let mut next = self.record.sandbox.spec.attachments.clone();
        match change {
            AttachmentChange::Attach(asked) => {
                let slot = free_slot(&next).ok_or_else(|| SpecError::from(AttachmentError::TooMany(next.len() + 1)))?;
                next.push(Attachment { slot, ..asked.clone() });
                check_attachments(&next).map_err(SpecError::from)?;
            }
            AttachmentChange::Detach(path) => {
                let before = next.len();
                next.retain(|attachment| attachment.path != *path);
                if next.len() == before {
                    let sandbox = self.record.sandbox.id.clone();
                    return Err(VolumeProblem::NotAttached { sandbox, path: path.clone() }.into());
                }
            }
        }
        Ok(next)
    }

    /// Unmounts volumes that no run may use any more, after an operation that changed attachments
    /// or tried to.
    pub(super) async fn volumes_changed(&mut self, observation: &Observation) {
        let sandbox = &self.record.sandbox;
        if matches!((&sandbox.state, observation), (State::Suspended { .. }, Observation::Attached))
            && self.shared.parking.leave(&sandbox.id)
        {
            self.note(EventKind::Evicted, Initiator::Host, None).await;
        }
        self.shared.settle_volumes();
    }
}
