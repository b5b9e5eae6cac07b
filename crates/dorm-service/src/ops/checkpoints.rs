//! Snapshots that a policy takes: setting the policy, taking one, and thinning what it took.

use dorm_lifecycle::{Actor as By, Checkpoints, Command, SandboxId, SnapshotId, SnapshotKind, Timestamp};
use dorm_store::{Maker, Removal, SnapshotFilter, SnapshotRecord, SnapshotStatus};

use super::checkpoint::SnapshotSettings;
use crate::activity::Use;
use crate::actor::SnapshotAsked;
use crate::error::ServiceError;
use crate::shared::{Service, chain};
use crate::view::SandboxView;

impl Service {
    /// Changes which snapshots are taken of a sandbox by themselves; none takes no more. Those that were taken stay, and are
    /// thinned by the new ladder when the next is taken.
    ///
    /// # Errors
    /// `Spec` for an interval out of its range, `Denied` for a terminated sandbox.
    pub async fn set_checkpoints(
        &self,
        id: &SandboxId,
        checkpoints: Option<Checkpoints>,
    ) -> Result<SandboxView, ServiceError> {
        checkpoints.as_ref().map_or(Ok(()), Checkpoints::check)?;
        self.command(id, Command::SetCheckpoints(checkpoints), By::User).await
    }

    /// Takes a snapshot of a running sandbox before something is done in it. The ladder of its policy thins it, or the default
    /// one if it has none.
    ///
    /// # Errors
    /// `NotRunning`, and those of [`Service::checkpoint`]: what was to be done is then better left.
    pub async fn checkpoint_before(&self, id: &SandboxId, kind: SnapshotKind) -> Result<SnapshotRecord, ServiceError> {
        // Its time is not to be over in between.
        let (_, _in_use) = self.agent(id, Use::Exec).await?;
        Ok(self.shared.shown_snapshot(self.policy_snapshot(id, kind, By::User).await?))
    }

    pub(crate) async fn policy_snapshot(
        &self,
        id: &SandboxId,
        kind: SnapshotKind,
        by: By,
    ) -> Result<SnapshotRecord, ServiceError> {
        let shared = &self.shared;
        shared.checkpointing.begun(id, shared.now());
        shared.admit_write("take a snapshot", 0).await?;
        let settings = SnapshotSettings { kind, ..SnapshotSettings::default() };
        let asked = SnapshotAsked { made_by: Maker::Policy, by, ..self.asked(settings) };
        let taken = self.snapshot_as(id, asked).await;
        if let Ok(snapshot) = &taken {
            shared.checkpointing.complete(snapshot);
        }
        let (own, id) = (self.clone(), id.clone());
        shared.spawn(async move {
            // If the daemon ends before, it is done with the next.
            if let Err(error) = own.thin(&id).await {
                tracing::warn!(sandbox = %id, error = %chain(&error), "the snapshots of a policy could not be thinned");
            }
        });
        taken
    }

    /// Lets those go that the ladder does not keep, each as soon as nobody uses it.
    async fn thin(&self, id: &SandboxId) -> Result<(), ServiceError> {
        let ladder = self.record(id).await?.sandbox.spec.checkpoints.map(|policy| policy.keep).unwrap_or_default();
        let shared = &self.shared;
        if shared.now() < shared.clock.held_until() {
            // The clock is in doubt: it is done with the next one that is taken.
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
        let mut spent = ladder.spent(&complete, self.shared.now());
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

/// Of those that failed, all but the last, and that one as well when one has been taken since: it only tells when was tried
/// last.
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
