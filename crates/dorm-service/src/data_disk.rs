//! Watching the disk of the data directory: before it is full, every sandbox that could lose a write is paused, and goes
//! on when there is room again.
//!
//! A sandbox writes into a file system on a sparse file. When the host has no block for what such a file system has
//! accepted already, the write is lost without the guest being told. So the room below the *floor* belongs to writes that
//! are on their way when the guests are paused, and the next look comes before any disk could fill what is left above it.
//!
//! ```text
//!            free │ above twice the floor: all run
//!                 │ above the floor: those that run go on, those that are paused stay so
//!                 │ below: all are paused
//! ```
//!
//! A pause is no state and not recorded: a restarted daemon lets everything go on and looks again.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dorm_lifecycle::SandboxId;

use crate::actor::Message;
use crate::error::ServiceError;
use crate::shared::Shared;

/// Room that is held back on the disk by a file, for one purpose each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldBack {
    /// For what frees room.
    Freeing,
    /// For writes of guests that were accepted before they were paused.
    Accepted,
}

/// The disk of the data directory. All calls block.
pub trait DataDisk: Debug + Send + Sync + 'static {
    /// How many bytes can still be written to it.
    ///
    /// # Errors
    /// When the host cannot tell.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Keeps what sandboxes and volumes have accepted and not yet written to it below `bytes` in all, or as low as the
    /// host can; `None` lifts that.
    fn bound_unwritten(&self, bytes: Option<u64>);

    /// How much the host may have accepted and not yet written where that is not bounded.
    fn unwritten_max(&self) -> u64;

    /// How much is enough for one thing that frees room.
    fn part_bytes(&self) -> u64;

    /// Gives what is held back for `what` to whoever writes next: such a part for what frees room, all for accepted
    /// writes.
    ///
    /// # Errors
    /// When the host refuses.
    fn release(&self, what: HeldBack) -> io::Result<()>;

    /// Takes all that room again if so many bytes are free after it.
    ///
    /// # Errors
    /// When the host refuses.
    fn replenish(&self, keep_free: u64) -> io::Result<()>;
}

/// No disk fills faster, in bytes a second.
const FILL: u64 = 4 << 30;
/// The longest and the shortest time between two looks.
const LOOKS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(20));
/// How often those that are paused, or should be, are told again.
const REPEAT: Duration = Duration::from_millis(200);
/// How often the bound is set for devices that are new.
const BOUND: Duration = Duration::from_secs(1);

/// Which sandboxes are paused for want of room.
#[derive(Debug, Default)]
pub(crate) struct PausedForDisk {
    sandboxes: Mutex<BTreeSet<SandboxId>>,
    free: AtomicU64,
}

impl PausedForDisk {
    pub(crate) fn holds(&self, sandbox: &SandboxId) -> bool {
        self.lock().contains(sandbox)
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn enter(&self, sandbox: &SandboxId) {
        self.lock().insert(sandbox.clone());
    }

    /// Says whether it was paused.
    pub(crate) fn leave(&self, sandbox: &SandboxId) -> bool {
        self.lock().remove(sandbox)
    }

    /// What was free at the last look.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    fn all(&self) -> Vec<SandboxId> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<SandboxId>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Refuses what needs the agent of a sandbox that is paused for want of room.
    pub(crate) fn refuse_paused(&self, sandbox: &SandboxId) -> Result<(), ServiceError> {
        if !self.paused_for_disk.holds(sandbox) {
            return Ok(());
        }
        let goes_on_bytes = self.goes_on_bytes();
        let free_bytes = self.paused_for_disk.free_bytes();
        Err(ServiceError::PausedForDisk { sandbox: sandbox.clone(), free_bytes, goes_on_bytes })
    }

    /// With so much free, what is paused goes on.
    pub(crate) fn goes_on_bytes(&self) -> u64 {
        self.settings.budgets.disk_floor_bytes.saturating_mul(2)
    }

    /// Before something frees room: on a full disk, gives it the room of the reserve. A failure is met again by whoever
    /// writes.
    pub(crate) async fn make_room_to_free(&self) {
        let Some(disk) = self.settings.data_disk.clone() else { return };
        let released = blocking(move || {
            if disk.free_bytes()? >= disk.part_bytes() {
                return Ok(());
            }
            disk.release(HeldBack::Freeing)
        });
        if let Err(error) = released.await {
            tracing::warn!(%error, "the disk is full, and the room held back for freeing cannot be used");
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// What the watch has done so far.
#[derive(Default)]
struct Watch {
    is_low: bool,
    bounded: Option<tokio::time::Instant>,
    /// The room for accepted writes is released.
    has_released: bool,
}

/// Watches until the service stops.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let Some(disk) = shared.settings.data_disk.clone() else { return };
    let mut watch = Watch::default();
    loop {
        let looked = disk.clone();
        let pause = match blocking(move || looked.free_bytes()).await {
            Ok(free) => watch.look(&shared, &disk, free).await,
            Err(error) => {
                tracing::warn!(%error, "cannot tell how much room is left in the data directory");
                LOOKS.0
            }
        };
        if shared.stops_within(pause).await {
            return;
        }
    }
}

impl Watch {
    /// Does what `free` bytes call for; answers when to look again.
    async fn look(&mut self, shared: &Arc<Shared>, disk: &Arc<dyn DataDisk>, free: u64) -> Duration {
        let floor = shared.settings.budgets.disk_floor_bytes;
        shared.paused_for_disk.free.store(free, Ordering::Relaxed);
        self.bound(disk, free, floor).await;
        let was_low = self.is_low;
        self.is_low = free < floor || (self.is_low && free < shared.goes_on_bytes());
        match (was_low, self.is_low) {
            (false, true) => {
                tracing::warn!(free, floor, "the disk of the data directory is nearly full: sandboxes are paused");
            }
            (true, false) => tracing::info!(free, "there is room on the disk again: sandboxes go on"),
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

    /// Bounds what is unwritten as long as the host could otherwise accept more than there is room for.
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

    /// Something else than guests has taken the room below the floor, in which their accepted writes would have gone.
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
            tracing::warn!(%error, "cannot hold back room on the disk");
        }
    }
}
