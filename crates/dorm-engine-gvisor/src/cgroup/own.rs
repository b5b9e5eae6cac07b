//! A control group for the calling process itself: what it takes of the host's memory and threads has an end, at which
//! nothing outside the group is harmed.
//!
//! It lies beside the groups of others, never around them, and has a place in the hierarchies of memory and of processes
//! alone. One that a dead process has left behind is used again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::layout::Layout;
use super::{CgroupError, Controller, Version, check_name, file, remove_dir, v1, v2};

/// The group that this process is in. Dropping it moves the process out, for the rest of its life, and removes the group.
#[derive(Debug)]
pub struct OwnGroup {
    /// Directories of the group, each with the one around it.
    places: Vec<(PathBuf, PathBuf)>,
}

impl OwnGroup {
    /// Moves the process, with all its threads, into the group `name`. Memory that it has already stays counted where it
    /// was.
    ///
    /// # Errors
    /// When the host does not limit memory, or refuses.
    pub fn enter(name: &str, memory_bytes: u64, threads: u64) -> Result<Self, CgroupError> {
        check_name(name)?;
        let layout = Layout::of_this_host()?;
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
                // Version 2 lets no process into a delegated group that has groups. The next start uses this one again.
                tracing::debug!(%error, "cannot move the daemon out of its own control group");
                continue;
            }
            if let Err(error) = remove_dir(dir) {
                tracing::debug!(%error, "cannot remove the daemon's own control group");
            }
        }
    }
}
