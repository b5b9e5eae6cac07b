//! Snapshots: taking, listing and deleting them, and cloning through one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::{Initiator, Name, Origin, Sandbox, SandboxId, SnapshotId, SnapshotKind, State, Timestamp};
use dorm_storage::Sizes;
use dorm_store::{
    Change, Made, OperationKind, OperationRecord, OperationResult, Removal, SnapshotFilter, SnapshotRecord,
    SnapshotStatus,
};
use tokio::sync::oneshot;

use super::attach::{FollowingVolumes, following};
use super::create::CreateSpec;
use crate::error::ServiceError;
use crate::messages::{Message, SnapshotSpec};
use crate::secrets::SecretSpecs;
use crate::shared::{Service, Shared, Using};
use crate::view::SandboxView;

/// The delay before a failed deletion is retried.
const AGAIN: Duration = Duration::from_secs(60);

/// The requested properties of a new snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckpointSpec {
    /// Its kind: the files alone, or the memory too.
    pub kind: SnapshotKind,
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

/// A page of snapshots, in the order of their creation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotPage {
    /// The snapshots.
    pub snapshots: Vec<SnapshotRecord>,
    /// [`SnapshotFilter::after`] for the next page; `None` on the last one.
    pub next: Option<(Timestamp, SnapshotId)>,
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

    /// Like [`Service::checkpoint`], with labels and an expiry.
    ///
    /// # Errors
    ///
    /// Those of [`Service::checkpoint`].
    pub async fn checkpoint_as(
        &self,
        id: &SandboxId,
        settings: CheckpointSpec,
    ) -> Result<SnapshotRecord, ServiceError> {
        if let Some(Made::Snapshot(earlier)) = self.earlier() {
            return self.taken_earlier(earlier).await;
        }
        self.shared.admit_write("take a snapshot", 0).await?;
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
        self.shared.admit_write("take a snapshot", 0).await?;
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
        let CheckpointSpec { kind, labels, expires } = settings;
        let removal = expires.map_or(Removal::Asked, |after| Removal::At(self.shared.now().after(after)));
        let request = self.request.clone();
        SnapshotSpec { labels, request, ..SnapshotSpec::new(self.shared.ids().snapshot(), kind, removal) }
    }

    pub(super) async fn snapshot_as(
        &self,
        id: &SandboxId,
        asked: SnapshotSpec,
    ) -> Result<SnapshotRecord, ServiceError> {
        let (snapshot, removal) = (asked.id.clone(), asked.removal);
        let taken = self.ask(id, |reply| Message::Snapshot { asked, reply }).await;
        match (&taken, removal) {
            (Ok(record), _) => {
                self.shared.removals.note(record);
                self.keep_flat(record).await;
            }
            // A failed snapshot may have a record.
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

    /// Takes a memory snapshot of `id`, and creates a sandbox that continues from it with the
    /// source's settings and variables.
    ///
    /// # Errors
    ///
    /// Those of [`Service::checkpoint`] and [`Service::create`]. A snapshot that was taken is kept.
    pub async fn clone_sandbox(&self, id: &SandboxId, name: Option<Name>) -> Result<Checkpointed, ServiceError> {
        self.clone_with(id, name, &SecretSpecs::new(), FollowingVolumes::Same).await
    }

    /// Like [`Service::clone_sandbox`], with the named secrets and no others, and with the volumes
    /// as `volumes` says.
    ///
    /// # Errors
    ///
    /// Those of [`Service::clone_sandbox`]; `NoSecret`, or `Volume` for a second writer, before
    /// anything is done.
    pub async fn clone_with(
        &self,
        id: &SandboxId,
        name: Option<Name>,
        secrets: &SecretSpecs,
        volumes: FollowingVolumes,
    ) -> Result<Checkpointed, ServiceError> {
        if let Some(Made::Sandbox(earlier)) = self.earlier() {
            return self.cloned_earlier(earlier).await;
        }
        let source = self.record(id).await?.sandbox.spec;
        let secrets = self.shared.following_secrets(&source, secrets).map_err(|why| why.of(id))?;
        if let Some(name) = &name
            && let Some(holder) = self.shared.store.named(self.project(), name).await?
        {
            let holder = holder.sandbox.id;
            return Err(dorm_store::StoreError::NameTaken { name: name.clone(), holder }.into());
        }
        let attachments = following(&source.attachments, volumes);
        self.shared.could_lease(&self.attachments(attachments.clone()).await?).await?;
        let snapshot = self.checkpoint(id, SnapshotKind::Memory).await?;
        let asked = CreateSpec { name, secrets, attachments, ..CreateSpec::like(&source, snapshot.id.clone()) };
        let clone = self.create(asked).await?;
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

    /// Returns every snapshot, in the order of creation.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn snapshots(&self) -> Result<Vec<SnapshotRecord>, ServiceError> {
        let snapshots = self.shared.store.snapshots(Some(self.project())).await?;
        Ok(snapshots.into_iter().map(|snapshot| self.shared.shown_snapshot(snapshot)).collect())
    }

    /// Returns the snapshots of this project that match a filter, in the order of creation, and the
    /// cursor of the next page.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn snapshot_page(&self, filter: &SnapshotFilter) -> Result<SnapshotPage, ServiceError> {
        let project = Some(self.project().clone());
        let wanted = SnapshotFilter { project, limit: filter.limit.saturating_add(1), ..filter.clone() };
        let mut snapshots = self.shared.store.find_snapshots(&wanted).await?;
        let more = snapshots.len() > filter.limit;
        snapshots.truncate(filter.limit);
        let next = snapshots.last().filter(|_| more).map(|last| (last.created, last.id.clone()));
        let shown = snapshots.into_iter().map(|snapshot| self.shared.shown_snapshot(snapshot));
        Ok(SnapshotPage { snapshots: shown.collect(), next })
    }

    /// Returns one snapshot.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`.
    pub async fn snapshot(&self, id: &SnapshotId) -> Result<SnapshotRecord, ServiceError> {
        Ok(self.shared.shown_snapshot(self.snapshot_record(id).await?))
    }

    /// Returns one snapshot as recorded.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`.
    pub(crate) async fn snapshot_record(&self, id: &SnapshotId) -> Result<SnapshotRecord, ServiceError> {
        let snapshot = self.shared.store.snapshot(id).await?;
        let own = snapshot.filter(|snapshot| snapshot.project == *self.project());
        own.ok_or_else(|| ServiceError::NoSnapshot(id.clone()))
    }

    /// Returns one completed snapshot.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`, `SnapshotNotReady`.
    pub(super) async fn complete(&self, id: &SnapshotId) -> Result<SnapshotRecord, ServiceError> {
        let snapshot = self.snapshot_record(id).await?;
        let status = match &snapshot.status {
            SnapshotStatus::Completed => return Ok(snapshot),
            SnapshotStatus::InProgress | SnapshotStatus::Deleting => snapshot.status.as_str().to_owned(),
            SnapshotStatus::Failed(failure) => format!("failed ({})", failure.reason),
        };
        Err(ServiceError::SnapshotNotReady { snapshot: id.clone(), status })
    }

    /// Returns a completed snapshot, which is not deleted while the guard is held.
    pub(super) async fn use_snapshot(&self, id: &SnapshotId) -> Result<(Using, SnapshotRecord), ServiceError> {
        // A deletion either comes first, and the snapshot cannot be used, or comes later and finds
        // it in use.
        let _turn = self.shared.deletions.lock().await;
        let snapshot = self.complete(id).await?;
        Ok((Using::of(&self.shared, id), snapshot))
    }

    /// Rejects a snapshot that is deleted as soon as nothing uses it.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`, `SnapshotNotReady`.
    pub(super) async fn is_to_stay(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        if self.snapshot_record(id).await?.removal != Removal::WhenFree {
            return Ok(());
        }
        let status = "to be deleted as soon as nothing uses it".to_owned();
        Err(ServiceError::SnapshotNotReady { snapshot: id.clone(), status })
    }

    /// Returns the size of a completed snapshot on the disk; `None` if it is not completed, or if
    /// its files cannot be read.
    pub async fn snapshot_sizes(&self, snapshot: &SnapshotRecord) -> Option<Sizes> {
        match snapshot.status {
            SnapshotStatus::Completed => self.shared.storage.sizes(&snapshot.saved_state).await.ok(),
            SnapshotStatus::InProgress | SnapshotStatus::Failed(_) | SnapshotStatus::Deleting => None,
        }
    }

    /// Deletes a snapshot. Sandboxes that were made from it are not affected.
    ///
    /// # Errors
    ///
    /// `SnapshotNotReady` while it is being taken, or while a sandbox is starting from it. A
    /// failure after the deletion was recorded is retried later.
    pub async fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        let (service, id) = (self.clone(), id.clone());
        // The caller may go away at any time; a recorded operation is finished.
        let work = async move { service.delete_now(&id).await };
        self.shared.spawn(work).await.unwrap_or(Err(ServiceError::Stopping))
    }

    /// Deletes a snapshot as soon as nothing uses it. Nothing can be created from it any more.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`.
    pub async fn delete_snapshot_when_free(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        let (service, id) = (self.clone(), id.clone());
        let work = async move {
            let _turn = service.shared.deletions.lock().await;
            let mut snapshot = service.snapshot_record(&id).await?;
            if snapshot.status == SnapshotStatus::InProgress {
                // The operation that makes it writes its record.
                return Err(ServiceError::SnapshotNotReady { snapshot: id, status: "in_progress".to_owned() });
            }
            snapshot.removal = Removal::WhenFree;
            service.shared.commit(Change { snapshots: vec![snapshot], ..Change::default() }).await?;
            service.shared.removals.expect(&id, None);
            Ok(())
        };
        self.shared.spawn(work).await.unwrap_or(Err(ServiceError::Stopping))
    }

    pub(crate) async fn delete_now(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        // If two callers delete one snapshot, the second must not re-create its record.
        let _turn = self.shared.deletions.lock().await;
        let mut snapshot = self.snapshot_record(id).await?;
        let not_ready = |status: String| ServiceError::SnapshotNotReady { snapshot: id.clone(), status };
        match &snapshot.status {
            SnapshotStatus::InProgress => return Err(not_ready(snapshot.status.as_str().to_owned())),
            SnapshotStatus::Deleting => return self.delete_again(&snapshot).await,
            SnapshotStatus::Completed | SnapshotStatus::Failed(_) => {}
        }
        // A request that is about to use it has said so already, or finds that it is being deleted.
        let alone = self.shared.holding.write().await;
        let held_by = self.holders(&snapshot).await?;
        if !held_by.is_empty() {
            return Err(ServiceError::SnapshotInUse { snapshot: id.clone(), held_by });
        }
        let now = self.shared.now();
        let operation = OperationRecord {
            saved_state: Some(snapshot.saved_state.clone()),
            ..self.shared.operation(
                OperationKind::DeleteSnapshot,
                Initiator::User,
                self.shared.settings.limits.terminate,
            )
        };
        snapshot.status = SnapshotStatus::Deleting;
        let began = Change { snapshots: vec![snapshot], operations: vec![operation.clone()], ..Change::default() };
        self.shared.commit(began).await?;
        drop(alone);
        let finished = finish_deletion(&self.shared, operation, vec![id.clone()]).await;
        finished.inspect_err(|_| self.shared.removals.expect(id, Some(now.after(AGAIN))))
    }

    /// Returns what needs a snapshot: operations that use it, sandboxes that are starting from it
    /// and, for a filesystem snapshot, sandboxes and snapshots that are based on its files.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn holders(&self, snapshot: &SnapshotRecord) -> Result<Vec<String>, ServiceError> {
        let mut holders = Vec::new();
        if self.shared.removals.is_used(&snapshot.id) {
            holders.push("a fork, rewind, promotion or comparison in progress".to_owned());
        }
        let needs = |sandbox: &Sandbox| {
            let is_starting = matches!(sandbox.state, State::Pending { .. });
            if is_starting && sandbox.origin.snapshot() == Some(&snapshot.id) {
                return Some(format!("sandbox {}, which is starting from it", sandbox.id));
            }
            let stands_on_it = sandbox.layers().any(|layer| *layer == snapshot.saved_state);
            stands_on_it.then(|| format!("sandbox {}", sandbox.id))
        };
        holders.extend(self.shared.of_living(needs).await?);
        let above = SnapshotFilter { layer: Some(snapshot.saved_state.clone()), ..SnapshotFilter::default() };
        for other in self.shared.store.find_snapshots(&above).await? {
            if !matches!(other.status, SnapshotStatus::Failed(_)) {
                holders.push(format!("snapshot {}", other.id));
            }
        }
        holders.extend(self.shared.unreadable().await?.holders_of(snapshot));
        Ok(holders)
    }

    /// Retries a deletion that failed earlier.
    async fn delete_again(&self, snapshot: &SnapshotRecord) -> Result<(), ServiceError> {
        let open = self.shared.store.open_operations().await?.into_iter();
        let mut deletions = open.filter(|operation| {
            operation.kind == OperationKind::DeleteSnapshot
                && operation.saved_state.as_ref() == Some(&snapshot.saved_state)
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
    if let Some(saved_state) = &operation.saved_state {
        shared.storage.remove(saved_state).await?;
    }
    operation.ended = Some((shared.now(), OperationResult::Done));
    let change = Change { operations: vec![operation], forgotten: snapshots, ..Change::default() };
    shared.commit(change).await?;
    // It may have been the last that was based on another snapshot, or on its image.
    shared.removals.poke();
    shared.references.poke();
    Ok(())
}
