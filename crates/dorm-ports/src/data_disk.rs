//! The disk of the data directory.

use std::fmt::Debug;
use std::io;

/// Space that is held back on the disk by files, for one purpose each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldBack {
    /// For operations that free space.
    Freeing,
    /// For writes of guests that were accepted before the guests were paused.
    Accepted,
}

/// The disk of the data directory. All calls block.
pub trait DataDisk: Debug + Send + Sync + 'static {
    /// Returns how many bytes can still be written to it.
    ///
    /// # Errors
    ///
    /// Fails if the host cannot tell.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Keeps the total of data that sandboxes and volumes have accepted but not yet written below
    /// `bytes`, or as low as the host can; `None` lifts the bound.
    fn bound_unwritten(&self, bytes: Option<u64>);

    /// Returns how many bytes the host may have accepted but not yet written without a bound.
    fn unwritten_max(&self) -> u64;

    /// Returns how many bytes suffice for one operation that frees space.
    fn part_bytes(&self) -> u64;

    /// Releases space held back for `what` to the next writer: one such part for operations that
    /// free space, all of it for accepted writes.
    ///
    /// # Errors
    ///
    /// Fails if the host refuses.
    fn release(&self, what: HeldBack) -> io::Result<()>;

    /// Holds all that space back again if `keep_free` bytes remain free afterwards.
    ///
    /// # Errors
    ///
    /// Fails if the host refuses.
    fn replenish(&self, keep_free: u64) -> io::Result<()>;
}
