//! Merging layers: a filesystem snapshot that lies on many others becomes one that lies on its image alone.
//!
//! The merged one is another capture, read back and compared before it takes the place of the old one, and only
//! where nobody stands on that: what runs keeps the layers it began with.

use dorm_lifecycle::{Actor as By, CaptureId, SnapshotId, SnapshotKind};
use dorm_pool::Capture;
use dorm_store::{
    Change, Code, FailureRecord, OperationKind, OperationRecord, OperationResult, SnapshotRecord, SnapshotStatus,
};

use crate::error::ServiceError;
use crate::shared::{Service, chain};

/// Layers beyond this many are merged in the background.
const MANY: usize = 8;
/// With more than this many a snapshot is not answered before they are merged: a host mounts only so many.
const MOST: usize = 16;

impl Service {
    /// Sees to it that what starts from `snapshot` has few layers to look through.
    pub(crate) async fn keep_flat(&self, snapshot: &SnapshotRecord) {
        let depth = self.depth(snapshot).await;
        if depth <= MANY {
            return;
        }
        let (service, id) = (self.clone(), snapshot.id.clone());
        let work = self.shared.spawn(async move {
            if let Err(error) = service.merge(&id).await {
                tracing::warn!(snapshot = %id, error = %chain(&error), "its layers stay as many as they are");
            }
        });
        if depth > MOST {
            let _ = work.await;
        }
    }

    /// Does so with every snapshot there is.
    pub(crate) async fn keep_all_flat(&self) {
        let Ok(snapshots) = self.shared.store.snapshots(None).await else { return };
        for snapshot in snapshots {
            if self.shared.stopping.is_cancelled() {
                return;
            }
            if self.depth(&snapshot).await > MANY
                && let Err(error) = self.merge(&snapshot.id).await
            {
                tracing::warn!(snapshot = %snapshot.id, error = %chain(&error), "its layers stay as many as they are");
            }
        }
    }

    async fn depth(&self, snapshot: &SnapshotRecord) -> usize {
        match (snapshot.kind, &snapshot.status, &snapshot.layer) {
            (SnapshotKind::Filesystem, SnapshotStatus::Completed, Some(_)) => {
                self.shared.pool.depth(&snapshot.capture).await.unwrap_or(0)
            }
            (_, _, _) => 0,
        }
    }

    async fn merge(&self, id: &SnapshotId) -> Result<(), ServiceError> {
        let shared = &self.shared;
        // One at a time: it is work for the disk, and nobody is in a hurry.
        let _turn = shared.merging.lock().await;
        let snapshot = self.snapshot_record(id).await?;
        if self.depth(&snapshot).await <= MANY || !self.holders(&snapshot).await?.is_empty() {
            return Ok(());
        }
        let to = shared.ids().capture();
        let limits = &shared.settings.limits;
        let limit = limits.snapshot + limits.time_for(snapshot.bytes);
        let mut operation = OperationRecord {
            capture: Some(to.clone()),
            ..shared.operation(OperationKind::MergeLayers, By::Host, limit)
        };
        shared.commit(Change { operations: vec![operation.clone()], ..Change::default() }).await?;
        let merged = match shared.pool.flatten(&snapshot.capture, &to).await {
            Ok(flat) => self.replace(id, &flat, &operation).await,
            Err(error) => Err(error.into()),
        };
        let why = match &merged {
            Ok(true) => return Ok(()),
            Ok(false) => FailureRecord::new(Code::Conflict, "somebody has begun to use it"),
            // It may be recorded; the next start finds out.
            Err(error) if error.is_unknown() => return merged.map(drop),
            Err(error) => error.record(),
        };
        operation.ended = Some((shared.now(), OperationResult::Failed(why)));
        shared.commit(Change { operations: vec![operation], discard: vec![to], ..Change::default() }).await?;
        merged.map(drop)
    }

    /// Puts `flat` in the place of what the snapshot is made of, unless somebody stands on that by now.
    async fn replace(
        &self,
        id: &SnapshotId,
        flat: &Capture,
        operation: &OperationRecord,
    ) -> Result<bool, ServiceError> {
        let shared = &self.shared;
        let turn = shared.deletions.lock().await;
        let alone = shared.holding.write().await;
        let mut snapshot = self.snapshot_record(id).await?;
        if snapshot.status != SnapshotStatus::Completed || !self.holders(&snapshot).await?.is_empty() {
            return Ok(false);
        }
        let old: CaptureId = std::mem::replace(&mut snapshot.capture, flat.id.clone());
        snapshot.layer = None;
        snapshot.bytes = flat.bytes();
        let mut operation = operation.clone();
        operation.ended = Some((shared.now(), OperationResult::Done));
        let discard = vec![old];
        let change = Change { snapshots: vec![snapshot], operations: vec![operation], discard, ..Change::default() };
        shared.commit(change).await?;
        drop((alone, turn));
        // What lay below may be free now.
        shared.removals.poke();
        Ok(true)
    }
}
