//! Real disks on this host. Tests of features that the host lacks are skipped with a message.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dorm_disk::{Disk, DiskError, KeptDisk};
use dorm_guest_ids::GuestIds;
use rustix::mount::{MountPropagationFlags, UnmountFlags};

const MIB: u64 = 1 << 20;

/// A directory for disks, which are removed at the end even if the test fails.
struct Place {
    top: PathBuf,
}

impl Place {
    fn new() -> Option<Self> {
        if let Err(error) = Disk::probe() {
            dorm_skip::skip(format!("{error}: {}", std::error::Error::source(&error).unwrap()));
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            dorm_skip::skip("only root can mount");
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("disk-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let top = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&top).unwrap();
        Some(Self { top })
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    fn cache(&self) -> PathBuf {
        self.top.join("templates")
    }

    fn create(&self, name: &str, bytes: u64) -> Disk {
        Disk::create(&self.dir(name), GuestIds::DEFAULT, bytes, &self.cache()).unwrap()
    }

    /// The entries for this place in the kernel's lists of mounts and loop devices.
    fn left(&self) -> Vec<String> {
        let top = self.top.to_str().unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut left: Vec<String> = mounts.lines().filter(|line| line.contains(top)).map(str::to_owned).collect();
        for device in fs::read_dir("/sys/block").unwrap().flatten() {
            let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
            if backing.contains(top) {
                left.push(backing);
            }
        }
        left
    }

    /// The number of loop devices whose file has this inode and is in this place, by any path.
    fn devices_of(&self, inode: u64) -> usize {
        let devices = fs::read_dir("/sys/block").unwrap().flatten();
        let files = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
        let inodes = files.filter(|file| file.contains(self.top.to_str().unwrap()));
        inodes.filter(|file| fs::metadata(file.trim_end()).is_ok_and(|facts| facts.ino() == inode)).count()
    }

    fn wait_until_nothing_is_left(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.left().is_empty() {
            assert!(Instant::now() < end, "left: {:?}", self.left());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.top).into_iter().flatten().flatten() {
            let _ = Disk::remove_in(&entry.path());
        }
        let _ = fs::remove_dir_all(&self.top);
    }
}

fn fill(path: &Path) -> (u64, io::Error) {
    let mut file = fs::File::create(path).unwrap();
    let block = vec![7_u8; 256 << 10];
    let mut written = 0;
    loop {
        match file.write(&block) {
            Ok(count) => written += count as u64,
            Err(error) => return (written, error),
        }
    }
}

#[test]
fn a_disk_is_empty_belongs_to_the_guest_and_ends_at_its_size() {
    let Some(place) = Place::new() else { return };
    let disk = place.create("a", 64 * MIB);
    let owner = fs::metadata(disk.path()).unwrap();
    assert_eq!((owner.uid(), owner.gid()), (GuestIds::DEFAULT.base(), GuestIds::DEFAULT.base()));
    let usage = disk.usage().unwrap();
    assert!(usage.available_bytes > 62 * MIB, "{usage:?}");
    let (written, error) = fill(&disk.path().join("big"));
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!((60 * MIB..64 * MIB).contains(&written), "{written}");
    fs::remove_file(disk.path().join("big")).unwrap();
    fs::write(disk.path().join("small"), "fits again").unwrap();
    disk.remove().unwrap();
    place.wait_until_nothing_is_left();
}

#[test]
fn an_empty_disk_takes_hardly_any_room_on_the_host() {
    let Some(place) = Place::new() else { return };
    let disk = place.create("a", 8 << 30);
    let taken = fs::metadata(place.dir("a").join("disk.img")).unwrap().blocks() * 512;
    assert!(taken < 2 * MIB, "{taken}");
    assert!(disk.is_limited());
}

#[test]
fn removing_twice_is_idempotent() {
    let Some(place) = Place::new() else { return };
    let disk = place.create("a", 16 * MIB);
    disk.remove().unwrap();
    disk.remove().unwrap();
    Disk::remove_in(&place.dir("never-there")).unwrap();
    assert_eq!(fs::read_dir(place.dir("a")).unwrap().count(), 0);
    place.wait_until_nothing_is_left();
}

#[test]
fn a_disk_is_found_and_removed_by_its_path_alone_after_a_crash() {
    let Some(place) = Place::new() else { return };
    let made = place.create("a", 16 * MIB);
    fs::write(made.path().join("note"), "still here").unwrap();
    drop(made);
    let found = Disk::find(&place.dir("a")).unwrap().unwrap();
    assert_eq!(fs::read_to_string(found.path().join("note")).unwrap(), "still here");
    Disk::remove_in(&place.dir("a")).unwrap();
    assert_eq!(Disk::find(&place.dir("a")).unwrap(), None);
    place.wait_until_nothing_is_left();
}

#[test]
fn an_unfinished_disk_is_not_found_and_can_be_removed() {
    let Some(place) = Place::new() else { return };
    for stage in ["image", "image and mount point"] {
        let dir = place.dir("a");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("disk.img"), "half").unwrap();
        if stage != "image" {
            fs::create_dir(dir.join("mnt")).unwrap();
        }
        assert_eq!(Disk::find(&dir).unwrap(), None, "{stage}");
        Disk::remove_in(&dir).unwrap();
        place.create("a", 16 * MIB).remove().unwrap();
    }
    place.wait_until_nothing_is_left();
}

#[test]
fn a_disk_in_use_can_be_removed_and_gives_back_its_room() {
    let Some(place) = Place::new() else { return };
    let disk = place.create("a", 64 * MIB);
    let mut file = fs::File::create(disk.path().join("open")).unwrap();
    file.write_all(&vec![1; 8 * MIB as usize]).unwrap();
    disk.remove().unwrap();
    assert!(!disk.path().exists());
    drop(file);
    place.wait_until_nothing_is_left();
}

#[test]
fn a_second_disk_in_the_same_place_is_refused_and_changes_nothing() {
    let Some(place) = Place::new() else { return };
    let disk = place.create("a", 16 * MIB);
    fs::write(disk.path().join("note"), "mine").unwrap();
    let refused = Disk::create(&place.dir("a"), GuestIds::DEFAULT, 16 * MIB, &place.cache()).unwrap_err();
    assert!(matches!(refused, DiskError::Exists(_)), "{refused}");
    let refused = Disk::unlimited(&place.dir("a"), GuestIds::DEFAULT).unwrap_err();
    assert!(matches!(refused, DiskError::Exists(_)), "{refused}");
    assert_eq!(fs::read_to_string(disk.path().join("note")).unwrap(), "mine");
    let refused = Disk::create(&place.dir("b"), GuestIds::DEFAULT, MIB, &place.cache()).unwrap_err();
    assert!(matches!(refused, DiskError::TooSmall { .. }), "{refused}");
    assert!(!place.dir("b").exists());
}

#[test]
fn twenty_disks_at_once() {
    let Some(place) = Place::new() else { return };
    let place = &place;
    let names: Vec<String> = (0..20).map(|number| format!("d{number}")).collect();
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(move || {
                let disk = place.create(name, 32 * MIB);
                fs::write(disk.path().join("name"), name).unwrap();
            });
        }
    });
    for name in &names {
        let disk = Disk::find(&place.dir(name)).unwrap().unwrap();
        assert_eq!(&fs::read_to_string(disk.path().join("name")).unwrap(), name);
    }
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(move || Disk::remove_in(&place.dir(name)).unwrap());
        }
    });
    place.wait_until_nothing_is_left();
}

#[test]
fn an_unlimited_disk_is_a_plain_directory() {
    let Some(place) = Place::new() else { return };
    let disk = Disk::unlimited(&place.dir("a"), GuestIds::DEFAULT).unwrap();
    assert!(!disk.is_limited());
    assert_eq!(Disk::find(&place.dir("a")).unwrap(), Some(disk.clone()));
    assert_eq!(fs::metadata(disk.path()).unwrap().uid(), GuestIds::DEFAULT.base());
    fs::write(disk.path().join("x"), "y").unwrap();
    assert!(matches!(disk.grow(64 * MIB), Err(DiskError::NoDisk(_))));
    disk.remove().unwrap();
    assert!(!disk.path().exists());
    place.wait_until_nothing_is_left();
}

#[test]
fn a_disk_grows_while_it_is_in_use_and_never_shrinks() {
    let Some(place) = Place::new() else { return };
    let disk = place.create("a", 64 * MIB);
    let kept = fs::File::create(disk.path().join("open")).unwrap();
    assert!(matches!(disk.grow(32 * MIB), Err(DiskError::TooSmall { .. })));
    match disk.grow(256 * MIB) {
        Ok(()) => assert!(disk.usage().unwrap().size_bytes > 250 * MIB),
        Err(DiskError::MayNotResize { .. }) => {
            dorm_skip::skip("growing needs CAP_SYS_RESOURCE, which this test does not have");
            assert!(disk.usage().unwrap().size_bytes <= 64 * MIB);
        }
        Err(error) => panic!("{error}"),
    }
    fs::write(disk.path().join("after"), "still works").unwrap();
    drop(kept);
    disk.remove().unwrap();
    place.wait_until_nothing_is_left();
}

/// A second mount of a directory, which is removed even if the test fails.
struct Bound(PathBuf);

impl Bound {
    fn new(from: &Path, to: PathBuf) -> Self {
        fs::create_dir(&to).unwrap();
        rustix::mount::mount_bind(from, &to).unwrap();
        let bound = Self(to);
        // Mounts below one path do not appear below the other.
        rustix::mount::mount_change(&bound.0, MountPropagationFlags::PRIVATE).unwrap();
        bound
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_kept_disk_that_is_reached_by_two_paths_has_one_device() {
    let Some(place) = Place::new() else { return };
    let disk = KeptDisk::make(&place.dir("volume"), GuestIds::DEFAULT, 32 * MIB).unwrap();
    disk.mount().unwrap();
    fs::write(disk.path().join("note"), "one file system").unwrap();
    let bound = Bound::new(&place.top, place.dir("bound"));
    let again = KeptDisk::at(&bound.0.join("volume"));
    again.mount().unwrap();
    let inode = fs::metadata(place.dir("volume/disk.img")).unwrap().ino();
    assert_eq!(place.devices_of(inode), 1);
    assert_eq!(fs::read_to_string(again.path().join("note")).unwrap(), "one file system");
    again.unmount().unwrap();
    drop(bound);
    fs::remove_dir(place.dir("bound")).unwrap();
    disk.remove().unwrap();
    place.wait_until_nothing_is_left();
}
