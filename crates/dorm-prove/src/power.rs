//! Power cuts: the host's disk loses everything that was not synced, and every process is gone.
//!
//! ```text
//! the chosen step ─► the data's file system stops without its journal (disk) ─► the daemon is killed
//!                 ─► all that it made is taken from the host (host) ─► mounted again ─► the next daemon
//!                 ─► each sandbox is where an acknowledged sleep left it ─► judged as after a kill (operation)
//! ```
//!
//! A kill leaves the page cache, so it never finds a missing sync. After a cut only synced data is
//! there.

mod disk;
mod host;

pub(crate) use disk::PowerDisk;
pub(crate) use host::lose_power;
