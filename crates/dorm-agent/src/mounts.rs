//! Volumes: the engine shows each in a slot of its own, and here it appears at the path where it is wanted, by a bind mount
//! inside. What is mounted is remembered in memory, which a checkpoint keeps as it keeps the mounts.
//!
//! Another sandbox may have written what is on a volume, so no set-id bit, file capability or device there means anything.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use dorm_agent_proto::{Busy, Failure, GuestMount, GuestPath};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

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
    fs::create_dir_all(path).map_err(|error| wrong("create the directory", error))?;
    // By its own name: where the path leads through a link, it must be found again.
    let real: PathBuf = fs::canonicalize(path).map_err(|error| wrong("find", error))?;
    if real != path {
        let error = io::Error::other(format!("it resolves to {}: attach the volume there", real.display()));
        return Err(wrong("mount a volume at", error));
    }
    bind(mount.from.as_path(), path).map_err(|error| wrong("mount a volume at", io::Error::from(error)))
}

fn bind(from: &Path, path: &Path) -> Result<(), Errno> {
    rustix::mount::mount_bind(from, path)?;
    // A bind mount takes its flags from the mount that it shows, and others only when it is mounted again.
    let is_read_only = rustix::fs::statvfs(path)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    let mut flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, is_read_only);
    let again = rustix::mount::mount_remount(path, flags, c"");
    again.inspect_err(|_| {
        // It must not be there without them.
        let _ = rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    })
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    struct Mounted(PathBuf);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }

    /// Who a program that says so is, when somebody else than root executes it.
    fn user_of(program: &Path) -> String {
        let said = Command::new(program).arg("-u").uid(1000).gid(1000).output().unwrap();
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn a_set_id_file_or_a_device_on_a_volume_gives_nobody_anything() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (from, path) = (place.path().join("from"), place.path().join("path"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&path).unwrap();
        fs::copy("/usr/bin/id", from.join("id")).unwrap();
        fs::set_permissions(from.join("id"), fs::Permissions::from_mode(0o6755)).unwrap();
        let device = rustix::fs::makedev(1, 3);
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let kind = rustix::fs::FileType::CharacterDevice;
        rustix::fs::mknodat(rustix::fs::CWD, from.join("null"), kind, mode, device).unwrap();
        assert_eq!(user_of(&from.join("id")), "0", "where it was written it does");

        bind(&from, &path).unwrap();
        let _mounted = Mounted(path.clone());
        assert_eq!(user_of(&path.join("id")), "1000");
        assert_eq!(fs::read(path.join("null")).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::write(path.join("new"), "it can be written").unwrap();
    }

    #[test]
    fn what_is_shown_read_only_stays_read_only() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let (from, path) = (place.path().join("from"), place.path().join("path"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&path).unwrap();
        rustix::mount::mount_bind(&from, &from).unwrap();
        let _from = Mounted(from.clone());
        rustix::mount::mount_remount(&from, MountFlags::BIND | MountFlags::RDONLY, c"").unwrap();
        bind(&from, &path).unwrap();
        let _mounted = Mounted(path.clone());
        assert_eq!(fs::write(path.join("new"), "").unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    }
}
