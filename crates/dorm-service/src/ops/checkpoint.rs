//! Taking snapshots, and cloning through one.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_lifecycle::{Initiator, Name, Origin, SandboxId, SnapshotKind, SnapshotName};
use dorm_store::{Made, Removal, SnapshotRecord};
use tokio::sync::oneshot;

use super::attach::{FollowingVolumes, following};
use super::fork::ForkChildSpec;
use crate::error::ServiceError;
use crate::messages::{Message, SnapshotSpec};
use crate::shared::Service;
use crate::view::SandboxView;

/// The requested properties of a new snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckpointSpec {
    /// Its kind: the files alone, or the memory too.
    pub kind: SnapshotKind,
    /// The name under which it serves as an image. Default: none.
    pub name: Option<SnapshotName>,
    /// Labels: arbitrary text of the user, by key.
    pub labels: BTreeMap<String, String>,
    /// How long it is kept before it is deleted automatically; by default until it is deleted
    /// explicitly.
    pub expires: Option<Duration>,
}

/// A clone, and the snapshot it was made from, which is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpointed {
    /// The snapshot.
    pub snapshot: SnapshotRecord,
    /// The new sandbox.
    pub clone: SandboxView,
}

impl Service {
    /// Takes a snapshot of a running or suspended sandbox. A running sandbox continues in the same
    /// run; a suspended one does not wake. When this returns, the snapshot is on disk and verified.
    ///
    /// # Errors
    ///
    /// `Denied` for a terminated sandbox; `OperationFailed` if the snapshot could not be taken: the
    /// source continues, and the snapshot's record contains the reason.
    pub async fn checkpoint(&self, id: &SandboxId, kind: SnapshotKind) -> Result<SnapshotRecord, ServiceError> {
        self.checkpoint_as(id, CheckpointSpec { kind, ..CheckpointSpec::default() }).await
    }

    /// Like [`Service::checkpoint`], with a name, labels and an expiry.
    ///
    /// # Errors
    ///
    /// Those of [`Service::checkpoint`]; `Store` with `SnapshotNameTaken`, and `NotASnapshotName`,
    /// before anything is done.
    pub async fn checkpoint_as(
        &self,
        id: &SandboxId,
        settings: CheckpointSpec,
    ) -> Result<SnapshotRecord, ServiceError> {
        if let Some(Made::Snapshot(earlier)) = self.earlier() {
            return self.taken_earlier(earlier).await;
        }
        self.may_be_named(settings.name.as_ref()).await?;
        self.admit_snapshot().await?;
        let taken = self.snapshot_as(id, self.asked(settings)).await?;
        Ok(self.shared.shown_snapshot(taken))
    }

    /// Like [`Service::checkpoint_as`], but returns as soon as the record says that the snapshot is
    /// being taken: [`Service::snapshot`] returns its result.
    ///
    /// # Errors
    ///
    /// Those of [`Service::checkpoint`] that occur before that.
    pub async fn begin_checkpoint(
        &self,
        id: &SandboxId,
        settings: CheckpointSpec,
    ) -> Result<SnapshotRecord, ServiceError> {
        if let Some(Made::Snapshot(earlier)) = self.earlier() {
            return self.begun_earlier(earlier).await;
        }
        self.may_be_named(settings.name.as_ref()).await?;
        self.admit_snapshot().await?;
        let (tell, begun) = oneshot::channel();
        let asked = SnapshotSpec { begun: Some(tell), ..self.asked(settings) };
        let (service, id) = (self.clone(), id.clone());
        let work = self.shared.spawn(async move { service.snapshot_as(&id, asked).await });
        match begun.await {
            Ok(record) => Ok(self.shared.shown_snapshot(record)),
            // It was refused, and there is nothing more to wait for.
            Err(_) => work.await.unwrap_or(Err(ServiceError::Stopping)),
        }
    }

    pub(super) fn asked(&self, settings: CheckpointSpec) -> SnapshotSpec {
        let CheckpointSpec { kind, name, labels, expires } = settings;
        let removal = expires.map_or(Removal::Asked, |after| Removal::At(self.shared.now().after(after)));
        let request = self.request.clone();
        let by = self.asked_by(Initiator::User);
        SnapshotSpec { name, labels, request, ..SnapshotSpec::new(self.shared.ids().snapshot(), kind, removal, by) }
    }

    /// Checks that the disk and the budget of the project have room for a snapshot.
    pub(crate) async fn admit_snapshot(&self) -> Result<(), ServiceError> {
        self.shared.admit_write("take a snapshot", 0).await?;
        self.shared.admit_to_disk_of("take a snapshot", self.project(), 0).await
    }

    /// Takes a snapshot. If the caller goes away, the snapshot is still taken, and deleted at its
    /// time.
    pub(crate) async fn snapshot_as(
        &self,
        id: &SandboxId,
        asked: SnapshotSpec,
    ) -> Result<SnapshotRecord, ServiceError> {
        // A retry gets its turn when the snapshot is recorded, if its caller goes away.
        let service = Self { request: None, ..self.clone() };
        let id = id.clone();
        self.shared.finish(async move { service.take_snapshot(&id, asked).await }).await
    }

    async fn take_snapshot(&self, id: &SandboxId, asked: SnapshotSpec) -> Result<SnapshotRecord, ServiceError> {
        let (snapshot, kind, removal) = (asked.id.clone(), asked.kind, asked.removal);
        let taken = self.ask(id, |reply| Message::Snapshot { asked, reply }).await;
        match (&taken, removal) {
            (Ok(record), _) => {
                self.shared.removals.note(record);
                self.keep_flat(record).await;
            }
            // A failed snapshot may have a record.
            (Err(_), Removal::WhenFree) => self.shared.removals.expect(&snapshot, None),
            (Err(_), Removal::At(at)) => self.shared.removals.expect(&snapshot, Some(at)),
            (Err(_), Removal::Asked) => {}
        }
        match taken {
            Err(ServiceError::NoSandbox(_)) => {
                let command = dorm_lifecycle::Command::Snapshot(snapshot, kind);
                let view = self.command_to_the_dead(id, &command).await?;
                Err(ServiceError::NotRunning { sandbox: id.clone(), state: view.sandbox.state.name() })
            }
            other => other,
        }
    }

    /// Takes a memory snapshot of `id`, and creates a sandbox that continues from it with the
    /// source's settings and variables.
    ///
    /// # Errors
    ///
    /// Those of [`Service::checkpoint`] and [`Service::create`]. A snapshot that was taken is kept.
    pub async fn clone_sandbox(&self, id: &SandboxId, name: Option<Name>) -> Result<Checkpointed, ServiceError> {
        self.clone_with(id, ForkChildSpec { name, ..ForkChildSpec::default() }, FollowingVolumes::Same).await
    }

    /// Like [`Service::clone_sandbox`], with what `asked` changes, and with the volumes as
    /// `volumes` says.
    ///
    /// # Errors
    ///
    /// Those of [`Service::clone_sandbox`]; `NoSecret`, or `Volume` for a second writer, before
    /// anything is done.
    pub async fn clone_with(
        &self,
        id: &SandboxId,
        asked: ForkChildSpec,
        volumes: FollowingVolumes,
    ) -> Result<Checkpointed, ServiceError> {
        if let Some(Made::Sandbox(earlier)) = self.earlier() {
            return self.cloned_earlier(earlier).await;
        }
        let source = self.record(id).await?.sandbox.spec;
        self.shared.following_secrets(&source, &asked.secrets).map_err(|why| why.of(id))?;
        if let Some(name) = &asked.name
            && let Some(holder) = self.shared.store.named(self.project(), name).await?
        {
            let holder = holder.sandbox.id;
            return Err(dorm_store::StoreError::NameTaken { name: name.clone(), holder }.into());
        }
        let attachments = following(&source.attachments, volumes);
        self.shared.could_lease(&self.attachments(attachments).await?).await?;
        let snapshot = self.checkpoint(id, SnapshotKind::Memory).await?;
        let clone = self.create(self.child_of(&source, &snapshot.id, asked, volumes)).await?;
        Ok(Checkpointed { snapshot, clone })
    }

    /// Returns the result of a clone that an earlier request made.
    async fn cloned_earlier(&self, earlier: &SandboxId) -> Result<Checkpointed, ServiceError> {
        let clone = self.created_earlier(earlier).await?;
        let Origin::Snapshot { snapshot, .. } = &clone.sandbox.origin else {
            return Err(ServiceError::made_is_gone("sandbox", earlier));
        };
        Ok(Checkpointed { snapshot: self.begun_earlier(snapshot).await?, clone })
    }
}
