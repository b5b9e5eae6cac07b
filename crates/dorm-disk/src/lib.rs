//! A size-limited directory for the files that a run writes.
//!
//! It is a sparse file with a file system, mounted through a loop device. On a host without loop
//! devices the caller may choose a plain directory instead, which has no limit. A disk is
//! identified by its directory alone, so that it can be removed after a crash:
//!
//! ```text
//! dir/disk.img   the file        (missing for an unlimited disk)
//! dir/mnt        its mount point, or the plain directory
//! ```
//!
//! [`lock`] contains the locks between processes that share a directory.
//!
//! A [`KeptDisk`] has content that outlives its writer. This crate does not know what is written.
//! All calls block: for some milliseconds, the first of a size for some tens.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod error;
mod kept;
pub mod lock;
mod loop_device;
mod open_disk;
mod owners;
mod priority;
mod reserve;
mod subtrees;
mod template;
mod writes;

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use dorm_guest_ids::GuestIds;
use dorm_steps::AnySteps;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::mount::{MountFlags, UnmountFlags};

pub use error::DiskError;
pub use kept::KeptDisk;
use loop_device::LoopDevice;
pub use open_disk::OpenDisk;
pub use owners::{change_owners, finish_change, record, recorded};
pub use priority::give_way;
pub use reserve::Reserve;
pub use subtrees::hash_of_subtrees;
pub use writes::{LostWrites, begin_writing, bound_unwritten, unwritten_max};

/// The minimum size: a smaller disk has little left beside the file system's own metadata.
const BYTES_MIN: u64 = 16 << 20;
const BLOCK_BYTES: u64 = 4096;

/// The limit on unwritten data of a new disk if the host's disk is nearly full. The next check of
/// the disk sets a limit for all of them together.
const UNWRITTEN_AT_FIRST: u64 = 4 << 20;

/// Limits the unwritten data of the device, unless the host's disk has space for all data that may
/// ever be unwritten. Without a limit, one that the kernel kept from an earlier user of the device
/// is removed: it would slow writes down to some hundred pages per second.
fn bound_when_tight(image: &Path, device: &LoopDevice) {
    let host = image.parent().unwrap_or(Path::new("/"));
    let is_tight = reserve::free_bytes(host).is_ok_and(|free| free < unwritten_max().saturating_mul(2));
    if let Some(number) = device.number() {
        writes::bound_device(number, is_tight.then_some(UNWRITTEN_AT_FIRST));
    }
}

/// The usage of a disk, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskUsage {
    /// The total space for files.
    pub size_bytes: u64,
    /// The free space.
    pub available_bytes: u64,
}

/// A run's disk. The value is only a name: dropping it changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disk {
    dir: PathBuf,
}

impl Disk {
    /// Creates a disk of `bytes` (rounded down to 4 KiB, at least 16 MiB) in the directory `dir`,
    /// which is created if necessary. `cache` is the directory that keeps formatted templates for
    /// later disks, preferably on the same file system. The file takes no space on the host before
    /// it is written to, so the host may be full before the disk is: writes then fail with an I/O
    /// error. Root of `ids` owns the top directory.
    ///
    /// # Errors
    /// [`DiskError::NoLoop`], for which [`Disk::unlimited`] exists. On failure, what was created is
    /// removed.
    pub fn create(dir: &Path, ids: GuestIds, bytes: u64, cache: &Path) -> Result<Self, DiskError> {
        Self::create_with(dir, ids, bytes, cache, &dorm_steps::pass())
    }

    /// Like [`Disk::create`], with a hook for each step.
    ///
    /// # Errors
    /// As [`Disk::create`].
    pub fn create_with(
        dir: &Path,
        ids: GuestIds,
        bytes: u64,
        cache: &Path,
        steps: &AnySteps,
    ) -> Result<Self, DiskError> {
        let bytes = bytes / BLOCK_BYTES * BLOCK_BYTES;
        if bytes < BYTES_MIN {
            return Err(DiskError::TooSmall { asked: bytes, least: BYTES_MIN });
        }
        let disk = Self { dir: dir.to_owned() };
        disk.begin()?;
        let template = template::template(cache, ids, bytes)?;
        disk.fill(&template, steps).inspect_err(|_| disk.undo())?;
        Ok(disk)
    }

    fn fill(&self, template: &Path, steps: &AnySteps) -> Result<(), DiskError> {
        template::copy(template, &self.image())?;
        self.reach(steps, "disk: file made")?;
        let device = LoopDevice::attach(&self.image())?;
        fs::create_dir(self.path()).map_err(|source| DiskError::file("create", &self.path(), source))?;
        self.reach(steps, "disk: device attached")?;
        let flags = MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID;
        // The inode tables are zero already: they are holes in the file.
        let options = CString::from(c"noinit_itable");
        // From here on the mount holds the device; without a mount the kernel detaches the device
        // when it is closed.
        rustix::mount::mount(device.path(), self.path(), "ext4", flags, options.as_c_str())
            .map_err(|error| DiskError::file("mount", &self.path(), error.into()))?;
        bound_when_tight(&self.image(), &device);
        device.bypass_cache_soon();
        self.reach(steps, "disk: mounted")
    }

    fn reach(&self, steps: &AnySteps, step: &'static str) -> Result<(), DiskError> {
        steps.reach(step).map_err(|stopped| DiskError::file("continue past a step of", &self.dir, stopped.into()))
    }

    /// Creates an unlimited disk in `dir`: a plain directory owned by root of `ids`.
    ///
    /// # Errors
    /// When a disk exists, or the directory cannot be created.
    pub fn unlimited(dir: &Path, ids: GuestIds) -> Result<Self, DiskError> {
        let disk = Self { dir: dir.to_owned() };
        disk.begin()?;
        let path = disk.path();
        let made = fs::create_dir(&path)
            .and_then(|()| std::os::unix::fs::chown(&path, Some(ids.base()), Some(ids.base())))
            .map_err(|source| DiskError::file("create", &path, source));
        made.inspect_err(|_| disk.undo())?;
        Ok(disk)
    }

    fn begin(&self) -> Result<(), DiskError> {
        fs::create_dir_all(&self.dir).map_err(|source| DiskError::file("create", &self.dir, source))?;
        let taken = self.image().exists() || self.path().exists();
        if taken { Err(DiskError::Exists(self.dir.clone())) } else { Ok(()) }
    }

    fn undo(&self) {
        if let Err(error) = self.remove() {
            tracing::warn!(dir = %self.dir.display(), %error, "cannot remove a disk after its creation failed");
        }
    }

    /// Returns the disk in `dir` if it can be used: if it is mounted, or unlimited.
    ///
    /// # Errors
    /// When the host cannot tell.
    pub fn find(dir: &Path) -> Result<Option<Self>, DiskError> {
        let disk = Self { dir: dir.to_owned() };
        if !disk.path().is_dir() {
            return Ok(None);
        }
        let ready = !disk.image().exists() || disk.is_mounted()?;
        Ok(ready.then_some(disk))
    }

    /// Checks whether this host can limit disks, for `dorm doctor`.
    ///
    /// # Errors
    /// What is missing: loop devices, or the program that formats disks.
    pub fn probe() -> Result<(), DiskError> {
        loop_device::probe()?;
        template::probe()
    }

    /// Returns the directory that the run may write to.
    pub fn path(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    fn image(&self) -> PathBuf {
        self.dir.join("disk.img")
    }

    /// Returns whether its size is limited.
    pub fn is_limited(&self) -> bool {
        self.image().exists()
    }

    /// Returns the numbers of its block device; `None` for an unlimited disk.
    ///
    /// # Errors
    /// When the disk does not exist.
    pub fn device(&self) -> Result<Option<(u32, u32)>, DiskError> {
        if !self.is_limited() {
            return Ok(None);
        }
        let path = self.path();
        let facts =
            rustix::fs::stat(&path).map_err(|error| DiskError::file("read the device of", &path, error.into()))?;
        Ok(Some((rustix::fs::major(facts.st_dev), rustix::fs::minor(facts.st_dev))))
    }

    /// Returns its usage. For an unlimited disk this is the usage of the file system that contains
    /// it.
    ///
    /// # Errors
    /// When the disk does not exist.
    pub fn usage(&self) -> Result<DiskUsage, DiskError> {
        let path = self.path();
        let stat =
            rustix::fs::statvfs(&path).map_err(|error| DiskError::file("read the size of", &path, error.into()))?;
        Ok(DiskUsage { size_bytes: stat.f_blocks * stat.f_frsize, available_bytes: stat.f_bavail * stat.f_frsize })
    }

    /// Grows the disk while it is in use. Growing it to its present size has no effect. May be
    /// repeated after a failure.
    ///
    /// # Errors
    /// [`DiskError::TooSmall`] below its present size, [`DiskError::MayNotResize`] without the
    /// required capability.
    pub fn grow(&self, bytes: u64) -> Result<(), DiskError> {
        let bytes = bytes / BLOCK_BYTES * BLOCK_BYTES;
        let image = self.image();
        if !image.exists() || !self.is_mounted()? {
            return Err(DiskError::NoDisk(self.dir.clone()));
        }
        let file = fs::OpenOptions::new().write(true).open(&image);
        let file = file.map_err(|source| DiskError::file("open", &image, source))?;
        let now = file.metadata().map_err(|source| DiskError::file("read the metadata of", &image, source))?.len();
        if bytes < now {
            return Err(DiskError::TooSmall { asked: bytes, least: now });
        }
        // The file first: if the process dies after this, the file system is intact, and a
        // repetition continues here.
        file.set_len(bytes).map_err(|source| DiskError::file("extend", &image, source))?;
        let number = loop_device::number_below(&self.path());
        let number = number.map_err(|source| DiskError::file("read the metadata of", &self.path(), source))?;
        let number = number.ok_or_else(|| DiskError::NoDisk(self.dir.clone()))?;
        LoopDevice::numbered(number)?.take_new_size()?;
        self.resize_mounted(bytes / BLOCK_BYTES)
    }

    fn resize_mounted(&self, blocks: u64) -> Result<(), DiskError> {
        /// `EXT4_IOC_RESIZE_FS`: `_IOW('f', 16, __u64)`.
        const RESIZE: u64 = 0x4008_6610;
        let path = self.path();
        let top = fs::File::open(&path).map_err(|source| DiskError::file("open", &path, source))?;
        // SAFETY: the request reads one u64, which outlives the call; the descriptor is open.
        #[allow(unsafe_code)]
        let answer = unsafe { libc::ioctl(top.as_raw_fd(), RESIZE as _, std::ptr::from_ref(&blocks)) };
        if answer == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Err(DiskError::MayNotResize { dir: self.dir.clone(), source }),
            _ => Err(DiskError::file("resize", &path, source)),
        }
    }

    /// Removes the disk with everything written to it, even if it is in use, incomplete, or
    /// missing. `dir` itself and other files in it stay.
    ///
    /// # Errors
    /// When the host refuses; another call removes the rest.
    pub fn remove(&self) -> Result<(), DiskError> {
        self.remove_by_steps(&dorm_steps::pass())
    }

    fn remove_by_steps(&self, steps: &AnySteps) -> Result<(), DiskError> {
        let path = self.path();
        self.unmount()?;
        self.reach(steps, "disk: unmounted")?;
        // A process that still has the file open, in any mount namespace, must not keep its blocks
        // allocated.
        match fs::OpenOptions::new().write(true).truncate(true).open(self.image()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DiskError::file("empty", &self.image(), error));
            }
            _ => {}
        }
        for (path, removed) in [(&path, fs::remove_dir_all(&path)), (&self.image(), fs::remove_file(self.image()))] {
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(DiskError::file("remove", path, error));
                }
                _ => {}
            }
        }
        self.reach(steps, "disk: removed")
    }

    /// Like [`Disk::remove_in`], with a hook for each step.
    ///
    /// # Errors
    /// As [`Disk::remove_in`].
    pub fn remove_with(dir: &Path, steps: &AnySteps) -> Result<(), DiskError> {
        Self { dir: dir.to_owned() }.remove_by_steps(steps)
    }

    /// Removes the disk in `dir`, complete or not; see [`Disk::remove`].
    ///
    /// # Errors
    /// As [`Disk::remove`].
    pub fn remove_in(dir: &Path) -> Result<(), DiskError> {
        Self { dir: dir.to_owned() }.remove()
    }

    fn unmount(&self) -> Result<(), DiskError> {
        use rustix::io::Errno;
        let path = self.path();
        let unmount = |flags| rustix::mount::unmount(&path, UnmountFlags::NOFOLLOW | flags);
        let mut last = Errno::BUSY;
        // Only another program can have mounted it more than once; a few such mounts are removed.
        for _ in 0..8 {
            if !self.is_mounted()? {
                return Ok(());
            }
            let done = match unmount(UnmountFlags::empty()) {
                // Still in use: it is detached from here now, and released when its last user is
                // gone.
                Err(Errno::BUSY) => unmount(UnmountFlags::DETACH),
                other => other,
            };
            // Another call may have been faster; the next check shows.
            last = done.err().unwrap_or(last);
        }
        if self.is_mounted()? { Err(DiskError::file("unmount", &path, last.into())) } else { Ok(()) }
    }

    /// Returns whether something is mounted at its path.
    fn is_mounted(&self) -> Result<bool, DiskError> {
        let path = self.path();
        match rustix::fs::statx(CWD, &path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE) {
            Ok(found) => Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(DiskError::file("read the metadata of", &path, error.into())),
        }
    }
}
