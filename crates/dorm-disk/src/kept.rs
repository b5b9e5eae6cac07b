//! A disk whose content is kept: made once, mounted whenever somebody needs it, with a journal of its own.
//!
//! ```text
//! dir/disk.img   the file
//! dir/mnt        its mount point
//! ```
//!
//! The same file must never be mounted through two devices, which would ruin it: while anything anywhere still has the
//! file system, mounting it again goes through the device that it is on.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dorm_guest_ids::GuestIds;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::loop_device::{self, LoopDevice};
use crate::{BLOCK_BYTES, BYTES_MIN, Disk, DiskError, DiskUsage, template};

/// A disk in a directory. The value is only a name for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptDisk(Disk);

impl KeptDisk {
    /// The disk in the directory `dir`, whether or not there is one.
    pub fn at(dir: &Path) -> Self {
        Self(Disk { dir: dir.to_owned() })
    }

    /// Makes a disk of `bytes` (rounded down to 4 KiB, at least 16 MiB), durable and not mounted, in `dir`, which is made.
    /// The file takes room on the host as it is written to. Root of `ids` owns the top directory.
    ///
    /// # Errors
    /// [`DiskError::NoLoop`] on a host that could never mount it. What was made of one that failed is the caller's to
    /// remove, with the directory.
    pub fn make(dir: &Path, ids: GuestIds, bytes: u64) -> Result<Self, DiskError> {
        let bytes = bytes / BLOCK_BYTES * BLOCK_BYTES;
        if bytes < BYTES_MIN {
            return Err(DiskError::TooSmall { asked: bytes, least: BYTES_MIN });
        }
        loop_device::probe()?;
        let disk = Self::at(dir);
        disk.0.begin()?;
        template::format_kept(&disk.0.image(), ids, bytes)?;
        fs::create_dir(disk.path()).map_err(|source| DiskError::file("create", &disk.path(), source))?;
        // Where nothing is mounted nobody writes by mistake.
        fs::set_permissions(disk.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .map_err(|source| DiskError::file("protect", &disk.path(), source))?;
        Ok(disk)
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.0.image()
    }

    /// Where its content is while it is mounted.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Whether its file is there.
    pub fn exists(&self) -> bool {
        self.0.image().is_file()
    }

    /// Mounts it; nothing changes when it is mounted.
    ///
    /// # Errors
    /// When its file is gone or the host refuses.
    pub fn mount(&self) -> Result<(), DiskError> {
        if self.is_mounted()? {
            return Ok(());
        }
        let (path, image) = (self.path(), self.0.image());
        fs::metadata(&image).map_err(|source| DiskError::file("open", &image, source))?;
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(DiskError::file("create", &path, error));
            }
            _ => {}
        }
        let device = match loop_device::behind(&image) {
            Some(number) => LoopDevice::numbered(number)?,
            None => LoopDevice::attach(&image)?,
        };
        let flags = MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID;
        let options = CString::from(c"errors=remount-ro");
        rustix::mount::mount(device.path(), &path, "ext4", flags, options.as_c_str())
            .map_err(|error| DiskError::file("mount", &path, error.into()))?;
        crate::bound_when_tight(&image, &device);
        device.bypass_cache_soon();
        Ok(())
    }

    /// Whether it is mounted here.
    ///
    /// # Errors
    /// When the host cannot tell.
    pub fn is_mounted(&self) -> Result<bool, DiskError> {
        self.0.is_mounted()
    }

    /// How full it is, while it is mounted.
    ///
    /// # Errors
    /// When it is not mounted.
    pub fn usage(&self) -> Result<DiskUsage, DiskError> {
        match self.is_mounted()? {
            true => self.0.usage(),
            false => Err(DiskError::NoDisk(self.0.dir.clone())),
        }
    }

    /// Unmounts it; nothing changes when it is not mounted. What was written is on the host's disk then.
    ///
    /// # Errors
    /// When somebody uses it, or the host refuses.
    pub fn unmount(&self) -> Result<(), DiskError> {
        let path = self.path();
        while self.is_mounted()? {
            match rustix::mount::unmount(&path, UnmountFlags::NOFOLLOW) {
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err(DiskError::file("unmount", &path, error.into())),
            }
        }
        Ok(())
    }

    /// Removes it with all that is on it, also if it is unfinished or not there.
    ///
    /// # Errors
    /// When the host refuses; what is left can be removed by another call.
    pub fn remove(&self) -> Result<(), DiskError> {
        self.0.remove()?;
        match fs::remove_dir_all(&self.0.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DiskError::file("remove", &self.0.dir, error)),
            _ => Ok(()),
        }
    }
}
