//! Watches the disk of the data directory: before it is full, every sandbox that could lose a write
//! is paused, and it continues when there is room again.
//!
//! A sandbox writes into a file system on a sparse file. If the host has no block for data that
//! this file system has accepted already, the write is lost and the guest is not told. So the space
//! below the *floor* is reserved for writes that are in progress when the guests are paused, and
//! the next check comes before any disk could fill what is left above it.
//!
//! ```text
//!            free │ above twice the floor: all run
//!                 │ above the floor: running sandboxes continue, paused ones stay paused
//!                 │ below: all are paused
//! ```
//!
//! A pause is not a state and is not recorded: a restarted daemon lets all sandboxes continue and
//! checks again.

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::SandboxId;
use dorm_ports::{DataDisk, HeldBack};

use crate::error::ServiceError;
use crate::messages::Message;
use crate::shared::{Shared, blocking};

/// The highest rate at which a disk can fill, in bytes per second.
const FILL: u64 = 4 << 30;
/// The longest and the shortest interval between two checks.
const LOOKS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(20));
/// How often pause and continue are repeated to sandboxes while they are needed.
const REPEAT: Duration = Duration::from_millis(200);
/// How often the bound is applied to new devices.
const BOUND: Duration = Duration::from_secs(1);

impl Shared {
    /// Refuses requests that need the agent of a sandbox that is paused for lack of disk space.
    pub(crate) fn refuse_paused(&self, sandbox: &SandboxId) -> Result<(), ServiceError> {
        if !self.paused_for_disk.holds(sandbox) {
            return Ok(());
        }
        let continues_at_bytes = self.continues_at_bytes();
        let free_bytes = self.paused_for_disk.free_bytes();
        Err(ServiceError::PausedForDisk { sandbox: sandbox.clone(), free_bytes, continues_at_bytes })
    }

    /// Returns the number of free bytes at which paused sandboxes continue.
    pub(crate) fn continues_at_bytes(&self) -> u64 {
        self.settings.budgets.disk_floor_bytes.saturating_mul(2)
    }
}

/// The state of the watch.
#[derive(Default)]
struct Watch {
    is_low: bool,
    bounded: Option<tokio::time::Instant>,
    /// Whether the space for accepted writes is released.
    has_released: bool,
}

/// Watches the disk until the service stops.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let Some(disk) = shared.settings.data_disk.clone() else { return };
    let mut watch = Watch::default();
    loop {
        let looked = disk.clone();
        let pause = match blocking(move || looked.free_bytes()).await {
            Ok(free) => watch.look(&shared, &disk, free).await,
            Err(error) => {
                tracing::warn!(%error, "cannot determine the free space of the data directory");
                LOOKS.0
            }
        };
        if shared.stops_within(pause).await {
            return;
        }
    }
}

impl Watch {
    /// Acts on `free` bytes; returns the delay until the next check.
    async fn look(&mut self, shared: &Arc<Shared>, disk: &Arc<dyn DataDisk>, free: u64) -> Duration {
        let floor = shared.settings.budgets.disk_floor_bytes;
        shared.paused_for_disk.set_free_bytes(free);
        self.bound(disk, free, floor).await;
        let was_low = self.is_low;
        self.is_low = free < floor || (self.is_low && free < shared.continues_at_bytes());
        match (was_low, self.is_low) {
            (false, true) => {
                tracing::warn!(free, floor, "the disk of the data directory is nearly full: sandboxes are paused");
            }
            (true, false) => tracing::info!(free, "there is room on the disk again: sandboxes continue"),
            (true, true) | (false, false) => {}
        }
        if self.is_low {
            shared.tell_all(|| Message::DiskLow);
            if free < floor / 2 && !self.has_released {
                self.release_for_accepted(disk).await;
            }
            return REPEAT;
        }
        self.has_released = false;
        self.replenish(disk, floor).await;
        let paused = shared.paused_for_disk.all();
        for sandbox in &paused {
            shared.tell(sandbox, Message::DiskRoom);
        }
        if !paused.is_empty() {
            return REPEAT;
        }
        Duration::from_secs_f64((free - floor.min(free)) as f64 / FILL as f64).clamp(LOOKS.1, LOOKS.0)
    }

    /// Bounds unwritten data while the host could otherwise accept more than there is room for.
    async fn bound(&mut self, disk: &Arc<dyn DataDisk>, free: u64, floor: u64) {
        let is_tight = floor > 0 && free < floor.saturating_add(disk.unwritten_max().saturating_mul(2));
        let is_due = match (is_tight, self.bounded) {
            (true, Some(at)) => at.elapsed() >= BOUND,
            (true, None) | (false, Some(_)) => true,
            (false, None) => false,
        };
        if !is_due {
            return;
        }
        self.bounded = is_tight.then(tokio::time::Instant::now);
        let (disk, bytes) = (disk.clone(), is_tight.then_some(floor / 2));
        let _ = blocking(move || {
            disk.bound_unwritten(bytes);
            Ok(())
        })
        .await;
    }

    /// Another program has used space below the floor, which accepted writes of guests need.
    async fn release_for_accepted(&mut self, disk: &Arc<dyn DataDisk>) {
        let disk = disk.clone();
        match blocking(move || disk.release(HeldBack::Accepted)).await {
            Ok(()) => self.has_released = true,
            Err(error) => tracing::error!(%error, "accepted writes of sandboxes have no room on the disk"),
        }
    }

    async fn replenish(&self, disk: &Arc<dyn DataDisk>, floor: u64) {
        let disk = disk.clone();
        if let Err(error) = blocking(move || disk.replenish(floor.saturating_mul(2))).await {
            tracing::warn!(%error, "cannot hold back space on the disk");
        }
    }
}
