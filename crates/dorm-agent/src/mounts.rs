//! Volumes: the engine provides each in a container slot of its own, and a bind mount inside makes
//! it appear at the requested path. The mounts are remembered in memory, which a checkpoint
//! preserves along with the mounts.
//!
//! Another sandbox may have written the content of a volume, so set-ID bits, file capabilities and
//! devices on it have no effect.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use dorm_agent_proto::{Busy, Failure, GuestMount, GuestPath};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::fault;
use crate::lock::lock;

/// The mounted volumes, by path.
#[derive(Default)]
pub(crate) struct Mounts(pub(crate) Mutex<BTreeMap<GuestPath, GuestMount>>);

impl Mounts {
    /// Mounts volumes at these paths and at no others. After a failure, mounts that were to be
    /// removed may be gone.
    pub(crate) fn set(&self, wanted: &[GuestMount], busy: Busy) -> Result<(), Failure> {
        let mut mounted = lock(&self.0);
        let goes: Vec<_> =
            mounted.values().filter(|there| !wanted.contains(there)).map(|one| one.path.clone()).collect();
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
}

fn appear(mount: &GuestMount) -> Result<(), Failure> {
    let path = mount.path.as_path();
    let wrong = |operation, error| fault::other(operation, mount.path.as_bytes(), error);
    fs::create_dir_all(path).map_err(|error| wrong("create the directory", error))?;
    // Only at its resolved path: if the path leads through a link, the mount must be found again.
    let real: PathBuf = fs::canonicalize(path).map_err(|error| wrong("find", error))?;
    if real != path {
        let error = io::Error::other(format!("it resolves to {}: attach the volume there", real.display()));
        return Err(wrong("mount a volume at", error));
    }
    bind(mount.from.as_path(), path).map_err(|error| wrong("mount a volume at", io::Error::from(error)))
}

fn bind(from: &Path, path: &Path) -> Result<(), Errno> {
    rustix::mount::mount_bind(from, path)?;
    // A bind mount inherits its flags from the original mount, and gets others only when it is
    // remounted.
    let is_read_only = rustix::fs::statvfs(path)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    let mut flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, is_read_only);
    let again = rustix::mount::mount_remount(path, flags, c"");
    again.inspect_err(|_| {
        // It must not exist without these flags.
        let _ = rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    })
}

fn unmount(path: &GuestPath, busy: Busy) -> Result<(), Failure> {
    let flags = match busy {
        Busy::Refuse => UnmountFlags::empty(),
        Busy::Hide => UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(path.as_path(), flags | UnmountFlags::NOFOLLOW) {
        // A program inside has already unmounted it.
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

    /// Returns the effective user of a program that prints it, when another user than root executes
    /// it.
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
