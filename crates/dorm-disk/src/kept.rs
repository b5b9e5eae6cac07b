//! A disk with persistent content: created once, mounted whenever it is needed, with a journal of
//! its own.
//!
//! ```text
//! dir/disk.img      the file
//! dir/mnt           its mount point
//! dir/lost-writes   exists if it has lost writes
//! ```
//!
//! The file must never be mounted through two devices at once, which would destroy it. While the
//! file system is still in use anywhere, mounting it again uses its existing device.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dorm_guest_ids::GuestIds;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::loop_device::{self, LoopDevice};
use crate::{BLOCK_BYTES, BYTES_MIN, Disk, DiskError, DiskUsage, template};

/// A disk in a directory. The value is only a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptDisk(Disk);

impl KeptDisk {
    /// Returns the disk in the directory `dir`, whether or not it exists.
    pub fn at(dir: &Path) -> Self {
        Self(Disk { dir: dir.to_owned() })
    }

    /// Creates a disk of `bytes` (rounded down to 4 KiB, at least 16 MiB) in the new directory
    /// `dir`, durable and not mounted. The file takes space on the host as it is written to. Root
    /// of `ids` owns the top directory.
    ///
    /// # Errors
    /// [`DiskError::NoLoop`] on a host that could never mount it. After a failure the caller must
    /// remove the directory.
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
        // Without access to the mount point, nothing is written there by mistake.
        fs::set_permissions(disk.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .map_err(|source| DiskError::file("protect", &disk.path(), source))?;
        Ok(disk)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0.dir
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.0.image()
    }

    /// Returns the path of its content while it is mounted.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Returns whether its file exists.
    pub fn exists(&self) -> bool {
        self.0.image().is_file()
    }

    /// Mounts the disk. Mounting a mounted disk has no effect.
    ///
    /// # Errors
    /// When its file is missing or the host refuses.
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
        let device = match LoopDevice::attached_to(&image)? {
            Some(device) => device,
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

    /// Returns whether it is mounted here.
    ///
    /// # Errors
    /// When the host cannot tell.
    pub fn is_mounted(&self) -> Result<bool, DiskError> {
        self.0.is_mounted()
    }

    /// Returns its usage while it is mounted.
    ///
    /// # Errors
    /// When it is not mounted.
    pub fn usage(&self) -> Result<DiskUsage, DiskError> {
        match self.is_mounted()? {
            true => self.0.usage(),
            false => Err(DiskError::NoDisk(self.0.dir.clone())),
        }
    }

    /// Unmounts the disk. Its content is then durable. Unmounting a disk that is not mounted has no
    /// effect.
    ///
    /// # Errors
    /// When it is in use, or the host refuses.
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

    /// Removes the disk with all its content, even if it is incomplete or missing.
    ///
    /// # Errors
    /// When the host refuses; another call removes the rest.
    pub fn remove(&self) -> Result<(), DiskError> {
        self.0.remove()?;
        match fs::remove_dir_all(&self.0.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DiskError::file("remove", &self.0.dir, error)),
            _ => Ok(()),
        }
    }
}
