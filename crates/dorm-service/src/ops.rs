//! The operations for callers, one verb per file.

mod archives;
pub(crate) mod attach;
pub(crate) mod builds;
pub(crate) mod checkpoint;
mod checkpoints;
pub(crate) mod collect;
pub(crate) mod compose;
pub(crate) mod create;
pub(crate) mod describe;
pub(crate) mod diff;
mod egress;
pub(crate) mod environments;
mod events;
pub(crate) mod exec;
pub(crate) mod figures;
mod files;
pub(crate) mod fork;
pub(crate) mod holders;
mod image_names;
mod images;
pub(crate) mod keys;
mod layers;
pub(crate) mod operations;
pub(crate) mod pools;
pub(crate) mod ports;
pub(crate) mod projects;
pub(crate) mod promote;
pub(crate) mod pull;
mod reach;
mod remote;
mod requests;
pub(crate) mod reserved_builds;
mod resize;
pub(crate) mod restart;
pub(crate) mod resume;
pub(crate) mod rewind;
pub(crate) mod runs;
pub(crate) mod secrets;
mod services;
pub(crate) mod settings;
pub(crate) mod snapshot_names;
pub(crate) mod snapshots;
mod suspend;
pub(crate) mod templates;
mod terminate;
mod timeouts;
pub(crate) mod transfer;
mod tree;
mod update;
mod upload_tickets;
mod volume_entries;
pub(crate) mod volumes;
mod webhooks;
mod why;

use dorm_lifecycle::{Command, Initiator, SandboxId};

use crate::error::ServiceError;
use crate::messages::Message;
use crate::shared::Service;
use crate::view::SandboxView;

impl Service {
    pub(crate) async fn command(
        &self,
        id: &SandboxId,
        command: Command,
        by: Initiator,
    ) -> Result<SandboxView, ServiceError> {
        let message = |reply| Message::Command {
            command: command.clone(),
            by: self.asked_by(by),
            manner: self.manner,
            request: self.request.clone(),
            reply,
        };
        let asked = self.ask(id, message).await;
        match asked {
            // The sandbox is terminated or never existed: its record tells which.
            Err(ServiceError::NoSandbox(_)) => self.command_to_the_dead(id, &command).await,
            other => other,
        }
    }
}
