//! Attaching volumes to sandboxes and detaching them.

use dorm_lifecycle::{
    Access, Actor as By, Attachment, AttachmentError, MountPath, SandboxId, SpecError, SubPath, free_slot,
};

use crate::actor::Message;
use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::SandboxView;

/// A volume, as it is to be attached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttachVolume {
    /// Its name or id.
    pub volume: String,
    /// Where it is to appear.
    pub path: MountPath,
    /// What may be done with it.
    pub access: Access,
    /// Which part of it.
    pub subpath: SubPath,
    /// Its place, where a memory image knows it by that already.
    pub(crate) slot: Option<u8>,
}

impl AttachVolume {
    /// All of a volume, to write.
    pub fn new(volume: impl Into<String>, path: MountPath) -> Self {
        Self { volume: volume.into(), path, access: Access::Write, subpath: SubPath::default(), slot: None }
    }

    /// The same as another sandbox has.
    pub(crate) fn like(attachment: &Attachment) -> Self {
        let Attachment { volume, path, access, subpath, slot } = attachment.clone();
        Self { volume: volume.to_string(), path, access, subpath, slot: Some(slot) }
    }
}

/// What becomes of the volumes of a sandbox in those that are made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FollowingVolumes {
    /// They are attached as to the source. The default: where one takes a single writer and the source writes to it, the
    /// others are refused.
    #[default]
    Same,
    /// They are attached to be read.
    ReadOnly,
    /// None is attached.
    None,
}

/// A change of what is attached to a sandbox.
#[derive(Clone, Debug)]
pub(crate) enum AttachmentChange {
    Attach(Attachment),
    Detach(MountPath),
}

impl Service {
    /// Attaches a volume to a sandbox: at once where it runs, else from its next run on.
    ///
    /// # Errors
    /// `Volume` when there is no such volume, or another sandbox writes to it that only takes one; `Spec` for a place that
    /// is taken. Nothing has changed then.
    pub async fn attach(&self, id: &SandboxId, asked: AttachVolume) -> Result<SandboxView, ServiceError> {
        let volume = self.volume_record(&asked.volume).await?.id;
        let AttachVolume { path, access, subpath, .. } = asked;
        let attachment = Attachment { volume, path, access, subpath, slot: 0 };
        self.change_attachments(id, AttachmentChange::Attach(attachment)).await
    }

    /// Detaches the volume at `path` from a sandbox.
    ///
    /// # Errors
    /// `Volume` when there is none; `Agent` as long as a program in the sandbox works on it.
    pub async fn detach(&self, id: &SandboxId, path: MountPath) -> Result<SandboxView, ServiceError> {
        self.change_attachments(id, AttachmentChange::Detach(path)).await
    }

    async fn change_attachments(&self, id: &SandboxId, change: AttachmentChange) -> Result<SandboxView, ServiceError> {
        self.record(id).await?;
        self.shared.refuse_paused(id)?;
        self.ask(id, |reply| Message::Attachments { change, by: By::User, reply }).await
    }

    /// The attachments that are asked for, each with a place of its own.
    pub(super) async fn attachments(&self, asked: Vec<AttachVolume>) -> Result<Vec<Attachment>, ServiceError> {
        let mut made: Vec<Attachment> = Vec::new();
        let (fixed, free): (Vec<_>, Vec<_>) = asked.into_iter().partition(|one| one.slot.is_some());
        for AttachVolume { volume, path, access, subpath, slot } in fixed.into_iter().chain(free) {
            let volume = self.volume_record(&volume).await?.id;
            let slot = slot.or_else(|| free_slot(&made));
            let slot = slot.ok_or_else(|| SpecError::from(AttachmentError::TooMany(made.len() + 1)))?;
            made.push(Attachment { volume, path, access, subpath, slot });
        }
        Ok(made)
    }
}

/// What follows to a sandbox that is made of another.
pub(super) fn following(attachments: &[Attachment], how: FollowingVolumes) -> Vec<AttachVolume> {
    match how {
        FollowingVolumes::None => Vec::new(),
        FollowingVolumes::Same => attachments.iter().map(AttachVolume::like).collect(),
        FollowingVolumes::ReadOnly => attachments
            .iter()
            .map(|attachment| AttachVolume { access: Access::Read, ..AttachVolume::like(attachment) })
            .collect(),
    }
}
