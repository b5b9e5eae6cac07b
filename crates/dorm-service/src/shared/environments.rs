//! Facts about environments besides their records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dorm_lifecycle::environment::OnLeave;
use dorm_lifecycle::{EnvironmentId, OperationId, ProjectId, Timestamp};
use dorm_store::EnvironmentRecord;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio_util::sync::CancellationToken;

use crate::keyed::KeyedLocks;

/// How long an earlier sandbox is kept.
pub(crate) const RETIRED_KEPT: std::time::Duration = std::time::Duration::from_secs(7 * 86_400);

/// Facts about environments besides their records.
#[derive(Default)]
pub(crate) struct Environments {
    /// Notified when something is due earlier than before.
    pub(crate) news: Notify,
    /// Held while the record of an environment is decided about.
    pub(crate) turns: KeyedLocks<EnvironmentId>,
    /// Held while a workspace is set up, until its snapshot is taken.
    pub(crate) setups: KeyedLocks<(ProjectId, String)>,
    /// The project of every environment.
    all: Mutex<BTreeMap<EnvironmentId, ProjectId>>,
    /// When each environment needs work next.
    due: Mutex<BTreeMap<EnvironmentId, Timestamp>>,
    working: Mutex<BTreeMap<EnvironmentId, Work>>,
    waiting: Mutex<BTreeMap<OperationId, Waiting>>,
    /// Notified of a change of any record. Wakes in the order of waiting: a watch channel does not,
    /// and no run of the simulator could be repeated.
    changes: Arc<Notify>,
}

/// Work in progress on an environment.
#[derive(Default)]
struct Work {
    /// The attempt that is carried out, once that is known.
    attempt: Option<OperationId>,
    cancel: CancellationToken,
}

/// The callers that wait for an attempt.
#[derive(Default)]
struct Waiting {
    callers: usize,
    /// Whether one of them wants the attempt to continue without callers.
    continues: bool,
}

impl Environments {
    fn all(&self) -> MutexGuard<'_, BTreeMap<EnvironmentId, ProjectId>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn due(&self) -> MutexGuard<'_, BTreeMap<EnvironmentId, Timestamp>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn working(&self) -> MutexGuard<'_, BTreeMap<EnvironmentId, Work>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<OperationId, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what ends with the next change of the record of any environment.
    pub(crate) fn changes(&self) -> OwnedNotified {
        self.changes.clone().notified_owned()
    }

    /// Tells that the record of an environment has changed.
    pub(crate) fn changed(&self) {
        self.changes.notify_waiters();
    }

    /// Notes when an environment needs work, from its record.
    pub(crate) fn note(&self, record: &EnvironmentRecord) {
        self.all().insert(record.id.clone(), record.project.clone());
        let is_at_work = record.attempt.is_some() || record.ending.is_some() || record.removed;
        let leases = record.leases.iter().map(|lease| lease.until);
        let retired = record.retired.iter().map(|retired| retired.at.after(RETIRED_KEPT));
        let next = match is_at_work {
            true => Some(Timestamp::default()),
            false => leases.chain(retired).min(),
        };
        match next {
            Some(at) => drop(self.due().insert(record.id.clone(), at)),
            None => drop(self.due().remove(&record.id)),
        }
        self.news.notify_one();
    }

    /// Notes when work on an environment is tried again.
    pub(crate) fn postpone(&self, id: &EnvironmentId, at: Timestamp) {
        self.due().insert(id.clone(), at);
        self.news.notify_one();
    }

    /// Forgets an environment whose record is gone.
    pub(crate) fn forget(&self, id: &EnvironmentId) {
        self.due().remove(id);
        self.all().remove(id);
    }

    /// Returns how many environments a project has.
    pub(crate) fn count(&self, project: &ProjectId) -> usize {
        self.all().values().filter(|of| *of == project).count()
    }

    /// Returns the environments that need work now and have none in progress, and when the next one
    /// will.
    pub(crate) fn take_due(&self, now: Timestamp) -> (Vec<EnvironmentId>, Option<Timestamp>) {
        let (due, working) = (self.due(), self.working());
        let now_due = due.iter().filter(|(id, at)| **at <= now && !working.contains_key(*id));
        let next = due.values().filter(|at| **at > now).min();
        (now_due.map(|(id, _)| id.clone()).collect(), next.copied())
    }

    /// Notes that work on an environment is in progress. Returns whether there was none.
    pub(crate) fn begin(&self, id: &EnvironmentId) -> bool {
        let mut working = self.working();
        let is_first = !working.contains_key(id);
        working.entry(id.clone()).or_default();
        is_first
    }

    /// Returns what cancels the next part of the work on an environment. The record is read after
    /// it: a cancellation is then in one of them.
    pub(crate) fn next_part(&self, id: &EnvironmentId) -> CancellationToken {
        let work = Work::default();
        let cancel = work.cancel.clone();
        self.working().insert(id.clone(), work);
        cancel
    }

    /// Notes which attempt is carried out.
    pub(crate) fn carries_out(&self, id: &EnvironmentId, attempt: &OperationId) {
        if let Some(work) = self.working().get_mut(id) {
            work.attempt = Some(attempt.clone());
        }
    }

    /// Notes that no work on an environment is in progress.
    pub(crate) fn end(&self, id: &EnvironmentId) {
        self.working().remove(id);
        self.news.notify_one();
    }

    /// Cancels the work on an attempt, unless that is known to be on a later one.
    pub(crate) fn cancel(&self, id: &EnvironmentId, attempt: &OperationId) {
        if let Some(work) = self.working().get(id)
            && work.attempt.as_ref().is_none_or(|current| current == attempt)
        {
            work.cancel.cancel();
        }
    }

    /// Whether the work on an attempt is cancelled.
    pub(crate) fn is_cancelled(&self, id: &EnvironmentId, attempt: &OperationId) -> bool {
        let working = self.working();
        working.get(id).is_some_and(|work| work.attempt.as_ref() == Some(attempt) && work.cancel.is_cancelled())
    }

    /// Notes that a caller waits for an attempt.
    pub(crate) fn wait_for(&self, attempt: &OperationId, on_leave: OnLeave) {
        let mut waiting = self.waiting();
        let entry = waiting.entry(attempt.clone()).or_default();
        entry.callers += 1;
        entry.continues |= on_leave == OnLeave::Continue;
    }

    /// Whether a caller waits for an attempt.
    pub(crate) fn is_waited_for(&self, attempt: &OperationId) -> bool {
        self.waiting().contains_key(attempt)
    }

    /// Notes that a caller does not wait for an attempt any more. Returns whether nobody needs the
    /// attempt.
    pub(crate) fn leave(&self, attempt: &OperationId) -> bool {
        let mut waiting = self.waiting();
        let Some(entry) = waiting.get_mut(attempt) else { return false };
        entry.callers = entry.callers.saturating_sub(1);
        if entry.callers > 0 {
            return false;
        }
        let continues = entry.continues;
        waiting.remove(attempt);
        !continues
    }
}
