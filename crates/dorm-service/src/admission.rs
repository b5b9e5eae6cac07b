//! Admission: new work is refused while the host still has room for what exists, before it is in
//! trouble, and with a reason.
//!
//! Everything that takes more of the host asks for admission: create, resume, snapshot, import.
//! Suspend and terminate never do, because they release resources. Before a request is refused for
//! lack of memory, the memory of parked sandboxes is released.

use dorm_lifecycle::SandboxId;
use tokio::sync::MutexGuard;

use crate::error::ServiceError;
use crate::messages::Message;
use crate::shared::{Share, Shared};

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
            let deleted = self.engine.deleted_image_bytes().await;
            if used.saturating_add(deleted).saturating_add(bytes) > budget {
                let running = match deleted {
                    0 => String::new(),
                    _ => format!(", and deleted ones on which sandboxes still run, {deleted}"),
                };
                let reason = format!("sleep images and snapshots occupy {used}{running} of at most {budget} bytes");
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
