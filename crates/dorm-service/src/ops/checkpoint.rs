//! Memory snapshots: taking, listing, deleting, and cloning through one.

use std::sync::Arc;

use dorm_lifecycle::{Actor as By, Name, Origin, SandboxId, SnapshotId, State, StateName};
use dorm_store::{
    Change, OperationKind, OperationRecord, OperationResult, SandboxFilter, SnapshotRecord, SnapshotStatus,
};

use super::create::{CreateFrom, CreateSandbox};
use crate::actor::Message;
use crate::error::ServiceError;
use crate::shared::{Service, Shared};
use crate::view::SandboxView;

/// A clone, and the snapshot it was made through, which stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpointed {
    /// The snapshot.
    pub snapshot: SnapshotRecord,
    /// The new sandbox.
    pub clone: SandboxView,
}

impl Service {
    /// Takes a memory snapshot of a running or suspended sandbox. A running one goes on in the same run; a suspended
    /// one does not wake. When this returns the snapshot is on disk, verified.
    ///
    /// # Errors
    /// `Denied` for one that is over; `OperationFailed` when it could not be taken: the source goes on, and the
    /// snapshot's record says why.
    pub async fn checkpoint(&self, id: &SandboxId) -> Result<SnapshotRecord, ServiceError> {
        self.shared.admit_write("take a snapshot", 0).await?;
        match self.ask(id, |reply| Message::Snapshot { reply }).await {
            Err(ServiceError::NoSandbox(_)) => {
                let command = dorm_lifecycle::Command::Snapshot(self.shared.ids().snapshot());
                let view = self.command_to_the_dead(id, &command).await?;
                Err(ServiceError::NotRunning { sandbox: id.clone(), state: view.sandbox.state.name() })
            }
            other => other,
        }
    }

    /// A memory snapshot of `id`, and a new sandbox that goes on from it with the source's settings and variables.
    ///
    /// # Errors
    /// Those of [`Service::checkpoint`] and [`Service::create`]. A snapshot that was taken stays.
    pub async fn clone_sandbox(&self, id: &SandboxId, name: Option<Name>) -> Result<Checkpointed, ServiceError> {
        let source = self.record(id).await?.sandbox.spec;
        if let Some(name) = &name
            && let Some(holder) = self.shared.store.named(self.project(), name).await?
        {
            let holder = holder.sandbox.id;
            return Err(dorm_store::StoreError::NameTaken { name: name.clone(), holder }.into());
        }
        let snapshot = self.checkpoint(id).await?;
        let asked = CreateSandbox {
            name,
            egress: source.egress,
            variables: source.variables.0,
            auto_resume: source.auto_resume,
            timeouts: source.timeouts,
            labels: source.labels,
            ..CreateSandbox::new(CreateFrom::Snapshot(snapshot.id.clone()))
        };
        let clone = self.create(asked).await?;
        Ok(Checkpointed { snapshot, clone })
    }

    /// Every snapshot, in the order they were made.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn snapshots(&self) -> Result<Vec<SnapshotRecord>, ServiceError> {
        Ok(self.shared.store.snapshots(Some(self.project())).await?)
    }

    /// One snapshot.
    ///
    /// # Errors
    /// `NoSnapshot`.
    pub async fn snapshot(&self, id: &SnapshotId) -> Result<SnapshotRecord, ServiceError> {
        self.shared.store.snapshot(id).await?.ok_or_else(|| ServiceError::NoSnapshot(id.clone()))
    }

    /// Deletes a snapshot. Sandboxes that were made from it live on.
    ///
    /// # Errors
    /// `SnapshotNotReady` while it is being made, or while a sandbox is starting from it.
    pub async fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        let mut snapshot = self.snapshot(id).await?;
        let not_ready = |status: String| ServiceError::SnapshotNotReady { snapshot: id.clone(), status };
        match &snapshot.status {
            SnapshotStatus::InProgress | SnapshotStatus::Deleting => {
                return Err(not_ready(snapshot.status.as_str().to_owned()));
            }
            SnapshotStatus::Completed | SnapshotStatus::Failed(_) => {}
        }
        let filter = SandboxFilter { states: vec![StateName::Pending], ..SandboxFilter::default() };
        for record in self.shared.store.sandboxes(&filter).await? {
            if let (State::Pending { .. }, Origin::Snapshot { snapshot, .. }) =
                (&record.sandbox.state, &record.sandbox.origin)
                && snapshot == id
            {
                return Err(not_ready(format!("in use by sandbox {}, which is starting from it", record.sandbox.id)));
            }
        }
        let now = self.shared.now();
        let operation = OperationRecord {
            id: self.shared.ids().operation(),
            kind: OperationKind::DeleteSnapshot,
            sandbox: None,
            actor: By::User,
            began: now,
            deadline: now.after(self.shared.settings.limits.terminate),
            capture: Some(snapshot.capture.clone()),
            ended: None,
        };
        snapshot.status = SnapshotStatus::Deleting;
        let began = Change { snapshots: vec![snapshot], operations: vec![operation.clone()], ..Change::default() };
        self.shared.commit(began).await?;
        finish_deletion(&self.shared, operation, vec![id.clone()]).await
    }
}

pub(crate) async fn finish_deletion(
    shared: &Arc<Shared>,
    mut operation: OperationRecord,
    snapshots: Vec<SnapshotId>,
) -> Result<(), ServiceError> {
    if let Some(capture) = &operation.capture {
        shared.pool.remove(capture).await?;
    }
    operation.ended = Some((shared.now(), OperationResult::Done));
    let change = Change { operations: vec![operation], forgotten: snapshots, ..Change::default() };
    shared.commit(change).await?;
    Ok(())
}
