//! Following an attempt until it ends.

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::environment::{Considered, OnLeave};
use dorm_lifecycle::{EnvironmentId, OperationId};
use dorm_storage::{LogLine, LogPage};
use dorm_store::{AttemptEnd, EnvironmentRecord};
use tokio::sync::futures::OwnedNotified;

use crate::error::{EnvironmentProblem, ServiceError};
use crate::ops::builds::BUILD_LOG_LINES_MAX;
use crate::shared::{Service, Shared};

/// Something that a caller who waits for an environment may be told.
#[derive(Clone, Debug)]
pub enum EnsureProgress {
    /// The ways were considered.
    Considered(Vec<Considered>),
    /// The attempt to make a sandbox has advanced.
    Attempt(Box<EnvironmentRecord>),
    /// The attempt has written a line to its log.
    Line {
        /// The attempt.
        attempt: OperationId,
        /// The offset of the line.
        offset: u64,
        /// The line.
        line: LogLine,
    },
}

/// A caller who waits for an attempt.
pub(super) struct Waiter {
    shared: Arc<Shared>,
    environment: EnvironmentId,
    pub(super) attempt: OperationId,
}

impl Waiter {
    pub(super) fn new(
        shared: &Arc<Shared>,
        environment: &EnvironmentId,
        attempt: &OperationId,
        on_leave: OnLeave,
    ) -> Self {
        shared.environments.wait_for(attempt, on_leave);
        Self { shared: shared.clone(), environment: environment.clone(), attempt: attempt.clone() }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let environments = &self.shared.environments;
        if environments.leave(&self.attempt) {
            // The attempt itself records that it was cancelled.
            environments.cancel(&self.environment, &self.attempt);
        }
    }
}

impl Service {
    /// Waits for the end of an attempt. `None` if the record of its end is gone.
    pub(super) async fn follow_attempt(
        &self,
        waiter: Waiter,
        progress: &(dyn Fn(EnsureProgress) + Send + Sync),
    ) -> Result<Option<(EnvironmentRecord, AttemptEnd)>, ServiceError> {
        let shared = &self.shared;
        let (id, attempt) = (&waiter.environment, &waiter.attempt);
        let (mut offset, mut seen) = (0, None);
        loop {
            let mut changes = std::pin::pin!(shared.environments.changes());
            let mut lines = shared.followers.follow(attempt.into());
            let record = shared.store.environment(id).await?;
            let record = record.ok_or_else(|| EnvironmentProblem::Removed(id.clone()))?;
            // The attempt comes before its lines: offsets begin again with each attempt.
            let tell = |record: EnvironmentRecord| {
                progress(EnsureProgress::Attempt(Box::new(self.shown_environment(record))));
            };
            match (&record.attempt, &record.last) {
                (Some(current), _) if current.id == *attempt => {
                    if seen.as_ref() != Some(current) {
                        seen = Some(current.clone());
                        tell(record);
                    }
                    offset = self.tell_lines(attempt, offset, progress).await?;
                }
                (_, Some(last)) if last.attempt.id == *attempt => {
                    let end = last.clone();
                    if seen.is_none() {
                        tell(record.clone());
                    }
                    self.tell_lines(attempt, offset, progress).await?;
                    return Ok(Some((record, end)));
                }
                (_, _) => return Ok(None),
            }
            loop {
                tokio::select! {
                    biased;
                    () = shared.stopping.cancelled() => return Err(ServiceError::Stopping),
                    () = &mut changes => break,
                    () = lines => {}
                }
                lines = shared.followers.follow(attempt.into());
                offset = self.tell_lines(attempt, offset, progress).await?;
            }
        }
    }

    async fn tell_lines(
        &self,
        attempt: &OperationId,
        from: u64,
        progress: &(dyn Fn(EnsureProgress) + Send + Sync),
    ) -> Result<u64, ServiceError> {
        let mut next = from;
        loop {
            let page = self.shared.storage.log(&attempt.into(), next, BUILD_LOG_LINES_MAX).await?;
            if page.lines.is_empty() {
                return Ok(next);
            }
            for (offset, line) in (next..).zip(page.lines) {
                progress(EnsureProgress::Line { attempt: attempt.clone(), offset, line });
                next = offset + 1;
            }
        }
    }

    /// Waits until the record of an environment has changed.
    pub(super) async fn changes_after(&self, changes: OwnedNotified) -> Result<(), ServiceError> {
        tokio::select! {
            biased;
            () = self.shared.stopping.cancelled() => Err(ServiceError::Stopping),
            () = changes => Ok(()),
        }
    }

    /// Returns lines of the log of the latest attempt for an environment from an offset on. Without
    /// any, waits for some for at most `patience`, unless the attempt has ended.
    ///
    /// # Errors
    ///
    /// `Environment` if there is none.
    pub async fn environment_log(
        &self,
        named: &str,
        from: u64,
        most: usize,
        patience: Duration,
    ) -> Result<(LogPage, EnvironmentRecord), ServiceError> {
        let until = tokio::time::Instant::now() + patience;
        loop {
            let record = self.own_environment(named).await?;
            let current = record.attempt.as_ref().map(|attempt| attempt.id.clone());
            let attempt = current.clone().or_else(|| record.last.as_ref().map(|end| end.attempt.id.clone()));
            let Some(attempt) = attempt else { return Ok((LogPage::default(), self.shown_environment(record))) };
            let news = self.shared.followers.follow((&attempt).into());
            let page = self.shared.storage.log(&(&attempt).into(), from, most.min(BUILD_LOG_LINES_MAX)).await?;
            let is_over = current.is_none() || !page.lines.is_empty();
            if is_over || !self.changes_before(news, until).await? {
                return Ok((page, self.shown_environment(record)));
            }
        }
    }
}
