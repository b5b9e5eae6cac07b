//! Memory snapshots: taking, listing, deleting, and cloning through one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::{Actor as By, Name, Origin, SandboxId, SnapshotId, State, StateName};
use dorm_store::{
    Change, OperationKind, OperationRecord, OperationResult, Removal, SandboxFilter, SnapshotRecord, SnapshotStatus,
};

use super::create::CreateSandbox;
use crate::actor::{Message, SnapshotAsked};
use crate::error::ServiceError;
use crate::secrets::{self, SecretsAsked};
use crate::shared::{Service, Shared};
use crate::view::SandboxView;

/// How long after a deletion that failed it is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// What else is wanted of a new snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SnapshotSettings {
    /// Free text, by key.
    pub labels: BTreeMap<String, String>,
    /// After which time it goes by itself; by default never.
    pub expires: Option<Duration>,
}

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
        self.checkpoint_as(id, SnapshotSettings::default()).await
    }

    /// [`Service::checkpoint`], with labels and a time at which the snapshot goes.
    ///
    /// # Errors
    /// Those of [`Service::checkpoint`].
    pub async fn checkpoint_as(
        &self,
        id: &SandboxId,
        settings: SnapshotSettings,
    ) -> Result<SnapshotRecord, ServiceError> {
        self.shared.admit_write("take a snapshot", 0).await?;
        let removal = settings.expires.map_or(Removal::Asked, |after| Removal::At(self.shared.now().after(after)));
        let asked = SnapshotAsked { id: self.shared.ids().snapshot(), labels: settings.labels, removal };
        self.snapshot_as(id, asked).await
    }

    pub(super) async fn snapshot_as(
        &self,
        id: &SandboxId,
        asked: SnapshotAsked,
    ) -> Result<SnapshotRecord, ServiceError> {
        let (snapshot, removal) = (asked.id.clone(), asked.removal);
        let taken = self.ask(id, |reply| Message::Snapshot { asked, reply }).await;
        match (&taken, removal) {
            (Ok(record), _) => self.shared.removals.note(record),
            // Of one that failed there may be a record.
            (Err(_), Removal::WhenFree) => self.shared.removals.expect(&snapshot, None),
            (Err(_), Removal::Asked | Removal::At(_)) => {}
        }
        match taken {
            Err(ServiceError::NoSandbox(_)) => {
                let command = dorm_lifecycle::Command::Snapshot(snapshot);
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
        self.clone_with(id, name, &SecretsAsked::new()).await
    }

    /// [`Service::clone_sandbox`], with the secrets that are named; no other one follows.
    ///
    /// # Errors
    /// Those of [`Service::clone_sandbox`]; `NoSecret` before anything is done.
    pub async fn clone_with(
        &self,
        id: &SandboxId,
        name: Option<Name>,
        secrets: &SecretsAsked,
    ) -> Result<Checkpointed, ServiceError> {
        let source = self.record(id).await?.sandbox.spec;
        let no_secret = |name| ServiceError::NoSecret { sandbox: id.clone(), name };
        let secrets = secrets::following(&source, secrets).map_err(no_secret)?;
        if let Some(name) = &name
            && let Some(holder) = self.shared.store.named(self.project(), name).await?
        {
            let holder = holder.sandbox.id;
            return Err(dorm_store::StoreError::NameTaken { name: name.clone(), holder }.into());
        }
        let snapshot = self.checkpoint(id).await?;
        let asked = CreateSandbox { name, secrets, ..CreateSandbox::like(&source, snapshot.id.clone()) };
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
    /// What goes wrong after it was recorded that the snapshot goes is tried again later.
    pub async fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        let (service, id) = (self.clone(), id.clone());
        // Whoever asked may go away at any moment; what is recorded is done to its end.
        let work = async move { service.delete_now(&id).await };
        self.shared.tasks.spawn(work).await.unwrap_or(Err(ServiceError::Stopping))
    }

    /// Has a snapshot deleted as soon as nobody uses it. Nothing can be created from it any more.
    ///
    /// # Errors
    /// `NoSnapshot`.
    pub async fn delete_snapshot_when_free(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        let (service, id) = (self.clone(), id.clone());
        let work = async move {
            let _turn = service.shared.deletions.lock().await;
            let mut snapshot = service.snapshot(&id).await?;
            if snapshot.status == SnapshotStatus::InProgress {
                // Its maker writes its record.
                return Err(ServiceError::SnapshotNotReady { snapshot: id, status: "in_progress".to_owned() });
            }
            snapshot.removal = Removal::WhenFree;
            service.shared.commit(Change { snapshots: vec![snapshot], ..Change::default() }).await?;
            service.shared.removals.expect(&id, None);
            Ok(())
        };
        self.shared.tasks.spawn(work).await.unwrap_or(Err(ServiceError::Stopping))
    }

    pub(crate) async fn delete_now(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        // Of two who delete the same, the second must not write down again what the first has forgotten.
        let _turn = self.shared.deletions.lock().await;
        let mut snapshot = self.snapshot(id).await?;
        let not_ready = |status: String| ServiceError::SnapshotNotReady { snapshot: id.clone(), status };
        match &snapshot.status {
            SnapshotStatus::InProgress => return Err(not_ready(snapshot.status.as_str().to_owned())),
            SnapshotStatus::Deleting => return self.delete_again(&snapshot).await,
            SnapshotStatus::Completed | SnapshotStatus::Failed(_) => {}
        }
        if self.shared.removals.is_forking(id) {
            return Err(not_ready("in use by a fork that is being made".to_owned()));
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
            fork: None,
            ended: None,
        };
        snapshot.status = SnapshotStatus::Deleting;
        let began = Change { snapshots: vec![snapshot], operations: vec![operation.clone()], ..Change::default() };
        self.shared.commit(began).await?;
        let finished = finish_deletion(&self.shared, operation, vec![id.clone()]).await;
        finished.inspect_err(|_| self.shared.removals.expect(id, Some(now.after(AGAIN))))
    }

    /// Deletes a snapshot that could not be deleted when it was begun.
    async fn delete_again(&self, snapshot: &SnapshotRecord) -> Result<(), ServiceError> {
        let open = self.shared.store.open_operations().await?.into_iter();
        let mut deletions = open.filter(|operation| {
            operation.kind == OperationKind::DeleteSnapshot && operation.capture.as_ref() == Some(&snapshot.capture)
        });
        match deletions.next() {
            Some(operation) => finish_deletion(&self.shared, operation, vec![snapshot.id.clone()]).await,
            None => Err(ServiceError::NoSnapshot(snapshot.id.clone())),
        }
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
