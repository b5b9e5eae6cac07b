//! Volumes: the engine shows each in a slot of its own, and here it appears at the path where it is wanted, by a bind mount
//! inside. What is mounted is remembered in memory, which a checkpoint keeps as it keeps the mounts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use dorm_agent_proto::{Busy, Failure, GuestMount, GuestPath};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::agent::Agent;
use crate::fault;
use crate::lock::lock;

/// What appears where.
#[derive(Default)]
pub(crate) struct Mounts(pub(crate) Mutex<BTreeMap<GuestPath, GuestMount>>);

/// Makes volumes appear at these paths and at no others. After a failure what was to go may be gone.
pub(crate) fn set(agent: &Agent, wanted: &[GuestMount], busy: Busy) -> Result<(), Failure> {
    let mut mounted = lock(&agent.mounts.0);
    let goes: Vec<_> = mounted.values().filter(|there| !wanted.contains(there)).map(|one| one.path.clone()).collect();
    for path in goes {
        unmount(&path, busy)?;
        mounted.remove(&path);
    }
    for mount in wanted {
        if !mounted.contains_key(&mount.path) {
            appear(mount)?;
            mounted.insert(mount.path.clone(), mount.clone());
        }
    }
    Ok(())
}

fn appear(mount: &GuestMount) -> Result<(), Failure> {
    let path = mount.path.as_path();
    let wrong = |operation, error| fault::other(operation, mount.path.as_bytes(), error);
    fs::create_dir_all(path).map_err(|error| wrong("make the directory", error))?;
    // By its own name: where the path leads through a link, it must be found again.
    let real: PathBuf = fs::canonicalize(path).map_err(|error| wrong("find", error))?;
    if real != path {
        let error = io::Error::other(format!("it leads to {}: attach the volume there", real.display()));
        return Err(wrong("mount a volume at", error));
    }
    rustix::mount::mount_bind(mount.from.as_path(), path)
        .map_err(|error| wrong("mount a volume at", io::Error::from(error)))
}

fn unmount(path: &GuestPath, busy: Busy) -> Result<(), Failure> {
    let flags = match busy {
        Busy::Refuse => UnmountFlags::empty(),
        Busy::Hide => UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(path.as_path(), flags | UnmountFlags::NOFOLLOW) {
        // Somebody inside has unmounted it already.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(Failure::MountBusy { path: path.clone() }),
        Err(error) => Err(fault::other("unmount", path.as_bytes(), io::Error::from(error))),
    }
}
