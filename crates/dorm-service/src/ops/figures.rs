//! Figures about the whole service, for monitoring.

use std::collections::BTreeMap;

use dorm_lifecycle::StateName;
use dorm_store::RowKind;

use crate::error::ServiceError;
use crate::shared::{Budgets, Service};

/// The present figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figures {
    /// The number of sandboxes in each state except terminated.
    pub sandboxes: BTreeMap<StateName, usize>,
    /// The number of sandboxes with a run that does not answer.
    pub unreachable: usize,
    /// The number of suspended sandboxes that are still held in memory.
    pub parked: usize,
    /// The host memory that those hold, in bytes.
    pub parked_bytes: u64,
    /// The sum of the memory limits of running sandboxes, in bytes.
    pub committed_bytes: u64,
    /// The available memory of the host, in bytes; `None` if unknown.
    pub available_bytes: Option<u64>,
    /// The free space on the disk, in bytes.
    pub disk_free_bytes: u64,
    /// The number of sandboxes that are paused until there is room on the disk.
    pub paused_for_disk: usize,
    /// The sum of the disk sizes of running sandboxes and of volumes, in bytes.
    pub disks_bytes: u64,
    /// The size of sleep images and snapshots, in bytes.
    pub saved_states_bytes: u64,
    /// The disk space of deleted images on which sandboxes still run, in bytes.
    pub deleted_image_bytes: u64,
    /// The number of runs that are left alone because no record names them.
    pub unrecorded_runs: usize,
    /// The number of runs that are left alone because they belong to another data directory.
    pub foreign_runs: usize,
    /// Records that cannot be read, by kind.
    pub quarantined: BTreeMap<RowKind, usize>,
    /// Images, layers of images and saved states that are damaged, by kind.
    pub damaged: BTreeMap<&'static str, usize>,
    /// The configured budgets.
    pub budgets: Budgets,
}

impl Service {
    /// Returns the figures.
    ///
    /// # Errors
    ///
    /// Fails if records or the disk cannot be read.
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
            committed_bytes: shared.ledger.committed(None, None).share.memory_bytes,
            available_bytes: shared.settings.host.available_memory(),
            disk_free_bytes: shared.storage.free_bytes().await?,
            paused_for_disk: shared.paused_for_disk.count(),
            disks_bytes: shared
                .ledger
                .committed(None, None)
                .share
                .disk_bytes
                .saturating_add(shared.volumes_bytes().await?),
            saved_states_bytes: shared.saved_states_bytes().await?,
            deleted_image_bytes: shared.engine.deleted_image_bytes().await,
            unrecorded_runs,
            foreign_runs,
            quarantined: shared.quarantined.counts(),
            damaged: shared.soundness.counts(),
            budgets: shared.settings.budgets,
        })
    }
}
