//! The shares of the host's resources that running sandboxes have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dorm_lifecycle::{ProjectId, Resources, Sandbox, SandboxId, State};
use tokio::sync::Notify;

use crate::keyed::KeyedLocks;

/// The resource limits of a running sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Share {
    pub(crate) memory_bytes: u64,
    pub(crate) cpu_millis: u64,
    pub(crate) disk_bytes: u64,
}

impl Share {
    pub(crate) fn of(resources: &Resources) -> Self {
        Self {
            memory_bytes: resources.memory_bytes,
            cpu_millis: resources.cpu_millis.into(),
            disk_bytes: resources.disk_bytes,
        }
    }

    /// Returns the share of a recorded sandbox, including that of a rewind or a resize in progress.
    pub(crate) fn of_sandbox(sandbox: &Sandbox) -> Self {
        let then = sandbox.next_resources().as_ref().map_or_else(Self::default, Self::of);
        match sandbox.held_resources() {
            Some(held) if sandbox.state.held().is_some() => Self::of(&sandbox.spec.resources).beside(&held),
            Some(held) => then.beside(&held),
            None => Self::of(&sandbox.spec.resources).max(then),
        }
    }

    /// Returns the share together with that of a paused run, which uses no CPU.
    pub(crate) fn beside(self, paused: &Resources) -> Self {
        self.plus(Self { cpu_millis: 0, ..Self::of(paused) })
    }

    pub(crate) fn times(self, count: u64) -> Self {
        self.each(Self { memory_bytes: count, cpu_millis: count, disk_bytes: count }, u64::saturating_mul)
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    pub(crate) fn max(self, other: Self) -> Self {
        self.each(other, u64::max)
    }

    fn each(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            memory_bytes: with(self.memory_bytes, other.memory_bytes),
            cpu_millis: with(self.cpu_millis, other.cpu_millis),
            disk_bytes: with(self.disk_bytes, other.disk_bytes),
        }
    }
}

/// A running sandbox.
struct Entry {
    project: ProjectId,
    share: Share,
}

/// The sum over running sandboxes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Committed {
    /// How many there are.
    pub(crate) count: u64,
    /// Their shares.
    pub(crate) share: Share,
}

/// The shares of the running sandboxes.
#[derive(Default)]
pub(crate) struct Ledger {
    committed: Mutex<BTreeMap<SandboxId, Entry>>,
    /// Held from a check until its result is recorded, so that two requests do not get the same
    /// room.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// Held by the request that waits for room on the host and is the next to get some.
    pub(crate) queue: tokio::sync::Mutex<()>,
    /// The same for each project: held by the request that is the next of the project.
    pub(crate) queues: KeyedLocks<ProjectId>,
    /// Notified when there may be room again.
    pub(crate) freed: Notify,
}

impl Ledger {
    /// Records the share of a recorded sandbox.
    pub(crate) fn note(&self, sandbox: &Sandbox) {
        match &sandbox.state {
            State::Pending { .. }
            | State::Running { .. }
            | State::Snapshotting { .. }
            | State::Suspending { .. }
            | State::Resuming { .. }
            | State::Terminating { .. } => self.reserve(&sandbox.id, &sandbox.project, Share::of_sandbox(sandbox)),
            // It already holds the room that it needs after the rewind.
            State::Suspended { .. } if sandbox.state.rewind().is_some() => {
                self.reserve(&sandbox.id, &sandbox.project, Share::of_sandbox(sandbox));
            }
            State::Suspended { .. } | State::Terminated { .. } => {
                if self.lock().remove(&sandbox.id).is_some() {
                    self.freed.notify_waiters();
                }
            }
        }
    }

    /// Records the share of a sandbox that is about to run.
    pub(crate) fn reserve(&self, sandbox: &SandboxId, project: &ProjectId, share: Share) {
        let entry = Entry { project: project.clone(), share };
        let before = self.lock().insert(sandbox.clone(), entry);
        if before.is_some_and(|before| before.share != share) {
            self.freed.notify_waiters();
        }
    }

    /// Returns the sum over all running sandboxes, or those of one project, other than `except`.
    pub(crate) fn committed(&self, project: Option<&ProjectId>, except: Option<&SandboxId>) -> Committed {
        let committed = self.lock();
        let counted = committed.iter().filter(|(id, entry)| {
            except.is_none_or(|except| *id != except) && project.is_none_or(|project| entry.project == *project)
        });
        counted.fold(Committed::default(), |sum, (_, entry)| Committed {
            count: sum.count + 1,
            share: sum.share.plus(entry.share),
        })
    }

    /// Returns the sum over the running sandboxes of each project that has any.
    pub(crate) fn by_project(&self) -> BTreeMap<ProjectId, Committed> {
        let mut sums: BTreeMap<ProjectId, Committed> = BTreeMap::new();
        for entry in self.lock().values() {
            let sum = sums.entry(entry.project.clone()).or_default();
            *sum = Committed { count: sum.count + 1, share: sum.share.plus(entry.share) };
        }
        sums
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Entry>> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
