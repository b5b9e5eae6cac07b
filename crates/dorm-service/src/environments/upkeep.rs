//! Ends runs, and removes sandboxes and environments that are not needed any more.

use std::collections::BTreeMap;

use dorm_lifecycle::{Command, Initiator, Keep, SandboxId, State};
use dorm_store::{Change, EnvironmentRecord, Removal, SnapshotFilter, SnapshotRecord, SnapshotStatus};

use super::{LABEL, labels_of};
use crate::error::{ServiceError, chain};
use crate::messages::SnapshotSpec;
use crate::ops::environments::WORKSPACE_LABEL;
use crate::shared::{RETIRED_KEPT, Service};

impl Service {
    /// Carries out the end of a run: the snapshot first, then the end of the sandbox.
    pub(super) async fn end_run(&self, record: EnvironmentRecord) -> Result<(), ServiceError> {
        let Some(ending) = record.ending.clone() else { return Ok(()) };
        let mut taken = None;
        if let (Some(snapshot), Some(sandbox)) = (&ending.snapshot, &record.sandbox) {
            match self.snapshot_after_run(&record, snapshot, sandbox).await {
                Ok(snapshot) => taken = Some(snapshot),
                Err(error) if self.shared.stopping.is_cancelled() => return Err(error),
                Err(error) => {
                    // Without it, the work would be lost with the sandbox.
                    tracing::warn!(environment = %record.id, error = %chain(&error),
                        "cannot take the snapshot after a run: its sandbox is kept");
                    return self.run_ended(&record, None, false).await;
                }
            }
        }
        if let (true, Some(sandbox)) = (ending.destroy, &record.sandbox) {
            self.terminate_if_there(sandbox).await?;
        }
        self.run_ended(&record, taken, ending.destroy).await
    }

    async fn run_ended(
        &self,
        record: &EnvironmentRecord,
        taken: Option<SnapshotRecord>,
        destroyed: bool,
    ) -> Result<(), ServiceError> {
        // The snapshot before it goes in the same change: nothing would find it later.
        let alone = self.shared.deletions.lock().await;
        let replaced = self.replaced_by(record, taken.as_ref()).await?;
        let others = Change { snapshots: replaced.iter().cloned().collect(), ..Change::default() };
        let newest = taken.as_ref().map(|snapshot| snapshot.id.clone());
        let changed = self.shared.change_environment_with(&record.id, others, |record| {
            record.ending = None;
            if let Some(newest) = newest {
                record.snapshot = Some(newest);
            }
            if destroyed {
                record.sandbox = None;
            }
        });
        changed.await?;
        drop(alone);
        if let Some(replaced) = &replaced {
            self.shared.removals.note(replaced);
        }
        Ok(())
    }

    /// Returns the record of the snapshot of an earlier run, to be deleted as soon as nothing uses
    /// it.
    async fn replaced_by(
        &self,
        record: &EnvironmentRecord,
        taken: Option<&SnapshotRecord>,
    ) -> Result<Option<SnapshotRecord>, ServiceError> {
        let before = record.snapshot.as_ref().filter(|before| taken.is_some_and(|taken| taken.id != **before));
        let Some(before) = before else { return Ok(None) };
        let before = self.shared.store.snapshot(before).await?;
        let is_of_runs =
            |one: &SnapshotRecord| one.status == SnapshotStatus::Completed && !one.labels.contains_key(WORKSPACE_LABEL);
        Ok(before.filter(is_of_runs).map(|before| SnapshotRecord { removal: Removal::WhenFree, ..before }))
    }

    async fn snapshot_after_run(
        &self,
        record: &EnvironmentRecord,
        id: &dorm_lifecycle::SnapshotId,
        sandbox: &SandboxId,
    ) -> Result<SnapshotRecord, ServiceError> {
        let earlier = self.shared.store.snapshot(id).await?;
        if let Some(earlier) = earlier.filter(|one| one.status == SnapshotStatus::Completed) {
            return Ok(earlier);
        }
        self.admit_snapshot().await?;
        let by = self.asked_by(Initiator::Host);
        let labels = labels_of(&record.id, record.commit.as_ref(), BTreeMap::new());
        let kind = record.policy.snapshot_kind;
        let asked = SnapshotSpec { labels, ..SnapshotSpec::new(id.clone(), kind, Removal::Asked, by) };
        self.snapshot_as(sandbox, asked).await
    }

    pub(super) async fn terminate_if_there(&self, sandbox: &SandboxId) -> Result<(), ServiceError> {
        match self.command(sandbox, Command::Terminate, Initiator::Host).await {
            Ok(_) | Err(ServiceError::NoSandbox(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends leases that have expired, suspends sandboxes that were retired, and terminates them
    /// when their time is over.
    pub(super) async fn tidy_environment(&self, record: EnvironmentRecord) -> Result<(), ServiceError> {
        let shared = &self.shared;
        let now = shared.now();
        if record.leases.iter().any(|lease| lease.until <= now) {
            shared.expire_leases(&record.id, now).await?;
        }
        let (mut gone, mut settled) = (Vec::new(), Vec::new());
        for retired in &record.retired {
            match self.describe(&retired.sandbox).await.map(|view| view.sandbox.state) {
                Ok(State::Terminated { .. }) | Err(ServiceError::NoSandbox(_)) => gone.push(retired.sandbox.clone()),
                Ok(_) if now.since(retired.at) >= RETIRED_KEPT => {
                    self.terminate_if_there(&retired.sandbox).await?;
                    gone.push(retired.sandbox.clone());
                }
                Ok(State::Running { .. }) if !retired.is_settled => {
                    let suspend = Command::Suspend(Keep::Memory);
                    if let Err(error) = self.command(&retired.sandbox, suspend, Initiator::Host).await {
                        let sandbox = &retired.sandbox;
                        tracing::warn!(%sandbox, error = %chain(&error), "cannot suspend a retired sandbox: it keeps running");
                    } else {
                        settled.push(retired.sandbox.clone());
                    }
                }
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        if !gone.is_empty() || !settled.is_empty() {
            let changed = shared.change_environment(&record.id, |record| {
                record.retired.retain(|retired| !gone.contains(&retired.sandbox));
                for retired in &mut record.retired {
                    retired.is_settled |= settled.contains(&retired.sandbox);
                }
            });
            changed.await?;
        } else if let Some(record) = shared.store.environment(&record.id).await? {
            shared.environments.note(&record);
        }
        Ok(())
    }

    /// Removes what belongs to an environment, then its record.
    pub(super) async fn remove_environment_now(&self, record: EnvironmentRecord) -> Result<(), ServiceError> {
        let shared = &self.shared;
        let retired = record.retired.iter().map(|retired| &retired.sandbox);
        for sandbox in record.sandbox.iter().chain(retired) {
            self.terminate_if_there(sandbox).await?;
        }
        let hash = |one: &EnvironmentRecord| dorm_store::workspace_hash(&one.workspace, one.policy.snapshot_kind);
        let mut others = shared.store.environments().await?;
        others.retain(|one| one.id != record.id && one.project == record.project && !one.removed);
        let (own_hash, hashes): (_, Vec<_>) = (hash(&record), others.iter().map(hash).collect());
        let filter = SnapshotFilter { project: Some(record.project.clone()), ..SnapshotFilter::default() };
        for snapshot in shared.store.find_snapshots(&filter).await? {
            let of_workspace = snapshot.labels.get(WORKSPACE_LABEL);
            let is_own = snapshot.labels.get(LABEL).is_some_and(|label| *label == record.id.as_str())
                || of_workspace == Some(&own_hash);
            if is_own && !of_workspace.is_some_and(|of| hashes.contains(of)) {
                self.remove_when_free(snapshot).await?;
            }
        }
        if let Some(last) = &record.last {
            self.end_kept(last).await?;
        }
        shared.forget_environment(&record).await
    }
}
