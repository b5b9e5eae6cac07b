//! When the automatic snapshots of each sandbox are due.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dorm_lifecycle::{Sandbox, SandboxId, State, Taken, Timestamp};
use dorm_store::{Maker, SnapshotRecord};
use tokio::sync::{Notify, Semaphore};

/// How many snapshots are taken at a time: many that are due at once must not use up the disk's
/// throughput.
const AT_A_TIME: usize = 2;

/// When the snapshots of each sandbox are due.
pub(crate) struct Checkpointing {
    all: Mutex<All>,
    pub(crate) news: Notify,
    pub(crate) turns: Semaphore,
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
    pub(crate) fn due(&self, now: Timestamp) -> Vec<(SandboxId, Taken)> {
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
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let all = self.all();
        all.watched.iter().filter(|(id, _)| !all.busy.contains(*id)).map(|(_, watched)| watched.due).min()
    }

    pub(crate) fn take(&self, sandbox: &SandboxId) {
        self.all().busy.insert(sandbox.clone());
    }

    pub(crate) fn over(&self, sandbox: &SandboxId) {
        self.all().busy.remove(sandbox);
        self.news.notify_one();
    }
}
