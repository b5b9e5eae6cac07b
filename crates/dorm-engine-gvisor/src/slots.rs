//! Mounts directories of the host on a run's container slots, before the run starts or while it
//! runs.
//!
//! `runsc` gets only one bind mount, the directory with the container's slots, and mounts it as a
//! slave of the host's mount: a directory that the host mounts on a slot appears in the sandbox's
//! file server, and so in the guest. A memory image contains only the slots themselves, which every
//! container has.
//!
//! ```text
//! slots/           one shared mount for all containers
//!   <container>/0 … 15  empty and not writable; each slot in use has a mount
//! stage            where a mount is made read-only before it is moved to a slot
//! points/          the mount point for images that were imported without it
//! ```

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use dorm_engine::{MOUNTS, Mount};
use dorm_guest_ids::GuestIds;
use dorm_lifecycle::{ATTACHMENTS_MAX, Access};
use rustix::fs::{Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};

use crate::error::{GvisorError, chain};
use crate::lock::lock;
use crate::notes::Home;
use crate::root;

/// Only one mount is created at a time, since there is one place to prepare it.
static STAGE: Mutex<()> = Mutex::new(());

/// Creates what all containers share, beside their homes, or adopts what an earlier daemon has
/// left.
pub(crate) fn prepare(containers: &Path, ids: GuestIds) -> Result<(), GvisorError> {
    let slots = directory(containers);
    root::make_directory(&slots, ids)?;
    root::unmount(&stage(&slots))?;
    let wrong = |operation, source: Errno| GvisorError::file(operation, &slots, io::Error::from(source));
    if !root::is_mounted(&slots).map_err(|source| GvisorError::file("read the metadata of", &slots, source))? {
        rustix::mount::mount_bind(&slots, &slots).map_err(|error| wrong("mount", error))?;
        // A peer group of its own, so that mounts here only propagate to sandboxes. Only when it is
        // new: it would disconnect running sandboxes.
        rustix::mount::mount_change(&slots, MountPropagationFlags::PRIVATE).map_err(|error| wrong("share", error))?;
    }
    rustix::mount::mount_change(&slots, MountPropagationFlags::SHARED).map_err(|error| wrong("share", error))?;
    let point = points(containers).join(MOUNTS.trim_start_matches('/'));
    let made = fs::create_dir_all(&point).and_then(|()| {
        fs::set_permissions(&point, fs::Permissions::from_mode(0o755))?;
        fs::set_permissions(points(containers), fs::Permissions::from_mode(0o755))?;
        std::os::unix::fs::chown(&point, Some(ids.base()), Some(ids.base()))
    });
    made.map_err(|source| GvisorError::file("create", point, source))
}

/// Unmounts what [`prepare`] has mounted, unless there are containers.
pub(crate) fn release(containers: &Path) {
    let is_empty = fs::read_dir(containers).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty && let Err(error) = root::unmount(&directory(containers)) {
        tracing::debug!(error = %chain(&error), "cannot unmount the directory of container slots");
    }
}

/// Returns the lowest layer for an image that was imported without the mount point.
pub(crate) fn points(containers: &Path) -> PathBuf {
    containers.with_file_name("points")
}

/// Returns whether an image has the mount point.
pub(crate) fn is_in(rootfs: &Path) -> bool {
    fs::symlink_metadata(rootfs.join(MOUNTS.trim_start_matches('/'))).is_ok_and(|found| found.is_dir())
}

fn directory(containers: &Path) -> PathBuf {
    containers.with_file_name("slots")
}

fn stage(slots: &Path) -> PathBuf {
    slots.with_file_name("stage")
}

impl Home {
    /// Returns the directory of its slots on the host.
    pub(crate) fn slots(&self) -> PathBuf {
        let containers = self.directory().parent().unwrap_or(self.directory());
        directory(containers).join(self.id())
    }
}

/// Creates the empty slots of a container.
pub(crate) fn make(home: &Home) -> Result<(), GvisorError> {
    let slots = home.slots();
    let make = |path: &Path, mode| {
        // The umask may clear more than this.
        let made = fs::DirBuilder::new().mode(0o700).create(path);
        let made = made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)));
        made.map_err(|source| GvisorError::file("create", path, source))
    };
    make(&slots, 0o755)?;
    (0..ATTACHMENTS_MAX).try_for_each(|slot| make(&slots.join(slot.to_string()), 0o555))
}

/// Removes the slots of a container with everything mounted on them.
pub(crate) fn remove(home: &Home) -> Result<(), GvisorError> {
    let slots = home.slots();
    for slot in 0..ATTACHMENTS_MAX {
        root::remove(&slots.join(slot.to_string()))?;
    }
    root::remove(&slots)
}

/// Makes `mounts` the only mounts of a container. Mounts that are already in place are not touched.
pub(crate) fn set(home: &Home, mounts: &[Mount]) -> Result<(), GvisorError> {
    let slots = home.slots();
    if !slots.is_dir() {
        return match mounts.is_empty() {
            true => Ok(()),
            // The container was created by a daemon without support for volumes.
            false => Err(GvisorError::file("find the container slots in", slots, io::ErrorKind::NotFound)),
        };
    }
    for slot in 0..ATTACHMENTS_MAX {
        let path = slots.join(slot.to_string());
        match mounts.iter().find(|mount| usize::from(mount.slot) == slot) {
            None => root::unmount(&path)?,
            Some(mount) => put(&path, mount, &slots)?,
        }
    }
    Ok(())
}

fn put(slot: &Path, mount: &Mount, slots: &Path) -> Result<(), GvisorError> {
    let source = open(mount)?;
    let wrong = |operation, path: &Path, error: Errno| GvisorError::file(operation, path, io::Error::from(error));
    if is_there(slot, &source, mount.access).map_err(|error| wrong("read the metadata of", slot, error))? {
        return Ok(());
    }
    root::unmount(slot)?;
    let stage = stage(slots.parent().unwrap_or(slots));
    let _staged = lock(&STAGE);
    fs::create_dir_all(&stage).map_err(|source| GvisorError::file("create", &stage, source))?;
    // Left by a daemon that died here.
    root::unmount(&stage)?;
    // Through the descriptor, since a guest could replace what is at the path meanwhile.
    let opened = PathBuf::from(format!("/proc/self/fd/{}", source.as_raw_fd()));
    rustix::mount::mount_bind(&opened, &stage).map_err(|error| wrong("mount", &stage, error))?;
    let moved = || {
        let mut flags = MountFlags::BIND | MountFlags::NODEV | MountFlags::NOSUID;
        if mount.access == Access::Read {
            flags |= MountFlags::RDONLY;
        }
        rustix::mount::mount_change(&stage, MountPropagationFlags::PRIVATE)?;
        rustix::mount::mount_remount(&stage, flags, c"")?;
        rustix::mount::mount_bind(&stage, slot)
    };
    let moved = moved().map_err(|error| wrong("mount", slot, error));
    root::unmount(&stage)?;
    moved
}

fn open(mount: &Mount) -> Result<OwnedFd, GvisorError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path = mount.top.join(mount.part.as_str());
    let opened = rustix::fs::open(&mount.top, flags, Mode::empty()).and_then(|top| {
        if mount.part.is_whole() {
            return Ok(top);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&top, mount.part.as_str(), flags, Mode::empty(), resolve)
    });
    opened.map_err(|error| GvisorError::file("open", path, io::Error::from(error)))
}

/// Returns whether the requested mount is on the slot.
fn is_there(slot: &Path, source: &OwnedFd, access: Access) -> Result<bool, Errno> {
    let (found, wanted) = (rustix::fs::stat(slot)?, rustix::fs::fstat(source)?);
    let is_read_only = rustix::fs::statvfs(slot)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    Ok((found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino) && is_read_only == (access == Access::Read))
}

/// The most paths that [`deleted_in_guest`] returns.
const DELETED_MAX: usize = 4096;

/// Returns a file on one of the container's volumes that its sandbox, the process `pid`, has open
/// although it is deleted, by its path on that volume.
pub(crate) fn deleted(home: &Home, pid: i32) -> Result<Option<PathBuf>, GvisorError> {
    Ok(all_deleted(home, pid, 1)?.pop())
}

/// Returns the paths in the guest of such files, as far as they are UTF-8.
pub(crate) fn deleted_in_guest(home: &Home, pid: i32) -> Result<Vec<String>, GvisorError> {
    let found = all_deleted(home, pid, DELETED_MAX)?;
    // The sandbox's file server sees the slots below a directory of its own.
    let in_guest = |path: PathBuf| path.to_str().and_then(|path| Some(path.get(path.find(MOUNTS)?..)?.to_owned()));
    Ok(found.into_iter().filter_map(in_guest).collect())
}

fn all_deleted(home: &Home, pid: i32, most: usize) -> Result<Vec<PathBuf>, GvisorError> {
    let slots = home.slots();
    let mounted = (0..ATTACHMENTS_MAX).map(|slot| slots.join(slot.to_string()));
    let mounted = mounted.filter(|slot| root::is_mounted(slot).unwrap_or(false));
    let devices: Vec<u64> = mounted.filter_map(|slot| Some(fs::metadata(slot).ok()?.dev())).collect();
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let directory = PathBuf::from(format!("/proc/{pid}/fd"));
    let entries =
        fs::read_dir(&directory).map_err(|source| GvisorError::file("read the metadata of", &directory, source))?;
    // A file that is closed meanwhile does not count.
    let found = entries.flatten().filter_map(|entry| {
        let facts = fs::metadata(entry.path()).ok()?;
        let is_deleted = facts.is_file() && facts.nlink() == 0 && devices.contains(&facts.dev());
        let shown = is_deleted.then(|| fs::read_link(entry.path()).ok()).flatten()?;
        let shown = shown.as_os_str().as_bytes();
        let path = shown.strip_suffix(b" (deleted)").unwrap_or(shown);
        Some(PathBuf::from(OsStr::from_bytes(path)))
    });
    Ok(found.take(most).collect())
}
