//! Refusing new work while there is still room for what is there: before the host is in trouble, and with a reason.
//!
//! Asked for by whatever takes more of the host: create, resume, snapshot, import. Never by suspend or terminate, which
//! give back. Memory that parked sandboxes hold is given back before anything is refused for want of it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use dorm_lifecycle::{Resources, Sandbox, SandboxId, State};
use tokio::sync::MutexGuard;

use crate::actor::Message;
use crate::error::ServiceError;
use crate::shared::Shared;

/// What may be used of the host. Every limit may be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Budgets {
    /// What the memory limits of all sandboxes that run may add up to, in bytes. None for any sum.
    pub memory_bytes: Option<u64>,
    /// How much memory of the host must stay available, in bytes. Default 0.
    pub memory_reserve_bytes: u64,
    /// What the CPU limits of all sandboxes that run may add up to, in thousandths of a CPU. None for any sum.
    pub cpu_millis: Option<u64>,
    /// How many sandboxes may live, running or not. None for any number.
    pub sandboxes: Option<u64>,
    /// What sleep images and snapshots may occupy together, in bytes. None for any sum.
    pub disk_bytes: Option<u64>,
    /// How much of the disk must stay free, in bytes. Default 0.
    pub disk_reserve_bytes: u64,
    /// What the disks of all sandboxes that run, and of all volumes, may add up to, in bytes. None for any sum.
    pub disks_bytes: Option<u64>,
    /// With less than so many bytes free on the disk, sandboxes are paused; they go on with twice as many. Default 0.
    pub disk_floor_bytes: u64,
}

/// What only the host can tell.
pub trait HostFacts: Debug + Send + Sync + 'static {
    /// Memory that could be used without swapping, in bytes; none where that is not known.
    fn available_memory(&self) -> Option<u64>;
}

/// The host this runs on.
#[derive(Clone, Copy, Default, Debug)]
pub struct ThisHost;

impl HostFacts for ThisHost {
    #[allow(clippy::disallowed_methods, reason = "the kernel answers from memory, no disk is asked")]
    fn available_memory(&self) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib << 10)
    }
}

/// What somebody who runs may use at most.
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

    /// What a recorded sandbox may use, or may use as soon as a rewind is through.
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

/// What the sandboxes that run may use at most.
#[derive(Default)]
pub(crate) struct Ledger {
    committed: Mutex<BTreeMap<SandboxId, Share>>,
    /// Held from a question to the record of its answer, so that two do not get the same room.
    turn: tokio::sync::Mutex<()>,
}

impl Ledger {
    /// Takes down what a recorded sandbox may use.
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
            // It has the room already that it needs once it is taken back.
            State::Suspended { .. } if sandbox.state.rewind().is_some() => {
                committed.insert(sandbox.id.clone(), Share::of_sandbox(sandbox));
            }
            State::Suspended { .. } | State::Terminated { .. } => {
                committed.remove(&sandbox.id);
            }
        }
    }

    /// Takes down what a sandbox may use that is about to run.
    pub(crate) fn reserve(&self, sandbox: &SandboxId, share: Share) {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner).insert(sandbox.clone(), share);
    }

    pub(crate) fn committed(&self) -> Share {
        let committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        committed.values().fold(Share::default(), |sum, share| sum.plus(*share))
    }
}

/// Room that was found, until it is taken or let go.
pub(crate) struct Admitted<'a>(#[allow(dead_code, reason = "it is held")] MutexGuard<'a, ()>);

impl Shared {
    /// Finds room for a run, giving back what parked sandboxes hold where that helps.
    pub(crate) async fn admit_run(&self, what: &'static str, share: Share) -> Result<Admitted<'_>, ServiceError> {
        let turn = self.ledger.turn.lock().await;
        let budgets = self.settings.budgets;
        let Share { memory_bytes: committed, cpu_millis, disk_bytes } = self.ledger.committed();
        let memory_bytes = share.memory_bytes;
        if let Some(budget) = budgets.memory_bytes
            && committed.saturating_add(memory_bytes) > budget
        {
            let reason = format!(
                "it may use {memory_bytes} bytes of memory, and those that run may use {committed} of the {budget} \
                 that are to be given out"
            );
            return Err(refused(what, reason));
        }
        if let Some(budget) = budgets.cpu_millis
            && cpu_millis.saturating_add(share.cpu_millis) > budget
        {
            let reason = format!(
                "it may use {} thousandths of a CPU, and those that run may use {cpu_millis} of the {budget} that are to be \
                 given out",
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

    /// Finds out whether another disk of `bytes` may be promised beside those of sandboxes that run, `committed` in all.
    pub(crate) async fn admit_disk(&self, what: &'static str, bytes: u64, committed: u64) -> Result<(), ServiceError> {
        let Some(budget) = self.settings.budgets.disks_bytes else { return Ok(()) };
        let volumes = self.volumes_bytes().await?;
        if committed.saturating_add(volumes).saturating_add(bytes) <= budget {
            return Ok(());
        }
        let reason = format!(
            "its disk has {bytes} bytes, and the disks of sandboxes that run have {committed} and those of volumes \
             {volumes} of the {budget} that the host's disk allows for (--disk-overcommit)"
        );
        Err(refused(what, reason))
    }

    /// What the volumes may occupy, in bytes.
    pub(crate) async fn volumes_bytes(&self) -> Result<u64, ServiceError> {
        Ok(self.store.volumes().await?.iter().map(|volume| volume.size_bytes).fold(0, u64::saturating_add))
    }

    /// Finds out whether one more may live. Only for whoever has the turn that comes with room for a run.
    pub(crate) async fn admit_another(&self, what: &'static str, _: &Admitted<'_>) -> Result<(), ServiceError> {
        let Some(budget) = self.settings.budgets.sandboxes else { return Ok(()) };
        let living = u64::try_from(self.living_count().await?).unwrap_or(u64::MAX);
        if living < budget {
            return Ok(());
        }
        Err(refused(what, format!("there are {living} sandboxes, and {budget} may live, running or not")))
    }

    /// Finds out whether anything more may be written to the disk.
    pub(crate) async fn admit_write(&self, what: &'static str, bytes: u64) -> Result<(), ServiceError> {
        let budgets = self.settings.budgets;
        if budgets.disk_reserve_bytes > 0 {
            let free = self.pool.free_bytes().await?;
            let reserve = budgets.disk_reserve_bytes;
            if free < reserve.saturating_add(bytes) {
                let reason = format!("{free} bytes of the disk are free, of which {reserve} must stay so");
                return Err(refused(what, reason));
            }
        }
        if let Some(budget) = budgets.disk_bytes {
            let used = self.captures_bytes().await?;
            if used.saturating_add(bytes) > budget {
                let reason = format!("sleep images and snapshots occupy {used} of the {budget} bytes they may");
                return Err(refused(what, reason));
            }
        }
        Ok(())
    }

    /// What the sleep images of the living and all snapshots occupy by their records, in bytes. Copies that share files
    /// count each.
    pub(crate) async fn captures_bytes(&self) -> Result<u64, ServiceError> {
        let bytes = self.living.totals(&*self.store).await?.image_bytes;
        Ok(bytes.saturating_add(self.store.snapshot_bytes().await?))
    }

    fn short_of_memory(&self) -> Option<String> {
        let reserve = self.settings.budgets.memory_reserve_bytes;
        let available = self.settings.host.available_memory().filter(|_| reserve > 0)?;
        (available < reserve)
            .then(|| format!("{available} bytes of the host's memory are available, of which {reserve} must stay so"))
    }

    async fn give_back(&self, sandbox: &SandboxId) {
        let Some(handle) = self.actor(sandbox) else {
            self.parking.leave(sandbox);
            return;
        };
        let (reply, answer) = tokio::sync::oneshot::channel();
        let sent = handle.mailbox.send(Message::Evict { reply: Some(reply) });
        if sent.is_err() || !matches!(answer.await, Ok(Ok(_))) {
            tracing::warn!(%sandbox, "the memory of a suspended sandbox could not be given back");
        }
        // Whatever came of it, it is not asked again for this.
        self.parking.leave(sandbox);
    }
}

fn refused(what: &'static str, reason: String) -> ServiceError {
    metrics::counter!("dorm_refused_total", "operation" => what).increment(1);
    ServiceError::NotAdmitted { what, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_knows_its_memory() {
        assert!(ThisHost.available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
