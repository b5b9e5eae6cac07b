//! Leases of environments, the end of runs, and the removal of environments.

use std::time::Duration;

use dorm_lifecycle::environment::{Base, Key, SnapshotWhen};
use dorm_lifecycle::{EnvironmentId, LeaseId, SnapshotId, Timestamp};
use dorm_store::{EnvironmentLease, EnvironmentRecord, RunEnd};
use sha2::{Digest as _, Sha256};

use super::{Ensured, LEASE_MAX};
use crate::error::{EnvironmentProblem, ServiceError};
use crate::shared::{Service, Shared};

/// How a run that used an environment has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunOutcome {
    /// It is complete.
    Completed,
    /// It has failed: no snapshot is taken.
    Failed,
}

/// How many leases an environment can have.
const LEASES_MAX: usize = 1000;

impl Service {
    /// Takes the lease of a request. `None` if the environment has lost its sandbox meanwhile, or a
    /// run is ending there: the end may terminate the sandbox.
    pub(super) async fn leased(
        &self,
        ensured: Ensured,
        lease: Option<Duration>,
    ) -> Result<Option<Ensured>, ServiceError> {
        let Some(time) = lease else {
            let environment = self.shown_environment(ensured.environment);
            return Ok(Some(Ensured { environment, ..ensured }));
        };
        let id = ensured.environment.id.clone();
        let lease = EnvironmentLease { id: self.lease_id(), until: self.shared.now().after(time) };
        let taken = lease.clone();
        let sandbox = &ensured.sandbox.sandbox.id;
        let stays = |record: &EnvironmentRecord| record.ending.is_none() && record.sandbox.as_ref() == Some(sandbox);
        let changed = self.shared.change_environment(&id, |record| {
            if record.removed || !stays(record) {
                return;
            }
            record.leases.retain(|one| one.id != taken.id);
            if record.leases.len() < LEASES_MAX {
                record.leases.push(taken);
            }
        });
        let record = changed.await?.filter(|record| !record.removed);
        let record = record.ok_or_else(|| EnvironmentProblem::Removed(id.clone()))?;
        if !stays(&record) {
            return Ok(None);
        }
        if !record.leases.contains(&lease) {
            return Err(EnvironmentProblem::Bad("it has 1000 leases, which is the limit: release some").into());
        }
        let shown = EnvironmentLease { until: self.shared.clock.shown(lease.until), ..lease };
        Ok(Some(Ensured { environment: self.shown_environment(record), lease: Some(shown), ..ensured }))
    }

    /// Returns the id of the lease of this request: a repeated request has the same.
    fn lease_id(&self) -> LeaseId {
        let Some(request) = self.request_id() else { return self.shared.ids().lease() };
        let hash = Sha256::digest(format!("lease {request}"));
        LeaseId::from_random(std::array::from_fn(|at| hash[at]))
    }

    /// Renews a lease: it lasts for `time` from now.
    ///
    /// # Errors
    ///
    /// `Environment` if there is no such environment or lease, or for a time that is out of range.
    pub async fn renew_lease(
        &self,
        named: &str,
        lease: &LeaseId,
        time: Duration,
    ) -> Result<EnvironmentLease, ServiceError> {
        if time.is_zero() || time > LEASE_MAX {
            return Err(EnvironmentProblem::Bad("a lease must last longer than 0 s, and at most 24 hours").into());
        }
        let id = self.own_environment(named).await?.id;
        let until = self.shared.now().after(time);
        let changed = self.shared.change_environment(&id, |record| {
            if let Some(found) = record.leases.iter_mut().find(|one| one.id == *lease) {
                found.until = until;
            }
        });
        let record = changed.await?.ok_or_else(|| EnvironmentProblem::Removed(id.clone()))?;
        let found = record.leases.into_iter().find(|one| one.id == *lease);
        let found = found.ok_or_else(|| EnvironmentProblem::NoLease { environment: id, lease: lease.clone() })?;
        Ok(EnvironmentLease { until: self.shared.clock.shown(found.until), ..found })
    }

    /// Ends the run that a lease is for. When no other run uses the environment, its policy decides
    /// what becomes of the sandbox. Releasing a lease that does not exist is a success.
    ///
    /// # Errors
    ///
    /// `Environment` if there is no such environment.
    pub async fn release_lease(
        &self,
        named: &str,
        lease: Option<&LeaseId>,
        outcome: RunOutcome,
    ) -> Result<EnvironmentRecord, ServiceError> {
        let id = self.own_environment(named).await?.id;
        let snapshot = self.shared.ids().snapshot();
        let changed = self.shared.change_environment(&id, |record| {
            let before = record.leases.len();
            record.leases.retain(|one| Some(&one.id) != lease);
            let has_ended = record.leases.is_empty() && (before > 0 || lease.is_none());
            if has_ended && record.ending.is_none() && record.sandbox.is_some() {
                record.ending = end_of_run(record, outcome, snapshot);
            }
        });
        let record = changed.await?.ok_or_else(|| EnvironmentProblem::Removed(id.clone()))?;
        let ended = self.environment_once(&id, |record| record.ending.is_none()).await?;
        Ok(self.shown_environment(ended.unwrap_or(record)))
    }

    /// Cancels the attempt in progress for an environment, if there is one, and waits for its end.
    /// Every caller that waits for the attempt gets `Cancelled`, also those with another
    /// definition. Callers that come later begin another attempt as soon as this one has ended.
    ///
    /// # Errors
    ///
    /// `Environment` if there is no such environment.
    pub async fn cancel_environment(&self, named: &str) -> Result<EnvironmentRecord, ServiceError> {
        let id = self.own_environment(named).await?.id;
        let changed = self.shared.change_environment(&id, |record| {
            if let Some(attempt) = &mut record.attempt {
                attempt.cancel = true;
            }
        });
        let Some(record) = changed.await? else { return Err(EnvironmentProblem::Removed(id).into()) };
        let Some(cancelled) = record.attempt.as_ref().map(|attempt| attempt.id.clone()) else {
            return Ok(self.shown_environment(record));
        };
        self.shared.environments.cancel(&id, &cancelled);
        let has_ended =
            |record: &EnvironmentRecord| record.attempt.as_ref().is_none_or(|attempt| attempt.id != cancelled);
        let ended = self.environment_once(&id, has_ended).await?;
        Ok(self.shown_environment(ended.unwrap_or(record)))
    }

    /// Removes an environment: its sandboxes are terminated and its own snapshots deleted. The
    /// snapshots of its workspace stay if another environment has the same workspace.
    ///
    /// # Errors
    ///
    /// `Environment` if there is no such environment.
    pub async fn remove_environment(&self, named: &str) -> Result<(), ServiceError> {
        let id = self.own_environment(named).await?.id;
        let changed = self.shared.change_environment(&id, |record| {
            // The key is free from now on.
            (record.removed, record.key) = (true, Key::Once(record.id.clone()));
            if let Some(attempt) = &mut record.attempt {
                attempt.cancel = true;
            }
        });
        let cancelled = changed.await?.and_then(|record| record.attempt);
        if let Some(attempt) = cancelled {
            self.shared.environments.cancel(&id, &attempt.id);
        }
        self.environment_once(&id, |_| false).await.map(drop)
    }

    /// Waits until the record of an environment is as wanted; `None` if it is gone.
    async fn environment_once(
        &self,
        id: &EnvironmentId,
        is_wanted: impl Fn(&EnvironmentRecord) -> bool,
    ) -> Result<Option<EnvironmentRecord>, ServiceError> {
        loop {
            let changes = self.shared.environments.changes();
            let Some(record) = self.shared.store.environment(id).await? else { return Ok(None) };
            if is_wanted(&record) {
                return Ok(Some(record));
            }
            self.changes_after(changes).await?;
        }
    }

    /// Returns the environments that need a snapshot.
    pub(crate) async fn environment_holders(&self, snapshot: &SnapshotId) -> Result<Vec<String>, ServiceError> {
        let records = self.shared.store.environments().await?;
        let holders = records.iter().filter(|record| needs_snapshot(record, snapshot));
        Ok(holders.map(|record| format!("environment {}", record.id)).collect())
    }
}

/// Returns whether an environment needs a snapshot.
pub(in crate::ops) fn needs_snapshot(record: &EnvironmentRecord, snapshot: &SnapshotId) -> bool {
    record.attempt.as_ref().is_some_and(|attempt| {
        let restored = attempt.restore.as_ref().map(|restored| &restored.snapshot);
        let taken = attempt.setup.as_ref().and_then(|setup| setup.snapshot.as_ref());
        let starts_from_it = record.workspace.base == Base::Snapshot(snapshot.clone());
        restored == Some(snapshot) || taken == Some(snapshot) || starts_from_it
    })
}

/// Returns what is done at the end of a run, if anything.
fn end_of_run(record: &EnvironmentRecord, outcome: RunOutcome, snapshot: SnapshotId) -> Option<RunEnd> {
    let policy = record.policy_of_sandbox();
    let takes = policy.snapshot == SnapshotWhen::AfterRun && outcome == RunOutcome::Completed;
    let end = RunEnd { snapshot: takes.then_some(snapshot), destroy: policy.destroy_on_complete };
    (end.snapshot.is_some() || end.destroy).then_some(end)
}

impl Shared {
    /// Ends the leases that have expired, and begins the end of the run if none is left.
    pub(crate) async fn expire_leases(
        self: &std::sync::Arc<Self>,
        id: &EnvironmentId,
        now: Timestamp,
    ) -> Result<(), ServiceError> {
        let snapshot = self.ids().snapshot();
        let changed = self.change_environment(id, |record| {
            let before = record.leases.len();
            record.leases.retain(|lease| lease.until > now);
            if before > 0 && record.leases.is_empty() && record.ending.is_none() && record.sandbox.is_some() {
                // Its client has died: what it did is kept as if it had completed.
                record.ending = end_of_run(record, RunOutcome::Completed, snapshot);
            }
        });
        changed.await?;
        Ok(())
    }
}
