//! Figures of the whole service, for whoever watches it.

use std::collections::BTreeMap;

use dorm_lifecycle::StateName;
use dorm_store::RowKind;

use crate::admission::Budgets;
use crate::error::ServiceError;
use crate::shared::Service;

/// What the service holds now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figures {
    /// Living sandboxes by state.
    pub sandboxes: BTreeMap<StateName, usize>,
    /// How many have a run that does not answer.
    pub unreachable: usize,
    /// How many suspended ones are still held in memory.
    pub parked: usize,
    /// The host memory those hold, in bytes.
    pub parked_bytes: u64,
    /// What those that run may use, in bytes.
    pub committed_bytes: u64,
    /// What the host has available, in bytes; none where that is not known.
    pub available_bytes: Option<u64>,
    /// What is free on the disk, in bytes.
    pub disk_free_bytes: u64,
    /// How many sandboxes are paused until there is room on the disk.
    pub paused_for_disk: usize,
    /// What the disks of those that run, and of volumes, may occupy, in bytes.
    pub disks_bytes: u64,
    /// What sleep images and snapshots occupy, in bytes.
    pub captures_bytes: u64,
    /// Runs that are left alone because no record names them.
    pub unrecorded_runs: usize,
    /// Runs that are left alone because they belong to another data directory.
    pub foreign_runs: usize,
    /// Records that cannot be read, by kind.
    pub quarantined: BTreeMap<RowKind, usize>,
    /// Images, layers of images and saved states that are damaged, by kind.
    pub damaged: BTreeMap<&'static str, usize>,
    /// What may be used.
    pub budgets: Budgets,
}

impl Service {
    /// The figures.
    ///
    /// # Errors
    /// When records or the disk cannot be read.
    pub async fn figures(&self) -> Result<Figures, ServiceError> {
        let shared = &self.shared;
        let states = StateName::ALL.into_iter().filter(|name| *name != StateName::Terminated);
        let mut sandboxes: BTreeMap<StateName, usize> = states.map(|state| (state, 0)).collect();
        let totals = shared.living.totals(&*shared.store).await?;
        sandboxes.extend(totals.states);
        let (parked, parked_bytes) = shared.parking.held();
        let (unrecorded_runs, foreign_runs) = shared.left_alone.count();
        Ok(Figures {
            sandboxes,
            unreachable: totals.unreachable,
            parked,
            parked_bytes,
            committed_bytes: shared.ledger.committed().memory_bytes,
            available_bytes: shared.settings.host.available_memory(),
            disk_free_bytes: shared.pool.free_bytes().await?,
            paused_for_disk: shared.paused_for_disk.count(),
            disks_bytes: shared.ledger.committed().disk_bytes.saturating_add(shared.volumes_bytes().await?),
            captures_bytes: shared.captures_bytes().await?,
            unrecorded_runs,
            foreign_runs,
            quarantined: shared.quarantined.counts(),
            damaged: shared.soundness.counts(),
            budgets: shared.settings.budgets,
        })
    }
}
