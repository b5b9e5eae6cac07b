//! Snapshots taken by a policy: setting the policy, taking a snapshot, and applying the retention
//! policy.

use dorm_lifecycle::{Checkpoints, Command, Initiator, SandboxId, SnapshotId, SnapshotKind, Timestamp};
use dorm_store::{Maker, Removal, SnapshotFilter, SnapshotRecord, SnapshotStatus};

use super::checkpoint::CheckpointSpec;
use crate::activity::Use;
use crate::error::{ServiceError, chain};
use crate::messages::SnapshotSpec;
use crate::shared::Service;
use crate::view::SandboxView;

impl Service {
    /// Changes the policy for automatic snapshots of a sandbox; `None` takes no more. Existing
    /// snapshots are kept, and the new retention policy is applied when the next one is taken.
    ///
    /// # Errors
    ///
    /// `Spec` for an interval that is out of range, `Denied` for a terminated sandbox.
    pub async fn set_checkpoints(
        &self,
        id: &SandboxId,
        checkpoints: Option<Checkpoints>,
    ) -> Result<SandboxView, ServiceError> {
        checkpoints.as_ref().map_or(Ok(()), Checkpoints::check)?;
        self.command(id, Command::SetCheckpoints(checkpoints), Initiator::User).await
    }

    /// Takes a snapshot of a running sandbox before an action in it. It is subject to the retention
    /// policy of the sandbox, or to the default one.
    ///
    /// # Errors
    ///
    /// `NotRunning`, and those of [`Service::checkpoint`]: the action should then not be carried
    /// out.
    pub async fn checkpoint_before(&self, id: &SandboxId, kind: SnapshotKind) -> Result<SnapshotRecord, ServiceError> {
        // Its deadline must not pass in between.
        let (_, _in_use) = self.agent(id, Use::Exec).await?;
        Ok(self.shared.shown_snapshot(self.policy_snapshot(id, kind, Initiator::User).await?))
    }

    pub(crate) async fn policy_snapshot(
        &self,
        id: &SandboxId,
        kind: SnapshotKind,
        by: Initiator,
    ) -> Result<SnapshotRecord, ServiceError> {
        let shared = &self.shared;
        shared.checkpointing.begun(id, shared.now());
        self.admit_snapshot().await?;
        let settings = CheckpointSpec { kind, ..CheckpointSpec::default() };
        let asked = SnapshotSpec { made_by: Maker::Policy, by: self.asked_by(by), ..self.asked(settings) };
        let taken = self.snapshot_as(id, asked).await;
        if let Ok(snapshot) = &taken {
            shared.checkpointing.complete(snapshot);
        }
        let (own, id) = (self.clone(), id.clone());
        shared.spawn(async move {
            // If the daemon stops before, it is done with the next snapshot.
            if let Err(error) = own.thin(&id).await {
                tracing::warn!(sandbox = %id, error = %chain(&error), "cannot apply the retention policy to snapshots");
            }
        });
        taken
    }

    /// Deletes the snapshots that the retention policy does not keep, each as soon as nothing uses
    /// it.
    async fn thin(&self, id: &SandboxId) -> Result<(), ServiceError> {
        let policy = self.record(id).await?.sandbox.spec.checkpoints.map(|policy| policy.keep).unwrap_or_default();
        let shared = &self.shared;
        if shared.now() < shared.clock.held_until() {
            // The clock is in doubt: this is done with the next snapshot.
            return Ok(());
        }
        let filter =
            SnapshotFilter { source: Some(id.clone()), made_by: Some(Maker::Policy), ..SnapshotFilter::default() };
        let all = shared.store.find_snapshots(&filter).await?.into_iter();
        let own = all.filter(|snapshot| snapshot.project == *self.project() && snapshot.removal == Removal::Asked);
        let (mut complete, mut failed) = (Vec::new(), Vec::new());
        for SnapshotRecord { id, created, status, .. } in own {
            match status {
                SnapshotStatus::Completed => complete.push((created, id)),
                SnapshotStatus::Failed(_) => failed.push((created, id)),
                SnapshotStatus::InProgress | SnapshotStatus::Deleting => {}
            }
        }
        let mut spent = policy.spent(&complete, self.shared.now());
        spent.extend(outdated(failed, &complete));
        for snapshot in spent {
            match self.delete_snapshot_when_free(&snapshot).await {
                Ok(()) | Err(ServiceError::NoSnapshot(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns which of the failed snapshots to delete: all but the last, and the last as well if one
/// has completed since. It is only kept to show when the last attempt was made.
fn outdated(
    mut failed: Vec<(Timestamp, SnapshotId)>,
    complete: &[(Timestamp, SnapshotId)],
) -> impl Iterator<Item = SnapshotId> {
    failed.sort();
    if failed.last() > complete.iter().max() {
        failed.pop();
    }
    failed.into_iter().map(|(_, id)| id)
}
