//! Sets up a workspace: its code, its commands, and the snapshot of the result.

use std::time::Duration;

use dorm_lifecycle::environment::{Base, SnapshotWhen, Verdict, Way};
use dorm_lifecycle::environment::{Considered, SnapshotOf};
use dorm_lifecycle::{Initiator, SandboxId, StateName, Timeouts, Variables};
use dorm_store::{
    Change, Removal, RestoredFrom, SetupState, SetupWork, SnapshotFilter, SnapshotRecord, SnapshotStatus,
};
use tokio::time::Instant;

use super::attempt::{Maker, Stop};
use super::labels_of;
use super::plan::{groups, records};
use crate::error::{ServiceError, chain};
use crate::messages::SnapshotSpec;
use crate::ops::create::{CreateFrom, CreateSpec};
use crate::ops::environments::{WORKSPACE_LABEL, timeouts};

impl Maker {
    /// Sets up a sandbox. Returns whether that sandbox itself is handed out; otherwise there is a
    /// snapshot to restore.
    pub(super) async fn set_up(&mut self) -> Result<bool, Stop> {
        let takes = self.record.policy.snapshot == SnapshotWhen::AfterSetup;
        let key = dorm_store::workspace_hash(&self.record.workspace, self.record.policy.snapshot_kind);
        let setups = &self.service.shared.environments.setups;
        let turn = setups.of(&(self.service.project().clone(), key.clone()));
        // Without a snapshot there is nothing that others could wait for.
        let _turn = match takes {
            true => {
                let waited = Instant::now();
                let turn = match turn.clone().try_lock_owned() {
                    Ok(turn) => turn,
                    Err(_) => {
                        self.diary.say(None, "waiting for another setup of the same workspace").await;
                        let turn = self.unless(turn.lock_owned()).await?;
                        self.phase("wait", waited).await?;
                        turn
                    }
                };
                Some(turn)
            }
            false => None,
        };
        if takes && self.attempt.setup.is_none() && self.found_meanwhile(&key).await? {
            return Ok(false);
        }
        match self.finished_snapshot().await? {
            Some(snapshot) if snapshot.removal == Removal::WhenFree => {
                // Its deletion was asked for. An id is not used twice.
                let next = self.service.shared.ids().snapshot();
                self.update(|_, attempt| {
                    if let Some(work) = &mut attempt.setup {
                        work.snapshot = Some(next);
                    }
                })
                .await?;
            }
            Some(snapshot) => return self.after_snapshot(&snapshot, &key).await.map(|()| false),
            None => {}
        }
        let sandbox = self.setup_sandbox(takes).await?;
        let began = Instant::now();
        let steps = groups(&self.record.workspace);
        let ran = self.run_groups(&steps, &sandbox).await;
        if let Err(stop) = ran {
            return self.maybe_lost(stop, &sandbox).await.map(|()| false);
        }
        self.phase("setup", began).await?;
        if !takes {
            return Ok(true);
        }
        self.take_snapshot(&sandbox, &key).await
    }

    /// Looks for a snapshot that another environment has taken while this one waited.
    async fn found_meanwhile(&mut self, key: &str) -> Result<bool, Stop> {
        let passed_over = self.attempt.considered.iter().any(|considered| {
            considered.way == Way::WorkspaceSnapshot && matches!(considered.verdict, Verdict::Broken(_))
        });
        if passed_over {
            return Ok(false);
        }
        let _staying = self.service.staying().await.map_err(|error| self.stop(error))?;
        let found = self.service.newest_of_workspace(key).await.map_err(|error| self.stop(error))?;
        let Some(found) = found else { return Ok(false) };
        let age = self.service.shared.now().since(found.created);
        if self.record.policy.snapshot_max_age.is_some_and(|max| age > max) || self.is_own(&found) {
            return Ok(false);
        }
        self.update(|_, attempt| {
            attempt.considered.retain(|considered| !matches!(considered.way, Way::WorkspaceSnapshot | Way::Create));
            attempt.considered.push(Considered { way: Way::WorkspaceSnapshot, verdict: Verdict::Taken });
            attempt.restore = Some(RestoredFrom { snapshot: found.id, of: Some(SnapshotOf::Workspace), age });
        })
        .await?;
        Ok(true)
    }

    /// Whether a snapshot is the environment's own, which was considered before.
    fn is_own(&self, snapshot: &SnapshotRecord) -> bool {
        self.record.snapshot.as_ref() == Some(&snapshot.id)
    }

    /// Returns the sandbox in which the setup runs, which is created if it does not exist.
    async fn setup_sandbox(&mut self, takes: bool) -> Result<SandboxId, Stop> {
        if self.attempt.setup.is_none() {
            let ids = self.service.shared.ids();
            let handed_out = self.attempt.sandbox.clone();
            let work = SetupWork {
                sandbox: if takes { ids.sandbox() } else { handed_out },
                snapshot: takes.then(|| ids.snapshot()),
            };
            let steps = records(&self.record.workspace, &groups(&self.record.workspace));
            self.update(|_, attempt| (attempt.setup, attempt.steps) = (Some(work), steps)).await?;
        }
        let sandbox = self.attempt.setup.as_ref().map_or(self.attempt.sandbox.clone(), |work| work.sandbox.clone());
        let began = Instant::now();
        let is_new = self.service.shared.store.sandbox(&sandbox).await?.is_none();
        let from = match &self.record.workspace.base {
            Base::Image(image) => CreateFrom::Image(image.to_string()),
            Base::Snapshot(snapshot) => CreateFrom::Snapshot(snapshot.clone()),
        };
        let base = match &self.record.workspace.base {
            Base::Image(_) => None,
            Base::Snapshot(id) => self.service.shared.store.snapshot(id).await?,
        };
        let spec = self.spec(from, base.as_ref()).map_err(|error| self.stop(error))?;
        // The agent of a sandbox that is saved must not know the secrets.
        let spec = match takes {
            true => CreateSpec { secrets: Variables::default(), timeouts: Timeouts::default(), ..spec },
            false => spec,
        };
        match self.create(&sandbox, spec).await? {
            Ok(()) => {}
            // One that was there before the daemon stopped, and is not any more.
            Err(error) if !is_new => {
                self.begin_again(&error.message()).await?;
                return Box::pin(self.setup_sandbox(takes)).await;
            }
            Err(error) => return Err(self.stop(error)),
        }
        if is_new {
            self.phase("create", began).await?;
        }
        Ok(sandbox)
    }

    /// Begins the setup again if its sandbox has ended under it.
    async fn maybe_lost(&mut self, stop: Stop, sandbox: &SandboxId) -> Result<(), Stop> {
        let Stop::Failed(failure) = &stop else { return Err(stop) };
        let has_ended = match self.service.describe(sandbox).await {
            Ok(view) => matches!(view.sandbox.state.name(), StateName::Terminating | StateName::Terminated),
            Err(ServiceError::NoSandbox(_)) => true,
            Err(_) => false,
        };
        match has_ended {
            true => {
                let why = failure.failure.reason.clone();
                self.begin_again(&why).await
            }
            false => Err(stop),
        }
    }

    async fn begin_again(&mut self, why: &str) -> Result<(), Stop> {
        self.is_lost(why)?;
        self.diary.say(None, &format!("the sandbox of the setup was lost ({why}): the setup begins again")).await;
        let next = self.service.shared.ids().sandbox();
        let taken = self.attempt.setup.as_ref().and_then(|work| work.snapshot.clone());
        self.update(|_, attempt| {
            (attempt.setup, attempt.steps) = (None, Vec::new());
            attempt.sandbox = next;
        })
        .await?;
        let Some(taken) = taken else { return Ok(()) };
        match self.service.shared.store.snapshot(&taken).await? {
            Some(taken) if matches!(taken.status, SnapshotStatus::Failed(_)) => {
                self.service.remove_when_free(taken).await.map_err(Stop::later)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Takes the snapshot of a setup. Returns whether the sandbox of the setup is handed out
    /// because that failed.
    async fn take_snapshot(&mut self, sandbox: &SandboxId, key: &str) -> Result<bool, Stop> {
        let began = Instant::now();
        self.diary.say(None, "the setup is done: taking a snapshot").await;
        let Some(id) = self.attempt.setup.as_ref().and_then(|work| work.snapshot.clone()) else { return Ok(true) };
        let by = self.service.asked_by(Initiator::User);
        let labels = [(WORKSPACE_LABEL.to_owned(), key.to_owned())].into();
        let labels = labels_of(&self.id, self.attempt.commit.as_ref(), labels);
        let kind = self.record.policy.snapshot_kind;
        let asked = SnapshotSpec { labels, ..SnapshotSpec::new(id, kind, Removal::Asked, by) };
        let taken = async {
            self.service.admit_snapshot().await?;
            self.service.snapshot_as(sandbox, asked).await
        };
        match taken.await {
            Ok(snapshot) => {
                self.phase("snapshot", began).await?;
                self.after_snapshot(&snapshot, key).await.map(|()| false)
            }
            Err(error) if self.service.shared.stopping.is_cancelled() => Err(Stop::later(error)),
            Err(error) => self.without_snapshot(sandbox, error).await.map(|()| true),
        }
    }

    /// Records the snapshot of a setup, and ends what is not needed any more.
    async fn after_snapshot(&mut self, snapshot: &SnapshotRecord, key: &str) -> Result<(), Stop> {
        if let Some(work) = self.attempt.setup.clone() {
            self.end_sandbox(&work.sandbox).await?;
        }
        let id = snapshot.id.clone();
        self.update(|_, attempt| {
            let restored = RestoredFrom { snapshot: id, of: None, age: Duration::ZERO };
            (attempt.restore, attempt.setup) = (Some(restored), None);
        })
        .await?;
        if let Err(error) = self.service.supersede(snapshot, key).await {
            tracing::warn!(snapshot = %snapshot.id, error = %chain(&error), "cannot remove the snapshots before it");
        }
        Ok(())
    }

    /// Hands out the sandbox of a setup whose snapshot could not be taken.
    async fn without_snapshot(&mut self, sandbox: &SandboxId, error: ServiceError) -> Result<(), Stop> {
        self.diary.say(None, &format!("the snapshot could not be taken: {}", error.message())).await;
        let failure = error.record();
        let unneeded = self.attempt.sandbox.clone();
        let handed_out = sandbox.clone();
        self.update(|_, attempt| {
            (attempt.sandbox, attempt.setup) = (handed_out, None);
            attempt.snapshot_failure = Some(failure);
        })
        .await?;
        self.end_sandbox(&unneeded).await?;
        let with_secrets = async {
            if self.record.secrets.is_empty() && self.record.values.0.is_empty() {
                return Ok(());
            }
            // They hold from the next run on.
            self.service.refresh_secrets(&self.record, sandbox).await?;
            self.service.suspend(sandbox).await?;
            self.service.resume(sandbox, Initiator::User).await.map(drop)
        };
        with_secrets.await.map_err(|error: ServiceError| self.stop(error))?;
        self.service
            .set_timeouts(sandbox, timeouts(&self.record.policy))
            .await
            .map(drop)
            .map_err(|error| self.stop(error))
    }

    /// Whether every step has been done.
    pub(super) fn is_done(&self, at: usize) -> bool {
        self.attempt.steps.get(at).is_some_and(|step| step.state == SetupState::Done)
    }
}

impl crate::shared::Service {
    /// Deletes the snapshots of a workspace that a newer one has replaced, as soon as nothing needs
    /// them.
    async fn supersede(&self, newest: &SnapshotRecord, key: &str) -> Result<(), ServiceError> {
        let _deletions = self.shared.deletions.lock().await;
        let _alone = self.shared.holding.write().await;
        let filter = SnapshotFilter { project: Some(self.project().clone()), ..SnapshotFilter::default() };
        let is_older = |one: &SnapshotRecord| {
            one.created < newest.created
                && one.removal == Removal::Asked
                && one.labels.get(WORKSPACE_LABEL).is_some_and(|label| label == key)
                && one.status == SnapshotStatus::Completed
        };
        for older in self.shared.store.find_snapshots(&filter).await?.into_iter().filter(is_older) {
            // An attempt that is about to restore it is to find it.
            if self.environment_holders(&older.id).await?.is_empty() {
                self.leave_when_free(older).await?;
            }
        }
        Ok(())
    }

    /// Records that a snapshot is deleted as soon as nothing needs it.
    pub(super) async fn remove_when_free(&self, snapshot: SnapshotRecord) -> Result<(), ServiceError> {
        let _alone = self.shared.deletions.lock().await;
        let Some(now) = self.shared.store.snapshot(&snapshot.id).await? else { return Ok(()) };
        // Those of a setup that was interrupted have failed.
        if !matches!(now.status, SnapshotStatus::Completed | SnapshotStatus::Failed(_)) {
            return Ok(());
        }
        self.leave_when_free(now).await
    }

    async fn leave_when_free(&self, snapshot: SnapshotRecord) -> Result<(), ServiceError> {
        let leaving = SnapshotRecord { removal: Removal::WhenFree, ..snapshot };
        self.shared.commit_known(Change { snapshots: vec![leaving.clone()], ..Change::default() }).await?;
        self.shared.removals.note(&leaving);
        Ok(())
    }
}
