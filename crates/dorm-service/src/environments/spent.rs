//! Removes the records of environments that no request can find again.

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::environment::Key;
use dorm_lifecycle::{ProjectId, SandboxId, State, Timestamp};
use dorm_store::{Change, EnvironmentRecord, StoreError};

use crate::error::ServiceError;
use crate::shared::Shared;

impl Shared {
    /// Removes the records of environments without a key that nothing has used for a time. Their
    /// snapshots stay: those of runs as they are, those of setups for the next request.
    pub(crate) async fn forget_spent(
        self: &Arc<Self>,
        of: Option<&ProjectId>,
        kept: Duration,
    ) -> Result<usize, ServiceError> {
        let now = self.now();
        if now < self.clock.held_until() {
            return Ok(0);
        }
        let mut removed = 0;
        for record in self.store.environments().await? {
            if of.is_none_or(|of| record.project == *of) && self.is_spent(&record, now, kept).await? {
                removed += usize::from(self.forget_if_spent(&record, now, kept).await?);
            }
        }
        Ok(removed)
    }

    async fn forget_if_spent(
        self: &Arc<Self>,
        record: &EnvironmentRecord,
        now: Timestamp,
        kept: Duration,
    ) -> Result<bool, ServiceError> {
        let turn = self.environments.turns.of(&record.id).lock_owned().await;
        let Some(record) = self.store.environment(&record.id).await? else { return Ok(false) };
        if !self.is_spent(&record, now, kept).await? {
            return Ok(false);
        }
        let own = self.clone();
        let forget = async move {
            let _turn = turn;
            own.forget_environment(&record).await?;
            Ok(true)
        };
        self.finish(forget).await
    }

    /// Removes the record of an environment and its log.
    pub(super) async fn forget_environment(&self, record: &EnvironmentRecord) -> Result<(), ServiceError> {
        if let Some(last) = &record.last {
            self.storage.remove_log(&(&last.attempt.id).into()).await?;
        }
        let change = Change { removed_environments: vec![record.id.clone()], ..Change::default() };
        self.commit_known(change).await?;
        self.environments.forget(&record.id);
        self.environments.changed();
        Ok(())
    }

    /// Returns whether a record is of no use: only a retry can find it, and none comes so late.
    async fn is_spent(&self, record: &EnvironmentRecord, now: Timestamp, kept: Duration) -> Result<bool, StoreError> {
        let is_old = |at: Timestamp| now.since(at) >= kept;
        let is_idle = record.attempt.is_none()
            && record.ending.is_none()
            && record.leases.is_empty()
            && record.retired.is_empty()
            && !record.removed;
        let is_past = is_old(record.created) && record.last.as_ref().is_none_or(|last| is_old(last.ended));
        if !matches!(record.key, Key::Once(_)) || !is_idle || !is_past {
            return Ok(false);
        }
        let Some(sandbox) = &record.sandbox else { return Ok(true) };
        Ok(self.ended_at(sandbox).await?.is_none_or(is_old))
    }

    /// Returns when a sandbox was terminated: `None` if its record is gone, now if it lives.
    async fn ended_at(&self, sandbox: &SandboxId) -> Result<Option<Timestamp>, StoreError> {
        let record = self.store.sandbox(sandbox).await?;
        Ok(record.map(|record| if let State::Terminated { at, .. } = record.sandbox.state { at } else { self.now() }))
    }
}
