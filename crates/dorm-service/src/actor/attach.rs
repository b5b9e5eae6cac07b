//! Changing what is attached to a sandbox. The wish is recorded first and then carried out; a daemon that dies in between
//! leaves the wish, which the next one carries out when it takes the run up. What is detached must not be in use, so it
//! goes inside first, and comes back when that cannot be recorded.

use std::sync::Arc;

use dorm_agent_client::{Agent, Busy};
use dorm_lifecycle::{
    Actor as By, Attachment, AttachmentError, Command, Input, Outcome, Sandbox, SpecError, State, check_attachments,
    free_slot,
};

use super::{Actor, Message, Reply};
use crate::effects;
use crate::error::ServiceError;
use crate::ops::attach::AttachmentChange;
use crate::shared::{Shared, chain};
use crate::view::{Residence, SandboxView};
use crate::volumes::VolumeProblem;

impl Actor {
    pub(super) async fn change_attachments(&mut self, change: AttachmentChange, by: By, reply: Reply<SandboxView>) {
        let next = match self.attachments_after(&change) {
            Ok(next) => next,
            Err(error) => {
                let _ = reply.send(Err(error));
                return;
            }
        };
        let word = match change {
            AttachmentChange::Attach(_) => "attach a volume to",
            AttachmentChange::Detach(_) => "detach a volume from",
        };
        let command = Command::SetAttachments(next);
        match self.ask(Input::Command(command.clone())) {
            Err(denied) => {
                let sandbox = self.record.sandbox.id.clone();
                let _ = reply.send(Err(ServiceError::Denied { operation: word, sandbox, denied }));
            }
            Ok(made) => match made.outcome {
                Outcome::Wait => self.later.push_back(Message::Attachments { change, by, reply }),
                Outcome::Already => {
                    let _ = reply.send(Ok(self.view()));
                }
                Outcome::Changed => {
                    let answer = match &self.record.sandbox.state {
                        State::Running { .. } => self.change_running(command, &made.next, by).await,
                        _ => self.change_sleeping(command, by).await,
                    };
                    let _ = reply.send(answer.map(|()| self.view()));
                }
            },
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

    async fn record_attachments(&mut self, command: Command, by: By) -> Result<(), ServiceError> {
        // Asked anew: the clock may have moved the record meanwhile.
        match self.ask(Input::Command(command)) {
            Ok(made) if made.outcome == Outcome::Changed => self.record_command(made, by).await,
            Ok(_) => Ok(()),
            Err(denied) => {
                let sandbox = self.record.sandbox.id.clone();
                Err(ServiceError::Denied { operation: "change the volumes of", sandbox, denied })
            }
        }
    }

    async fn change_sleeping(&mut self, command: Command, by: By) -> Result<(), ServiceError> {
        self.record_attachments(command, by).await?;
        // What is frozen still has the others mounted; it wakes from its image.
        if self.residence() == Residence::Parked {
            self.evict(None).await;
        }
        Ok(())
    }

    async fn change_running(&mut self, command: Command, next: &Sandbox, by: By) -> Result<(), ServiceError> {
        let agent = self.agent_now().await?;
        let before = self.record.sandbox.clone();
        let mut staying = before.clone();
        staying.spec.attachments.retain(|attachment| next.spec.attachments.contains(attachment));
        let goes = staying.spec.attachments.len() < before.spec.attachments.len();
        if goes {
            effects::mount_inside(&staying, &agent, Busy::Refuse).await?;
        }
        if let Err(error) = self.record_attachments(command, by).await {
            if goes {
                put_back(&self.shared, &before, &agent).await;
            }
            return Err(error);
        }
        let now = self.record.sandbox.clone();
        let Err(error) = effects::mount_all(&self.shared, &now, &agent).await else {
            if goes {
                self.shared.settle_volumes();
            }
            return Ok(());
        };
        put_back(&self.shared, &before, &agent).await;
        if let Err(error) = self.record_attachments(Command::SetAttachments(before.spec.attachments), by).await {
            tracing::error!(sandbox = %self.record.sandbox.id, error = %chain(&error), "a volume that could not be mounted stays attached");
        }
        self.shared.settle_volumes();
        Err(error)
    }
}

async fn put_back(shared: &Arc<Shared>, before: &Sandbox, agent: &Agent) {
    if let Err(error) = effects::mount_all(shared, before, agent).await {
        tracing::error!(sandbox = %before.id, error = %chain(&error), "its volumes are not as they were; its next run has them");
    }
}
