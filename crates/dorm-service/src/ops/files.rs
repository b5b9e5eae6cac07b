//! Filesystem snapshots of memory snapshots, whose files are usable where their memory is not.

use dorm_lifecycle::{Initiator, SavedStateId, SnapshotId, SnapshotKind};
use dorm_storage::{SavedState, SavedStateFacts};
use dorm_store::{
    Change, Made, Maker, OperationKind, OperationRecord, OperationResult, Removal, SnapshotRecord, SnapshotStatus,
};

use crate::error::{ServiceError, host_part};
use crate::shared::Service;

impl Service {
    /// Makes a filesystem snapshot of the files in memory snapshot `id`, which is kept. Nothing is
    /// run, and any build of its engine is suitable.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`, `SnapshotNotReady`; `NoMemory` for a filesystem snapshot. An error of the
    /// storage or the engine if its files cannot be read; nothing is left then.
    pub async fn snapshot_of_files(&self, id: &SnapshotId) -> Result<SnapshotRecord, ServiceError> {
        if let Some(Made::Snapshot(earlier)) = self.earlier() {
            return self.taken_earlier(earlier).await;
        }
        self.admit_snapshot().await?;
        let (service, id) = (self.clone(), id.clone());
        let work = async move { service.take_files(&id).await };
        let taken = self.shared.finish(work).await?;
        Ok(self.shared.shown_snapshot(taken))
    }

    async fn take_files(&self, id: &SnapshotId) -> Result<SnapshotRecord, ServiceError> {
        let shared = &self.shared;
        let (_using, source) = self.use_snapshot(id).await?;
        if source.kind == SnapshotKind::Filesystem {
            return Err(ServiceError::NoMemory(id.clone()));
        }
        let now = shared.now();
        let to = shared.ids().saved_state();
        let limits = &shared.settings.limits;
        let limit = limits.snapshot + limits.time_for(source.bytes);
        let mut operation = OperationRecord {
            saved_state: Some(to.clone()),
            ..shared.operation(self.project(), OperationKind::Snapshot, self.asked_by(Initiator::User), limit)
        };
        shared.commit(Change { operations: vec![operation.clone()], ..Change::default() }).await?;
        let error = match self.read_files(&source, &to).await {
            Ok(saved_state) => {
                let record = SnapshotRecord {
                    id: shared.ids().snapshot(),
                    name: None,
                    parent: Some(source.id.clone()),
                    kind: SnapshotKind::Filesystem,
                    saved_state: to.clone(),
                    created: now,
                    bytes: saved_state.bytes(),
                    shares_data: false,
                    removal: Removal::Asked,
                    made_by: match source.made_by {
                        Maker::Import => Maker::Import,
                        Maker::Request | Maker::Policy => Maker::Request,
                    },
                    status: SnapshotStatus::Completed,
                    ..source
                };
                operation.ended = Some((shared.now(), OperationResult::Done));
                let snapshots = vec![record.clone()];
                let operations = vec![operation.clone()];
                let requests = self.made(Made::Snapshot(record.id.clone()));
                match shared.commit(Change { snapshots, operations, requests, ..Change::default() }).await {
                    Ok(_) => {
                        self.keep_flat(&record).await;
                        return Ok(record);
                    }
                    // It may be recorded; the next start finds out.
                    Err(error) if error.is_unknown() => return Err(error.into()),
                    Err(error) => error.into(),
                }
            }
            Err(error) => error,
        };
        operation.ended = Some((shared.now(), OperationResult::Failed(error.record())));
        let discard = vec![to];
        shared.commit(Change { operations: vec![operation], discard, ..Change::default() }).await?;
        Err(error)
    }

    async fn read_files(&self, source: &SnapshotRecord, to: &SavedStateId) -> Result<SavedState, ServiceError> {
        let shared = &self.shared;
        let memory = shared.storage.check(&source.saved_state).await?;
        let below = shared.storage.below(&source.image, source.layer.as_ref()).await.map_err(host_part)?;
        let draft = shared.storage.begin(to, 0).await?;
        let tree = draft.begin_tree(below).await?;
        shared.engine.read_files(&memory.directory, Box::new(tree.clone())).await?;
        let facts = SavedStateFacts { parent: Some(memory.id.clone()), ..memory.facts.clone() };
        Ok(draft.commit_tree(facts, tree).await?)
    }
}
