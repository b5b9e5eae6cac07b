//! Attaches volumes to sandboxes and detaches them.

use dorm_lifecycle::{
    Access, Attachment, AttachmentError, Initiator, MountPath, SandboxId, SpecError, SubPath, free_slot,
};

use crate::error::ServiceError;
use crate::messages::{AttachmentChange, Message};
use crate::shared::Service;
use crate::view::SandboxView;

/// A request to attach a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttachmentSpec {
    /// The name or id of the volume.
    pub volume: String,
    /// The mount point.
    pub path: MountPath,
    /// The permitted access.
    pub access: Access,
    /// The part of the volume.
    pub subpath: SubPath,
    /// The container slot, if a memory image identifies the volume by it.
    pub(crate) slot: Option<u8>,
}

impl AttachmentSpec {
    /// Returns a request for the whole volume, for writing.
    pub fn new(volume: impl Into<String>, path: MountPath) -> Self {
        Self { volume: volume.into(), path, access: Access::Write, subpath: SubPath::default(), slot: None }
    }

    /// Returns a request for the same attachment as that of another sandbox.
    pub(crate) fn like(attachment: &Attachment) -> Self {
        let Attachment { volume, path, access, subpath, slot } = attachment.clone();
        Self { volume: volume.to_string(), path, access, subpath, slot: Some(slot) }
    }
}

/// How the volumes of a sandbox are attached to the sandboxes made from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FollowingVolumes {
    /// They are attached as to the source. The default. If a volume allows a single writer and the
    /// source writes to it, the new sandboxes are refused.
    #[default]
    Same,
    /// They are attached read-only.
    ReadOnly,
    /// None is attached.
    None,
}

impl Service {
    /// Attaches a volume to a sandbox: at once if it is running, otherwise from its next run on.
    ///
    /// # Errors
    ///
    /// `Volume` if there is no such volume, or if it allows one writer and another sandbox writes
    /// to it; `Spec` if the mount point is taken. Nothing has changed then.
    pub async fn attach(&self, id: &SandboxId, asked: AttachmentSpec) -> Result<SandboxView, ServiceError> {
        let volume = self.volume_record(&asked.volume).await?.id;
        let AttachmentSpec { path, access, subpath, .. } = asked;
        let attachment = Attachment { volume, path, access, subpath, slot: 0 };
        self.change_attachments(id, AttachmentChange::Attach(attachment)).await
    }

    /// Detaches the volume at `path` from a sandbox.
    ///
    /// # Errors
    ///
    /// `Volume` if there is none; `Agent` while a program in the sandbox uses it.
    pub async fn detach(&self, id: &SandboxId, path: MountPath) -> Result<SandboxView, ServiceError> {
        self.change_attachments(id, AttachmentChange::Detach(path)).await
    }

    async fn change_attachments(&self, id: &SandboxId, change: AttachmentChange) -> Result<SandboxView, ServiceError> {
        self.record(id).await?;
        self.shared.refuse_paused(id)?;
        self.ask(id, |reply| Message::Attachments { change, by: self.asked_by(Initiator::User), reply }).await
    }

    /// Returns the requested attachments, each with a container slot of its own.
    pub(super) async fn attachments(&self, asked: Vec<AttachmentSpec>) -> Result<Vec<Attachment>, ServiceError> {
        let mut made: Vec<Attachment> = Vec::new();
        let (fixed, free): (Vec<_>, Vec<_>) = asked.into_iter().partition(|one| one.slot.is_some());
        for AttachmentSpec { volume, path, access, subpath, slot } in fixed.into_iter().chain(free) {
            let volume = self.volume_record(&volume).await?.id;
            let slot = slot.or_else(|| free_slot(&made));
            let slot = slot.ok_or_else(|| SpecError::from(AttachmentError::TooMany(made.len() + 1)))?;
            made.push(Attachment { volume, path, access, subpath, slot });
        }
        Ok(made)
    }
}

/// Returns the attachments of a sandbox that is made from another.
pub(super) fn following(attachments: &[Attachment], how: FollowingVolumes) -> Vec<AttachmentSpec> {
    match how {
        FollowingVolumes::None => Vec::new(),
        FollowingVolumes::Same => attachments.iter().map(AttachmentSpec::like).collect(),
        FollowingVolumes::ReadOnly => attachments
            .iter()
            .map(|attachment| AttachmentSpec { access: Access::Read, ..AttachmentSpec::like(attachment) })
            .collect(),
    }
}
