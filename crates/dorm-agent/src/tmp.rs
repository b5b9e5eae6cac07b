//! Moves `/tmp` to the sandbox's disk.
//!
//! gVisor mounts a file system in memory on an empty `/tmp`. At the boot of a sandbox, the agent
//! unmounts it, so that files in `/tmp` count as disk space, and can be as large as the disk. A
//! sandbox that continues from a memory image keeps what it has.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::mount::{UnmountFlags, unmount};

const MODE: u32 = 0o1777;
/// `TMPFS_MAGIC` of Linux.
const IN_MEMORY: i64 = 0x0102_1994;

/// Unmounts the file system in memory at `path`, if there is one without files. The directory below
/// is then for all users.
pub(crate) fn move_to_disk(path: &Path) -> io::Result<()> {
    let Ok(at) = fs::symlink_metadata(path) else { return Ok(()) };
    let above = fs::symlink_metadata(path.parent().unwrap_or(path))?;
    let is_in_memory = rustix::fs::statfs(path)?.f_type == IN_MEMORY;
    if !at.is_dir() || at.dev() == above.dev() || !is_in_memory || fs::read_dir(path)?.next().is_some() {
        return Ok(());
    }
    unmount(path, UnmountFlags::NOFOLLOW)?;
    // An unchanged directory does not become a part of filesystem snapshots.
    if fs::symlink_metadata(path)?.mode() & 0o7777 != MODE && fs::read_dir(path)?.next().is_none() {
        fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::PathBuf;

    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    use super::move_to_disk;

    struct Mounted(PathBuf);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = unmount(&self.0, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }

    #[test]
    fn only_an_empty_file_system_in_memory_is_unmounted() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = place.path().join("tmp");
        move_to_disk(&path).unwrap();
        fs::create_dir(&path).unwrap();
        move_to_disk(&path).unwrap();
        assert_ne!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o1777);
        let _mounted = Mounted(path.clone());
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), c"size=1m").unwrap();
        fs::write(path.join("file"), "kept").unwrap();
        move_to_disk(&path).unwrap();
        assert_eq!(fs::read(path.join("file")).unwrap(), b"kept");
        fs::remove_file(path.join("file")).unwrap();
        move_to_disk(&path).unwrap();
        let (at, above) = (fs::metadata(&path).unwrap(), fs::metadata(place.path()).unwrap());
        assert_eq!((at.dev(), at.mode() & 0o7777), (above.dev(), 0o1777));
    }
}
