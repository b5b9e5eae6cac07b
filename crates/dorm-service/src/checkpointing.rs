//! Snapshots taken automatically, according to the policies of sandboxes.
//!
//! One task handles all sandboxes. It sleeps until the next snapshot is due, and then checks in
//! memory whether the sandbox has been used since the last one: an unused sandbox costs neither a
//! snapshot nor a read of its record. Due times follow from the records alone, so a restarted
//! daemon continues the schedule of its predecessor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dorm_lifecycle::{EventKind, Initiator, Sandbox, SandboxId, State, Taken, Timestamp};
use dorm_store::{Change, Maker, NewEvent, SnapshotRecord};
use tokio::sync::{Notify, Semaphore};

use crate::error::{ServiceError, chain};
use crate::shared::Service;

/// The longest sleep: the host may be suspended meanwhile, which a timer does not count.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// How many snapshots are taken at a time: many that are due at once must not use up the disk's
/// throughput.
const AT_A_TIME: usize = 2;

/// When the snapshots of each sandbox are due.
pub(crate) struct Checkpointing {
    all: Mutex<All>,
    news: Notify,
    turns: Semaphore,
}

#[derive(Default)]
struct All {
    /// The running sandboxes with a policy.
    watched: BTreeMap<SandboxId, Watched>,
    /// The snapshots taken of each sandbox.
    taken: BTreeMap<SandboxId, Taken>,
    /// The sandboxes of which a snapshot is being taken or waits for its turn.
    busy: BTreeSet<SandboxId>,
}

struct Watched {
    every: Duration,
    since: Timestamp,
    due: Timestamp,
}

impl Default for Checkpointing {
    fn default() -> Self {
        Self { all: Mutex::default(), news: Notify::new(), turns: Semaphore::new(AT_A_TIME) }
    }
}

impl Checkpointing {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a snapshot taken by an earlier daemon. Whether the sandbox was used since is not
    /// recorded, so it counts as used.
    pub(crate) fn remember(&self, snapshot: &SnapshotRecord, now: Timestamp) {
        if snapshot.made_by != Maker::Policy || snapshot.created > now {
            return;
        }
        let mut all = self.all();
        let taken = all.taken.entry(snapshot.source.clone()).or_default();
        taken.tried = taken.tried.max(Some(snapshot.created));
    }

    /// Follows a sandbox; called whenever its record may have changed.
    pub(crate) fn follow(&self, sandbox: &Sandbox, now: Timestamp) {
        let (since, policy) = match (&sandbox.state, &sandbox.spec.checkpoints) {
            // It continues running.
            (State::Snapshotting { .. }, Some(_)) => return,
            (State::Running { since, .. }, Some(policy)) => (*since, policy),
            (_, _) => {
                self.all().watched.remove(&sandbox.id);
                return;
            }
        };
        let mut all = self.all();
        let same = |watched: &Watched| (watched.every, watched.since) == (policy.every, since);
        if all.watched.get(&sandbox.id).is_some_and(same) {
            return;
        }
        let taken = all.taken.get(&sandbox.id).copied().unwrap_or_default();
        let Some(due) = sandbox.checkpoint_due(taken, now) else { return };
        all.watched.insert(sandbox.id.clone(), Watched { every: policy.every, since, due });
        drop(all);
        self.news.notify_one();
    }

    /// Forgets a terminated sandbox.
    pub(crate) fn leave(&self, sandbox: &SandboxId) {
        let mut all = self.all();
        all.watched.remove(sandbox);
        all.taken.remove(sandbox);
    }

    /// Records that a snapshot is being taken: whatever its result, the next is due one interval
    /// from now.
    pub(crate) fn begun(&self, sandbox: &SandboxId, now: Timestamp) {
        let mut all = self.all();
        all.taken.entry(sandbox.clone()).or_default().tried = Some(now);
        if let Some(watched) = all.watched.get_mut(sandbox) {
            watched.due = now.after(watched.every);
        }
    }

    pub(crate) fn complete(&self, snapshot: &SnapshotRecord) {
        self.all().taken.entry(snapshot.source.clone()).or_default().complete = Some(snapshot.created);
    }

    /// Returns the sandboxes that are due, with what was taken of them; the next snapshot of each
    /// is due one interval from now.
    fn due(&self, now: Timestamp) -> Vec<(SandboxId, Taken)> {
        let mut all = self.all();
        let All { watched, taken, busy } = &mut *all;
        let due = watched.iter_mut().filter(|(id, watched)| watched.due <= now && !busy.contains(*id));
        due.map(|(id, watched)| {
            watched.due = now.after(watched.every);
            (id.clone(), taken.get(id).copied().unwrap_or_default())
        })
        .collect()
    }

    /// Returns when the next snapshot is due. For a busy sandbox, that is known when its snapshot
    /// ends.
    fn next(&self) -> Option<Timestamp> {
        let all = self.all();
        all.watched.iter().filter(|(id, _)| !all.busy.contains(*id)).map(|(_, watched)| watched.due).min()
    }

    fn take(&self, sandbox: &SandboxId) {
        self.all().busy.insert(sandbox.clone());
    }

    fn over(&self, sandbox: &SandboxId) {
        self.all().busy.remove(sandbox);
        self.news.notify_one();
    }
}

/// Takes due snapshots until the service stops.
pub(crate) async fn keep_checkpointing(service: Service) {
    let shared = &service.shared;
    loop {
        let now = shared.now();
        for (id, taken) in shared.checkpointing.due(now) {
            let Some(handle) = shared.actor(&id) else { continue };
            if taken.is_behind(handle.activity.last()) {
                shared.checkpointing.take(&id);
                let own = service.clone();
                shared.spawn(async move {
                    own.take_due(&id).await;
                    own.shared.checkpointing.over(&id);
                });
            }
        }
        let wait = shared.checkpointing.next().map_or(LOOK_AGAIN, |at| at.since(now).min(LOOK_AGAIN));
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = shared.checkpointing.news.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

impl Service {
    async fn take_due(&self, id: &SandboxId) {
        let shared = &self.shared;
        let turn = tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            turn = shared.checkpointing.turns.acquire() => turn,
        };
        // The policy or the state may have changed while other sandboxes had their turn.
        let Ok(record) = self.record(id).await else { return };
        let Some(policy) = record.sandbox.spec.checkpoints else { return };
        let taken = self.policy_snapshot(id, policy.kind, Initiator::Timer).await;
        drop(turn);
        let Err(error) = taken else { return };
        match &error {
            // It is not running any more, so there is nothing to take.
            ServiceError::NotRunning { .. } | ServiceError::Denied { .. } | ServiceError::Stopping => return,
            ServiceError::NoSandbox(_) => return,
            // The failure has been recorded as an event already.
            ServiceError::OperationFailed { .. } => {}
            _ => self.note_untaken(id, &error).await,
        }
        tracing::warn!(sandbox = %id, error = %chain(&error), "cannot take an automatic snapshot");
    }

    /// Records that a snapshot could not even be started.
    async fn note_untaken(&self, id: &SandboxId, error: &ServiceError) {
        let Ok(record) = self.record(id).await else { return };
        let event = NewEvent {
            project: record.sandbox.project,
            sandbox: id.clone(),
            at: self.shared.now(),
            kind: EventKind::SnapshotFailed,
            initiator: Initiator::Timer,
            operation: None,
            generation: record.sandbox.generation,
            detail: Some(error.message()),
            took: None,
            bytes: None,
        };
        if let Err(error) = self.shared.commit(Change { events: vec![event], ..Change::default() }).await {
            tracing::warn!(sandbox = %id, error = %chain(&error), "cannot record an event");
        }
    }
}
