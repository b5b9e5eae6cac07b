//! A small host file system in a file. A test can fill it, empty it, slow it down and cut its
//! power.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::mount::{UnmountFlags, unmount};

const BLOCK: u64 = 4096;

/// The file system, mounted; unmounted and removed when dropped.
pub(crate) struct SmallDisk {
    place: tempfile::TempDir,
}

impl SmallDisk {
    pub(crate) fn new(mib: u64) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::Builder::new().prefix("dorm-small-").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let disk = Self { place };
        File::create(disk.image()).unwrap().set_len(mib << 20).unwrap();
        fs::create_dir(disk.path()).unwrap();
        // Without space reserved for root, since the daemon runs as root: a full disk must be full
        // for it too.
        let options = ["-q", "-F", "-b", "4096", "-m", "0", "-E", "lazy_itable_init=0"];
        run(Command::new("mkfs.ext4").args(options).arg(disk.image()));
        disk.mount();
        disk
    }

    fn mount(&self) {
        run(Command::new("mount").args(["-o", "loop,noatime"]).args([self.image(), self.path()]));
    }

    /// Mounts a copy of the data that reached the disk. The file system that was shut down exists
    /// as long as another mount namespace has it, such as that of a sandbox of another test, and
    /// mounting the same file again would use it.
    pub(crate) fn mount_copy(&self) {
        let copy = self.image().with_extension("copy");
        run(Command::new("cp").arg("--sparse=always").args([self.image(), copy.clone()]));
        fs::rename(copy, self.image()).unwrap();
        self.mount();
    }

    pub(crate) fn unmount(&self) -> rustix::io::Result<()> {
        unmount(self.path(), UnmountFlags::empty())
    }

    fn image(&self) -> PathBuf {
        self.place.path().join("disk.img")
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.place.path().join("d")
    }

    /// A file beside it, on a file system that does not become full.
    pub(crate) fn log(&self) -> PathBuf {
        self.place.path().join("log")
    }

    pub(crate) fn free(&self) -> u64 {
        let facts = statvfs(self.path()).unwrap();
        facts.f_bavail * facts.f_frsize
    }

    /// Fills it until this many bytes are free.
    pub(crate) fn fill(&self, left: u64) {
        let mut ballast = File::options().create(true).append(true).open(self.ballast()).unwrap();
        loop {
            let more = self.free().saturating_sub(left) / BLOCK * BLOCK;
            if more == 0 {
                return;
            }
            let end = ballast.seek(SeekFrom::End(0)).unwrap();
            if more > 64 * BLOCK && fallocate(&ballast, FallocateFlags::empty(), end, more - 32 * BLOCK).is_ok() {
                continue;
            }
            if ballast.write_all(&[0; BLOCK as usize]).and_then(|()| ballast.sync_data()).is_err() {
                return;
            }
        }
    }

    /// Removes the data that it was filled with.
    pub(crate) fn empty(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let path = self.path();
        let _ = unmount(&path, UnmountFlags::empty()).or_else(|_| unmount(&path, UnmountFlags::DETACH));
    }
}

pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The number of the loop device that is backed by `file`.
pub(crate) fn loop_of(file: &Path) -> u32 {
    let name = dorm_testing::loop_device(file);
    let number = name.as_deref().and_then(|name| name.strip_prefix("loop")).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("nothing has {} behind it", file.display()))
}
