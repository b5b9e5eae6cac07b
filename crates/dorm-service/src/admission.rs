//! Admission: new work is refused while the host still has room for what exists, before it is in
//! trouble, and with a reason.
//!
//! Everything that takes more of the host asks for admission: create, resume, snapshot, import.
//! Suspend and terminate never do, because they release resources. Before a request is refused for
//! lack of memory, the memory of parked sandboxes is released.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use dorm_lifecycle::{Resources, Sandbox, SandboxId, State};
use tokio::sync::MutexGuard;

use crate::actor::Message;
use crate::error::ServiceError;
use crate::shared::Shared;

/// Limits on the use of the host. Each one is optional.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Budgets {
    /// The largest sum of the memory limits of all running sandboxes, in bytes. `None` for no
    /// limit.
    pub memory_bytes: Option<u64>,
    /// Host memory that must stay available, in bytes. Default 0.
    pub memory_reserve_bytes: u64,
    /// The largest sum of the CPU limits of all running sandboxes, in thousandths of a CPU. `None`
    /// for no limit.
    pub cpu_millis: Option<u64>,
    /// The largest number of sandboxes that are not terminated. `None` for no limit.
    pub sandboxes: Option<u64>,
    /// The largest total size of sleep images and snapshots, in bytes. `None` for no limit.
    pub disk_bytes: Option<u64>,
    /// Space on the disk that must stay free, in bytes. Default 0.
    pub disk_reserve_bytes: u64,
    /// The largest sum of the disks of all running sandboxes and of all volumes, in bytes. `None`
    /// for no limit.
    pub disks_bytes: Option<u64>,
    /// Sandboxes are paused when fewer bytes are free on the disk; they continue at twice as many.
    /// Default 0.
    pub disk_floor_bytes: u64,
}

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
    turn: tokio::sync::Mutex<()>,
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

/// Admission for a run, held until the run is recorded or given up.
pub(crate) struct Admitted<'a>(#[allow(dead_code, reason = "it is held")] MutexGuard<'a, ()>);

impl Shared {
    /// Admits a run, releasing the memory of parked sandboxes if that helps.
    pub(crate) async fn admit_run(&self, what: &'static str, share: Share) -> Result<Admitted<'_>, ServiceError> {
        let turn = self.ledger.turn.lock().await;
        let budgets = self.settings.budgets;
        let Share { memory_bytes: committed, cpu_millis, disk_bytes } = self.ledger.committed();
        let memory_bytes = share.memory_bytes;
        if let Some(budget) = budgets.memory_bytes
            && committed.saturating_add(memory_bytes) > budget
        {
            let reason = format!(
                "it may use {memory_bytes} bytes of memory, and running sandboxes may use {committed} of the {budget} \
                 in the budget"
            );
            return Err(refused(what, reason));
        }
        if let Some(budget) = budgets.cpu_millis
            && cpu_millis.saturating_add(share.cpu_millis) > budget
        {
            let reason = format!(
                "it may use {} thousandths of a CPU, and running sandboxes may use {cpu_millis} of the {budget} in the \
                 budget",
                share.cpu_millis
            );
            return Err(refused(what, reason));
        }
        self.admit_disk(what, share.disk_bytes, disk_bytes).await?;
        while let Some(reason) = self.short_of_memory() {
            let Some(sandbox) = self.parking.oldest() else { return Err(refused(what, reason)) };
            self.give_back(&sandbox).await;
        }
        Ok(Admitted(turn))
    }

    /// Checks whether another disk of `bytes` can be promised in addition to those of running
    /// sandboxes, `committed` in total.
    pub(crate) async fn admit_disk(&self, what: &'static str, bytes: u64, committed: u64) -> Result<(), ServiceError> {
        let Some(budget) = self.settings.budgets.disks_bytes else { return Ok(()) };
        let volumes = self.volumes_bytes().await?;
        if committed.saturating_add(volumes).saturating_add(bytes) <= budget {
            return Ok(());
        }
        let reason = format!(
            "its disk has {bytes} bytes; running sandboxes have {committed} and volumes {volumes} of the {budget} \
             that the host's disk allows for (--disk-overcommit)"
        );
        Err(refused(what, reason))
    }

    /// Returns the total size of the volumes, in bytes.
    pub(crate) async fn volumes_bytes(&self) -> Result<u64, ServiceError> {
        Ok(self.store.volumes().await?.iter().map(|volume| volume.size_bytes).fold(0, u64::saturating_add))
    }

    /// Checks whether one more sandbox may exist. The caller must hold the admission of a run.
    pub(crate) async fn admit_another(&self, what: &'static str, _: &Admitted<'_>) -> Result<(), ServiceError> {
        let Some(budget) = self.settings.budgets.sandboxes else { return Ok(()) };
        let living = u64::try_from(self.living_count().await?).unwrap_or(u64::MAX);
        if living < budget {
            return Ok(());
        }
        Err(refused(what, format!("there are {living} sandboxes, and at most {budget} may exist, running or not")))
    }

    /// Checks whether `bytes` more may be written to the disk.
    pub(crate) async fn admit_write(&self, what: &'static str, bytes: u64) -> Result<(), ServiceError> {
        let budgets = self.settings.budgets;
        if budgets.disk_reserve_bytes > 0 {
            let free = self.storage.free_bytes().await?;
            let reserve = budgets.disk_reserve_bytes;
            if free < reserve.saturating_add(bytes) {
                let reason = format!("{free} bytes of the disk are free, and {reserve} must stay free");
                return Err(refused(what, reason));
            }
        }
        if let Some(budget) = budgets.disk_bytes {
            let used = self.saved_states_bytes().await?;
            if used.saturating_add(bytes) > budget {
                let reason = format!("sleep images and snapshots occupy {used} of at most {budget} bytes");
                return Err(refused(what, reason));
            }
        }
        Ok(())
    }

    /// Returns the recorded size of all sleep images and snapshots, in bytes. Copies that share
    /// files are each counted in full.
    pub(crate) async fn saved_states_bytes(&self) -> Result<u64, ServiceError> {
        let bytes = self.living.totals(&*self.store).await?.image_bytes;
        Ok(bytes.saturating_add(self.store.snapshot_bytes().await?))
    }

    fn short_of_memory(&self) -> Option<String> {
        let reserve = self.settings.budgets.memory_reserve_bytes;
        let available = self.settings.host.available_memory().filter(|_| reserve > 0)?;
        (available < reserve)
            .then(|| format!("{available} bytes of the host's memory are available, and {reserve} must stay available"))
    }

    async fn give_back(&self, sandbox: &SandboxId) {
        let Some(handle) = self.actor(sandbox) else {
            self.parking.leave(sandbox);
            return;
        };
        let (reply, answer) = tokio::sync::oneshot::channel();
        let sent = handle.mailbox.send(Message::Evict { reply: Some(reply) });
        if sent.is_err() || !matches!(answer.await, Ok(Ok(_))) {
            tracing::warn!(%sandbox, "cannot release the memory of a suspended sandbox");
        }
        // Whatever the result, it is not asked again for this.
        self.parking.leave(sandbox);
    }
}

fn refused(what: &'static str, reason: String) -> ServiceError {
    metrics::counter!("dorm_refused_total", "operation" => what).increment(1);
    ServiceError::NotAdmitted { what, reason }
}
