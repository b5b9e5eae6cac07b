//! Disks on a host file system that becomes full before they are.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dorm_disk::{Disk, DiskError, KeptDisk, LostWrites, Reserve, bound_unwritten};
use dorm_guest_ids::GuestIds;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::mount::{UnmountFlags, unmount};

const MIB: u64 = 1 << 20;

/// A small host file system in a file, without space reserved for root.
struct SmallHost {
    place: tempfile::TempDir,
}

impl SmallHost {
    fn new(mib: u64) -> Option<Self> {
        if Disk::probe().is_err() || !rustix::process::geteuid().is_root() {
            dorm_skip::skip("this needs root and loop devices");
            return None;
        }
        let place = tempfile::Builder::new().prefix("disk-").tempdir().unwrap();
        let image = place.path().join("host.img");
        File::create(&image).unwrap().set_len(mib * MIB).unwrap();
        fs::create_dir(place.path().join("host")).unwrap();
        let run = |program: &str, options: &[&str], paths: &[&Path]| {
            let status = Command::new(program).args(options).args(paths).status().unwrap();
            assert!(status.success(), "{program}");
        };
        run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-m", "0", "-E", "lazy_itable_init=0"], &[&image]);
        let host = Self { place };
        run("mount", &["-o", "loop,noatime"], &[&image, &host.path()]);
        Some(host)
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("host")
    }

    fn free(&self) -> u64 {
        let facts = statvfs(self.path()).unwrap();
        facts.f_bavail * facts.f_frsize
    }

    /// Fills it to its last block.
    fn fill(&self) {
        let mut ballast = File::create(self.path().join("ballast")).unwrap();
        while self.free() > 64 * 4096 {
            let end = ballast.metadata().unwrap().len();
            let _ = fallocate(&ballast, FallocateFlags::empty(), end, self.free() - 32 * 4096);
        }
        ballast.seek(SeekFrom::End(0)).unwrap();
        while ballast.write_all(&[0; 4096]).and_then(|()| ballast.sync_data()).is_ok() {}
        assert_eq!(self.free(), 0);
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.path()).into_iter().flatten().flatten() {
            let _ = Disk::remove_in(&entry.path());
        }
        let path = self.path();
        let _ = unmount(&path, UnmountFlags::empty()).or_else(|_| unmount(&path, UnmountFlags::DETACH));
    }
}

#[test]
fn a_write_that_the_full_host_swallowed_is_reported_as_lost() {
    let Some(host) = SmallHost::new(96) else { return };
    let disk =
        Disk::create(&host.path().join("run"), GuestIds::DEFAULT, 256 * MIB, &host.path().join("blanks")).unwrap();
    let path = disk.path().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![7; 16 << 20]).unwrap();
    file.sync_all().unwrap();
    let open = [path.clone()];
    assert_eq!(disk.lost_writes(&open).unwrap(), None);
    host.fill();
    // The write succeeds for the program.
    file.write_all(&vec![8; 16 << 20]).unwrap();
    write_back(&file);
    wait_for("the failure is reported", || matches!(disk.lost_writes(&open).unwrap(), Some(LostWrites::Data(_))));
}

/// Makes the kernel start to write the cached data of `file`, as it does automatically after a
/// while. Does not wait for errors.
fn write_back(file: &File) {
    // SAFETY: the descriptor is open.
    let begun = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    assert_eq!(begun, 0);
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < end, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_volume_that_lost_writes_cannot_be_synced() {
    let Some(host) = SmallHost::new(96) else { return };
    let disk = KeptDisk::make(&host.path().join("volume"), GuestIds::DEFAULT, 256 * MIB).unwrap();
    disk.mount().unwrap();
    let mut file = File::create(disk.path().join("file")).unwrap();
    file.write_all(&vec![7; 4 << 20]).unwrap();
    disk.sync().unwrap();
    host.fill();
    file.write_all(&vec![8; 16 << 20]).unwrap();
    assert!(matches!(disk.sync(), Err(DiskError::LostWrites(_))));
    drop(file);
    fs::remove_file(host.path().join("ballast")).unwrap();
    // The kernel has forgotten it.
    for _ in 0..2 {
        assert!(matches!(disk.sync(), Err(DiskError::LostWrites(_))));
    }
    disk.unmount().unwrap();
    assert!(disk.sync().is_err() && disk.recorded_loss().unwrap().is_some());
    disk.mount().unwrap();
    assert!(disk.sync().is_err());
    disk.remove().unwrap();
    assert_eq!(disk.recorded_loss().unwrap(), None);
}

#[test]
fn a_lost_write_that_another_program_was_told_of_is_found() {
    let Some(host) = SmallHost::new(96) else { return };
    let disk = KeptDisk::make(&host.path().join("volume"), GuestIds::DEFAULT, 256 * MIB).unwrap();
    assert!(disk.open().unwrap().is_none(), "it is not mounted");
    disk.mount().unwrap();
    let open = disk.open().unwrap().unwrap();
    open.sync().unwrap();
    host.fill();
    let mut file = File::create(disk.path().join("file")).unwrap();
    file.write_all(&vec![8; 16 << 20]).unwrap();
    assert!(rustix::fs::syncfs(File::open(disk.path()).unwrap()).is_err());
    fs::remove_file(host.path().join("ballast")).unwrap();
    rustix::fs::syncfs(File::open(disk.path()).unwrap()).unwrap();
    assert!(matches!(open.sync(), Err(DiskError::LostWrites(_))));
    drop((file, open));
    disk.remove().unwrap();
}

#[test]
fn what_is_bounded_reaches_the_host_without_being_synced() {
    let Some(host) = SmallHost::new(96) else { return };
    let disk =
        Disk::create(&host.path().join("run"), GuestIds::DEFAULT, 256 * MIB, &host.path().join("blanks")).unwrap();
    if !Path::new("/sys/class/bdi/7:0/max_bytes").exists() {
        dorm_skip::skip("this kernel cannot bound what is unwritten");
        return;
    }
    assert_eq!(bound_unwritten(&host.path(), Some(2 * MIB)), 1);
    let before = host.free();
    let mut file = File::create(disk.path().join("file")).unwrap();
    for _ in 0..32 {
        file.write_all(&vec![7; 1 << 20]).unwrap();
    }
    assert!(before - host.free() > 20 * MIB, "{} bytes reached the host", before - host.free());
}

#[test]
fn the_reserve_gives_room_on_a_disk_that_is_full_to_its_last_block() {
    let Some(host) = SmallHost::new(64) else { return };
    let reserve = Reserve::at(host.path().join("reserve"), 8 * MIB);
    assert!(reserve.replenish(0).unwrap());
    host.fill();
    assert!(fs::write(host.path().join("note"), [1; 8192]).is_err());
    assert!(reserve.release(8 * MIB).unwrap() >= 8 * MIB);
    fs::write(host.path().join("note"), vec![1; 4 << 20]).unwrap();
    assert!(!reserve.replenish(16 * MIB).unwrap(), "there is not enough room yet");
    fs::remove_file(host.path().join("ballast")).unwrap();
    assert!(reserve.replenish(16 * MIB).unwrap());
}
