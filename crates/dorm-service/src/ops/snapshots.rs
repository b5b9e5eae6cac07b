//! Snapshots that exist: listing, using and deleting them.

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::{Initiator, SnapshotId, Timestamp};
use dorm_storage::Sizes;
use dorm_store::{
    Change, OperationKind, OperationRecord, OperationResult, Removal, SnapshotFilter, SnapshotRecord, SnapshotStatus,
};

use super::holders::Needing;
use crate::error::ServiceError;
use crate::messages::Message;
use crate::shared::{Service, Shared, Using};

/// The delay before a failed deletion is retried.
const AGAIN: Duration = Duration::from_secs(60);

/// A page of snapshots, in the order of their creation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotPage {
    /// The snapshots.
    pub snapshots: Vec<SnapshotRecord>,
    /// [`SnapshotFilter::after`] for the next page; `None` on the last one.
    pub next: Option<(Timestamp, SnapshotId)>,
}

/// The result of an attempt to delete a snapshot that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// It does not exist any more.
    Gone,
    /// Something needs it.
    Held,
}

impl Service {
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

    /// Returns one completed snapshot. Waits for one of the state that a rewind has left.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`, `SnapshotNotReady`.
    pub(super) async fn complete(&self, id: &SnapshotId) -> Result<SnapshotRecord, ServiceError> {
        self.wait_for_held(id).await?;
        self.complete_now(id).await
    }

    /// Returns one completed snapshot.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`, `SnapshotNotReady`.
    pub(super) async fn complete_now(&self, id: &SnapshotId) -> Result<SnapshotRecord, ServiceError> {
        let snapshot = self.snapshot_record(id).await?;
        let status = match &snapshot.status {
            SnapshotStatus::Completed => return Ok(snapshot),
            SnapshotStatus::InProgress | SnapshotStatus::Deleting => snapshot.status.as_str().to_owned(),
            SnapshotStatus::Failed(failure) => format!("failed ({})", failure.reason),
        };
        Err(ServiceError::SnapshotNotReady { snapshot: id.clone(), status })
    }

    /// Waits until a snapshot of the state that a rewind has left is complete: its caller knows it
    /// since the rewind. If it cannot be made now, this does not wait any longer.
    pub(super) async fn wait_for_held(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        let snapshot = self.snapshot_record(id).await?;
        if snapshot.status != SnapshotStatus::InProgress || !snapshot.labels.contains_key("rewound") {
            return Ok(());
        }
        match self.ask(&snapshot.source, |reply| Message::HeldSettled { reply }).await {
            // It has ended, and nothing of it is being saved.
            Err(ServiceError::NoSandbox(_)) => Ok(()),
            other => other,
        }
    }

    /// Returns a completed snapshot, which is not deleted while the guard is held.
    pub(crate) async fn use_snapshot(&self, id: &SnapshotId) -> Result<(Using, SnapshotRecord), ServiceError> {
        self.wait_for_held(id).await?;
        // A deletion either comes first, and the snapshot cannot be used, or comes later and finds
        // it in use.
        let _turn = self.shared.deletions.lock().await;
        let snapshot = self.complete_now(id).await?;
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
        let work = async move { service.delete_now(&id, Initiator::User).await };
        self.shared.finish(work).await
    }

    /// Deletes a snapshot as soon as nothing uses it. Nothing can be created from it any more.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`.
    pub async fn delete_snapshot_when_free(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        let (service, id) = (self.clone(), id.clone());
        let work = async move {
            service.wait_for_held(&id).await?;
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
        self.shared.finish(work).await
    }

    async fn delete_now(&self, id: &SnapshotId, by: Initiator) -> Result<(), ServiceError> {
        self.wait_for_held(id).await?;
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
                &snapshot.project,
                OperationKind::DeleteSnapshot,
                self.asked_by(by),
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

    /// Deletes a snapshot of any project, unless something needs it. The first look takes no lock:
    /// most of those that are due stay in use for long. One that seems free is looked at again
    /// under the locks.
    pub(crate) async fn delete_due(&self, id: &SnapshotId, needing: &Needing) -> Result<Due, ServiceError> {
        let Some(snapshot) = self.shared.store.snapshot(id).await? else { return Ok(Due::Gone) };
        if snapshot.status == SnapshotStatus::Completed && self.seems_held(&snapshot, needing).await? {
            return Ok(Due::Held);
        }
        match self.of_project(&snapshot.project).delete_now(id, Initiator::Host).await {
            // Its user reports when it is done.
            Err(ServiceError::SnapshotNotReady { .. } | ServiceError::SnapshotInUse { .. }) => Ok(Due::Held),
            Ok(()) | Err(ServiceError::NoSnapshot(_)) => Ok(Due::Gone),
            Err(error) => Err(error),
        }
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
