//! The expected state of everything, learned from commits and from answers to callers.
//!
//! It watches every commit: the effect on the memory of a sandbox, whether the commit is allowed
//! after the previous ones, and whether an answer to a caller was true at some moment between
//! request and answer. It knows no rule of the service, only its promises.

mod builds;
mod callers;
mod commits;
mod environments;
mod memory;
mod pools;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dorm_engine_fake::FakeHost;
use dorm_lifecycle::{
    BuildId, EnvironmentId, InheritedSettings, PoolId, Sandbox, SandboxId, SavedStateId, SnapshotId, StateName,
    TemplateId, VolumeId, Writers,
};
use dorm_store::{
    EnvironmentRecord, EventRecord, OnPartialFailure, OperationRecord, OperationResult, PoolRecord, SandboxRecord,
    SnapshotRecord, TemplateRecord,
};

use crate::trace::Trace;

use builds::KnownBuild;
pub(crate) use builds::Making;
pub(crate) use callers::caller;
pub(crate) use environments::Wanted;
pub(crate) use memory::{Bounds, Counter, Memory};

/// The kinds of faults in a simulation run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Misfortune {
    /// Only the daemon dies: no operation may fail and no run may be lost.
    OnlyDeaths,
    /// Engines fail, disks are full, hosts lose their power.
    Any,
}

/// The known state of a simulation run.
pub(crate) struct Model {
    state: Mutex<State>,
    trace: Trace,
    saved_states: PathBuf,
    misfortune: Misfortune,
    host: FakeHost,
}

#[derive(Default)]
struct State {
    /// The number of commits so far.
    now: u64,
    sandboxes: BTreeMap<SandboxId, Known>,
    snapshots: BTreeMap<SnapshotId, KnownSnapshot>,
    /// The content of the files in every layer that ever existed.
    layers: BTreeMap<SavedStateId, Memory>,
    operations: BTreeMap<String, OperationRecord>,
    /// Children of forks that roll back on partial failure: the service itself may end them.
    rolled_back_together: BTreeSet<SandboxId>,
    discard: Vec<SavedStateId>,
    pools: BTreeMap<PoolId, PoolRecord>,
    builds: BTreeMap<BuildId, KnownBuild>,
    templates: BTreeMap<TemplateId, TemplateRecord>,
    /// The sandboxes of steps of builds: the service itself ends them.
    of_builds: BTreeSet<SandboxId>,
    environments: BTreeMap<EnvironmentId, EnvironmentRecord>,
    /// The sandboxes that environments have made: only the service and callers who use environments
    /// end them.
    of_environments: BTreeSet<SandboxId>,
    /// Whether a caller may have cancelled an attempt.
    environments_cancelled: bool,
    /// The sandboxes that callers were told they have claimed.
    claimed: BTreeSet<SandboxId>,
    /// The writers that each volume allows.
    volumes: BTreeMap<VolumeId, Writers>,
    events: Vec<EventRecord>,
    /// The number of values that callers wrote, so that each is written only once.
    values: u64,
    /// The number of power failures.
    power_failures: u32,
}

/// The known state of a sandbox.
struct Known {
    record: SandboxRecord,
    /// Its committed states, each with the number of the commit.
    past: Vec<(u64, Sandbox)>,
    /// The settings that the snapshot carried from which it started.
    inherited: Option<InheritedSettings>,
    /// Its state according to its events.
    told: StateName,
    live: Memory,
    /// The memory of the run that a rewind has left and that is being saved.
    held: Memory,
    /// The memory in each of its valid images.
    images: BTreeMap<SavedStateId, Memory>,
    /// The memory when the snapshot in progress began.
    earliest: Memory,
    /// Counts the moments after which earlier answers about its memory need no longer hold.
    epoch: u64,
    terminate_asked: bool,
    is_rolled_back_with_fork: bool,
    is_of_build: bool,
    /// A promotion of it is done or in progress: the service itself ends it.
    is_promoted: bool,
    busy: bool,
}

struct KnownSnapshot {
    record: SnapshotRecord,
    memory: Memory,
    /// The time of its first commit, on the monotonic clock.
    seen: tokio::time::Instant,
    /// Set before a caller asks for its deletion.
    deletion_asked: bool,
}

/// A caller's exclusive hold on the memory of a sandbox, until it is dropped.
pub(crate) struct Hold<'a> {
    model: &'a Model,
    id: SandboxId,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if let Some(known) = self.model.lock().sandboxes.get_mut(&self.id) {
            known.busy = false;
        }
    }
}

impl Hold<'_> {
    /// The number of the present epoch, and the memory in it.
    pub(crate) fn memory(&self) -> Option<(u64, Memory)> {
        let state = self.model.lock();
        state.sandboxes.get(&self.id).map(|known| (known.epoch, known.live.clone()))
    }

    /// Changes the known memory, unless another epoch has begun. Returns whether it was changed.
    pub(crate) fn learn(&self, epoch: u64, learn: impl FnOnce(&mut Memory)) -> bool {
        let mut state = self.model.lock();
        match state.sandboxes.get_mut(&self.id) {
            Some(known) if known.epoch == epoch => {
                learn(&mut known.live);
                true
            }
            Some(_) | None => false,
        }
    }
}

impl Model {
    pub(crate) fn new(trace: Trace, saved_states: PathBuf, misfortune: Misfortune, host: FakeHost) -> Self {
        Self { state: Mutex::default(), trace, saved_states, misfortune, host }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn misfortune(&self) -> Misfortune {
        self.misfortune
    }

    /// The number of the last commit.
    pub(crate) fn now(&self) -> u64 {
        self.lock().now
    }

    /// The sandboxes that are not terminated, but for those of builds and environments.
    pub(crate) fn living(&self) -> Vec<SandboxId> {
        let state = self.lock();
        let living = state.sandboxes.iter().filter(|(id, known)| {
            let is_of_work = state.of_builds.contains(*id) || state.of_environments.contains(*id);
            known.state() != StateName::Terminated && !is_of_work
        });
        living.map(|(id, _)| id.clone()).collect()
    }

    /// All sandboxes that ever existed.
    pub(crate) fn all(&self) -> Vec<SandboxId> {
        self.lock().sandboxes.keys().cloned().collect()
    }

    pub(crate) fn snapshots(&self) -> Vec<SnapshotId> {
        self.lock().snapshots.keys().cloned().collect()
    }

    /// The last committed record of every sandbox.
    pub(crate) fn records(&self) -> Vec<SandboxRecord> {
        self.lock().sandboxes.values().map(|known| known.record.clone()).collect()
    }

    pub(crate) fn snapshot_records(&self) -> Vec<SnapshotRecord> {
        self.lock().snapshots.values().map(|known| known.record.clone()).collect()
    }

    pub(crate) fn open_operations(&self) -> Vec<OperationRecord> {
        let state = self.lock();
        state.operations.values().filter(|operation| operation.ended.is_none()).cloned().collect()
    }

    /// Ended forks that roll back on partial failure: whether each was done, and its children.
    pub(crate) fn forks_that_roll_back(&self) -> Vec<(bool, Vec<SandboxId>)> {
        let state = self.lock();
        let over = state.operations.values().filter_map(|operation| {
            let plan = operation.fork.as_ref().filter(|plan| plan.on_partial_failure == OnPartialFailure::RollBack)?;
            let (_, result) = operation.ended.as_ref()?;
            Some((*result == OperationResult::Done, plan.children.clone()))
        });
        over.collect()
    }

    /// The children whose promotion is done.
    pub(crate) fn promoted(&self) -> Vec<SandboxId> {
        let state = self.lock();
        let done = state.operations.values().filter_map(|operation| {
            let plan = operation.promote.as_ref()?;
            let (_, result) = operation.ended.as_ref()?;
            (*result == OperationResult::Done).then(|| plan.child.clone())
        });
        done.collect()
    }

    pub(crate) fn to_discard(&self) -> Vec<SavedStateId> {
        self.lock().discard.clone()
    }

    pub(crate) fn events(&self) -> Vec<EventRecord> {
        self.lock().events.clone()
    }

    /// The state of a sandbox according to its events.
    pub(crate) fn told(&self, id: &SandboxId) -> Option<StateName> {
        self.lock().sandboxes.get(id).map(|known| known.told)
    }

    pub(crate) fn record(&self, id: &SandboxId) -> Option<SandboxRecord> {
        self.lock().sandboxes.get(id).map(|known| known.record.clone())
    }

    /// Whether a sandbox began with the settings that its snapshot carried.
    pub(crate) fn inherits(&self, id: &SandboxId) -> bool {
        let state = self.lock();
        let Some(Known { inherited: Some(inherited), past, .. }) = state.sandboxes.get(id) else { return true };
        past.first().is_none_or(|(_, first)| first.spec.inherited() == *inherited)
    }

    /// Notes that a caller is about to terminate the sandbox.
    pub(crate) fn terminate_asked(&self, id: &SandboxId) {
        if let Some(known) = self.lock().sandboxes.get_mut(id) {
            known.terminate_asked = true;
        }
    }

    /// Notes that a caller is about to delete the snapshot.
    pub(crate) fn deletion_asked(&self, id: &SnapshotId) {
        if let Some(known) = self.lock().snapshots.get_mut(id) {
            known.deletion_asked = true;
        }
    }

    /// Notes that the power has failed and the host was booted.
    pub(crate) fn power_failed(&self) {
        self.lock().power_failures += 1;
    }

    /// A value that was not written yet.
    pub(crate) fn fresh_value(&self) -> u64 {
        let mut state = self.lock();
        state.values += 1;
        state.values
    }

    /// Takes the hold on a sandbox's memory, if it is free.
    pub(crate) fn hold(&self, id: &SandboxId) -> Option<Hold<'_>> {
        let mut state = self.lock();
        let known = state.sandboxes.get_mut(id)?;
        if known.busy {
            return None;
        }
        known.busy = true;
        Some(Hold { model: self, id: id.clone() })
    }

    /// Whether `holds` was true of a sandbox at some moment since the commit `since`.
    pub(crate) fn was_true(&self, id: &SandboxId, since: u64, holds: impl Fn(&Sandbox) -> bool) -> bool {
        let state = self.lock();
        let Some(known) = state.sandboxes.get(id) else { return false };
        let before = known.past.iter().rposition(|(at, _)| *at <= since).unwrap_or_default();
        known.past[before..].iter().any(|(_, sandbox)| holds(sandbox))
    }

    /// The last committed record of a snapshot, if it exists.
    pub(crate) fn snapshot(&self, id: &SnapshotId) -> Option<SnapshotRecord> {
        self.lock().snapshots.get(id).map(|known| known.record.clone())
    }
}

impl Known {
    fn state(&self) -> StateName {
        self.record.sandbox.state.name()
    }
}
