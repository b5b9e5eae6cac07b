//! A control group for the calling process itself. It limits the memory and threads of the process;
//! nothing outside the group is affected when a limit is reached.
//!
//! The group is a sibling of other groups, never their parent, and only exists in the memory and
//! pids hierarchies. A group left by a dead process is reused.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::controller::{Controller, Version};
use crate::error::CgroupError;
use crate::group::{check_name, remove_dir};
use crate::layout::Layout;
use crate::{file, v1, v2};

/// The group of this process. Dropping it moves the process out permanently and removes the group.
#[derive(Debug)]
pub struct OwnGroup {
    /// The directories of the group, each with its parent.
    places: Vec<(PathBuf, PathBuf)>,
}

impl OwnGroup {
    /// Moves the process, with all its threads, into the group `name`. Its present memory stays
    /// charged to its old group.
    ///
    /// # Errors
    /// When the host does not limit memory, or the kernel refuses.
    pub fn enter(name: &str, memory_bytes: u64, threads: u64) -> Result<Self, CgroupError> {
        check_name(name)?;
        let layout = Layout::of_the_daemon()?;
        if layout.version(Controller::Memory).is_none() {
            return Err(CgroupError::Missing { controller: Controller::Memory });
        }
        let mut group = Self { places: Vec::new() };
        for place in layout.bases {
            let wanted = [Controller::Memory, Controller::Pids];
            if !wanted.contains(&place.controller) {
                continue;
            }
            let dir = place.dir.join(name);
            if place.version == Version::V2 {
                v2::hand_down(&place.dir, name, &wanted)?;
            }
            make(&dir)?;
            limit(&dir, place.controller, place.version, (memory_bytes, threads))?;
            file::write(&dir, "cgroup.procs", "0")?;
            group.places.push((dir, place.dir));
        }
        Ok(group)
    }
}

fn make(dir: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(CgroupError::file("create", dir.to_owned(), error))
        }
        _ => Ok(()),
    }
}

fn limit(
    dir: &Path,
    controller: Controller,
    version: Version,
    (memory_bytes, threads): (u64, u64),
) -> Result<(), CgroupError> {
    match (controller, version) {
        (Controller::Pids, _) => file::write_if_there(dir, "pids.max", &threads.to_string()).map(drop),
        (_, Version::V1) => v1::limit_memory(dir, memory_bytes),
        (_, Version::V2) => {
            file::write(dir, "memory.max", &memory_bytes.to_string())?;
            file::write_if_there(dir, "memory.swap.max", &memory_bytes.to_string()).map(drop)
        }
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        for (dir, around) in &self.places {
            if let Err(error) = file::write(around, "cgroup.procs", "0") {
                // Version 2 accepts no process in a delegated group that has child groups. The next
                // start reuses this group.
                tracing::debug!(%error, "cannot move the daemon out of its own control group");
                continue;
            }
            if let Err(error) = remove_dir(dir) {
                tracing::debug!(%error, "cannot remove the daemon's own control group");
            }
        }
    }
}
