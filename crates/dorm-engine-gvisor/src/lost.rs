//! Detects writes of a guest that did not reach the host's disk. The guest gets no error, and reads
//! zeros once its pages have left the page cache. Therefore its memory is never saved again.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::fs;
use std::path::PathBuf;

use dorm_disk::Disk;

use crate::blocking::blocking;
use crate::container::Container;
use crate::error::GvisorError;
use crate::process;
use crate::run::Turn;

/// Returns an error if the guest's disk has ever lost a write.
pub(crate) async fn refuse(container: &Container, turn: &mut Turn) -> Result<(), GvisorError> {
    if let Some(known) = turn.note().and_then(|note| note.lost_writes.clone()) {
        return Err(GvisorError::LostWrites(known));
    }
    let (home, pid) = (container.home.disk(), container.processes.sandbox.pid());
    let lost = blocking(move || {
        let Some(disk) = Disk::find(&home)?.filter(Disk::is_limited) else { return Ok(None) };
        Ok(disk.lost_writes(&open_files(pid, &disk.path()))?)
    });
    let Some(lost) = lost.await? else { return Ok(()) };
    let what = lost.to_string();
    tracing::error!(container = container.home.id(), what, "the disk of a run has lost writes");
    turn.set_lost_writes(what.clone());
    Err(GvisorError::LostWrites(what))
}

/// Returns the files on the disk that the sandbox process has open. gVisor unlinks them as soon as
/// they are open, so they have no other name.
fn open_files(pid: i32, disk: &std::path::Path) -> Vec<PathBuf> {
    process::descriptors(pid).filter(|path| fs::read_link(path).is_ok_and(|to| to.starts_with(disk))).collect()
}
