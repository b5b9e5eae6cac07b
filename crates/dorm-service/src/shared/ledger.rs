//! The shares of the host's resources that running sandboxes have.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use dorm_lifecycle::{Resources, Sandbox, SandboxId, State};

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

    /// Returns the share of a recorded sandbox, including that of a rewind in progress.
    pub(crate) fn of_sandbox(sandbox: &Sandbox) -> Self {
        let then = sandbox.state.rewind().map_or_else(Self::default, |rewind| Self::of(&rewind.resources));
        Self::of(&sandbox.spec.resources).max(then)
    }

    pub(crate) fn times(self, count: u64) -> Self {
        self.each(Self { memory_bytes: count, cpu_millis: count, disk_bytes: count }, u64::saturating_mul)
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
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

/// The shares of the running sandboxes.
#[derive(Default)]
pub(crate) struct Ledger {
    committed: Mutex<BTreeMap<SandboxId, Share>>,
    /// Held from a check until its result is recorded, so that two requests do not get the same
    /// room.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl Ledger {
    /// Records the share of a recorded sandbox.
    pub(crate) fn note(&self, sandbox: &Sandbox) {
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        match &sandbox.state {
            State::Pending { .. }
            | State::Running { .. }
            | State::Snapshotting { .. }
            | State::Suspending { .. }
            | State::Resuming { .. }
            | State::Terminating { .. } => {
                committed.insert(sandbox.id.clone(), Share::of_sandbox(sandbox));
            }
            // It already holds the room that it needs after the rewind.
            State::Suspended { .. } if sandbox.state.rewind().is_some() => {
                committed.insert(sandbox.id.clone(), Share::of_sandbox(sandbox));
            }
            State::Suspended { .. } | State::Terminated { .. } => {
                committed.remove(&sandbox.id);
            }
        }
    }

    /// Records the share of a sandbox that is about to run.
    pub(crate) fn reserve(&self, sandbox: &SandboxId, share: Share) {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner).insert(sandbox.clone(), share);
    }

    pub(crate) fn committed(&self) -> Share {
        let committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        committed.values().fold(Share::default(), |sum, share| sum.plus(*share))
    }
}
