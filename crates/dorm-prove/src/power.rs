//! Power cuts: the host's disk loses everything that was not synced, and every process is gone.
//!
//! ```text
//! the chosen step ─► the data's file system stops without its journal (disk) ─► the daemon is killed
//!                 ─► all that it made is taken from the host (host) ─► mounted again ─► the next daemon
//!                 ─► each sandbox is where an acknowledged sleep left it (lost) ─► judged as after a kill
//! ```
//!
//! A kill leaves the page cache, so it never finds a missing sync. After a cut only synced data is there.

mod disk;
mod host;
mod lost;

pub(crate) use disk::PowerDisk;
pub(crate) use host::lose_power;
pub(crate) use lost::{Seen, after_cut, count_lost, ended_with_its_run, is_lost};
