//! Merges layers: a filesystem snapshot that is based on many layers becomes one that is based on
//! its image only.
//!
//! The merged layer is a new saved state, which is read back and compared before it replaces the
//! old one, and only if nothing is based on the old one: running sandboxes keep the layers they
//! started with.

use dorm_lifecycle::{Initiator, SavedStateId, SnapshotId, SnapshotKind};
use dorm_storage::SavedState;
use dorm_store::{
    Change, Code, FailureRecord, OperationKind, OperationRecord, OperationResult, SnapshotRecord, SnapshotStatus,
};

use crate::error::{ServiceError, chain};
use crate::shared::Service;

/// More layers than this are merged in the background.
const MANY: usize = 8;
/// With more layers than this, the request waits until they are merged: a host can mount only so
/// many.
const MOST: usize = 16;

impl Service {
    /// Makes sure that a sandbox that starts from `snapshot` has few layers.
    pub(crate) async fn keep_flat(&self, snapshot: &SnapshotRecord) {
        let depth = self.depth(snapshot).await;
        if depth <= MANY {
            return;
        }
        let (service, id) = (self.clone(), snapshot.id.clone());
        let work = self.shared.spawn(async move {
            if let Err(error) = service.merge(&id).await {
                tracing::warn!(snapshot = %id, error = %chain(&error), "cannot merge the layers of a snapshot");
            }
        });
        if depth > MOST {
            let _ = work.await;
        }
    }

    /// Does the same for every snapshot.
    pub(crate) async fn keep_all_flat(&self) {
        let Ok(snapshots) = self.shared.store.snapshots(None).await else { return };
        for snapshot in snapshots {
            if self.shared.stopping.is_cancelled() {
                return;
            }
            if self.depth(&snapshot).await > MANY
                && let Err(error) = self.of_project(&snapshot.project).merge(&snapshot.id).await
            {
                tracing::warn!(snapshot = %snapshot.id, error = %chain(&error), "cannot merge the layers of a snapshot");
            }
        }
    }

    async fn depth(&self, snapshot: &SnapshotRecord) -> usize {
        match (snapshot.kind, &snapshot.status, &snapshot.layer) {
            (SnapshotKind::Filesystem, SnapshotStatus::Completed, Some(_)) => {
                self.shared.storage.depth(&snapshot.saved_state).await.unwrap_or(0)
            }
            (_, _, _) => 0,
        }
    }

    async fn merge(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        let shared = &self.shared;
        // One at a time: this is disk work, and not urgent.
        let _turn = shared.merging.lock().await;
        let snapshot = self.snapshot_record(id).await?;
        if self.depth(&snapshot).await <= MANY || !self.holders(&snapshot).await?.is_empty() {
            return Ok(());
        }
        let to = shared.ids().saved_state();
        let limits = &shared.settings.limits;
        let limit = limits.snapshot + limits.time_for(snapshot.bytes);
        let mut operation = OperationRecord {
            saved_state: Some(to.clone()),
            ..shared.operation(&snapshot.project, OperationKind::MergeLayers, Initiator::Host.into(), limit)
        };
        shared.commit(Change { operations: vec![operation.clone()], ..Change::default() }).await?;
        let merged = match shared.storage.flatten(&snapshot.saved_state, &to).await {
            Ok(flat) => self.replace(id, &flat, &operation).await,
            Err(error) => Err(error.into()),
        };
        let why = match &merged {
            Ok(true) => return Ok(()),
            Ok(false) => FailureRecord::new(Code::Conflict, "it came into use meanwhile"),
            // It may be recorded; the next start finds out.
            Err(error) if error.is_unknown() => return merged.map(drop),
            Err(error) => error.record(),
        };
        operation.ended = Some((shared.now(), OperationResult::Failed(why)));
        shared.commit(Change { operations: vec![operation], discard: vec![to], ..Change::default() }).await?;
        merged.map(drop)
    }

    /// Replaces the content of the snapshot by `flat`, unless something is based on it by now.
    async fn replace(
        &self,
        id: &SnapshotId,
        flat: &SavedState,
        operation: &OperationRecord,
    ) -> Result<bool, ServiceError> {
        let shared = &self.shared;
        let turn = shared.deletions.lock().await;
        let alone = shared.holding.write().await;
        let mut snapshot = self.snapshot_record(id).await?;
        if snapshot.status != SnapshotStatus::Completed || !self.holders(&snapshot).await?.is_empty() {
            return Ok(false);
        }
        let old: SavedStateId = std::mem::replace(&mut snapshot.saved_state, flat.id.clone());
        snapshot.layer = None;
        snapshot.bytes = flat.bytes();
        let mut operation = operation.clone();
        operation.ended = Some((shared.now(), OperationResult::Done));
        let discard = vec![old];
        let change = Change { snapshots: vec![snapshot], operations: vec![operation], discard, ..Change::default() };
        shared.commit(change).await?;
        drop((alone, turn));
        // The layers below may be unused now.
        shared.removals.poke();
        Ok(true)
    }
}
