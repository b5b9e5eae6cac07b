//! A root filesystem made of an image and layers, and of the mount point for volumes where the image lacks it: one read-only overlay mount for each hull that needs it, outside the
//! hull's home, since guests' ids have to pass to it.
//!
//! ```text
//! roots/<hull>   the mount point   (only for a hull whose root filesystem is more than its image)
//! ```

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::error::GvisorError;

/// Host group of the guests' root.
pub(crate) const GUEST_ROOT: u32 = 100_000;
/// The kernel takes one page of options.
const OPTIONS_MAX: usize = 4095;

/// Makes the directory in which the mount points are: guests' ids pass through it, nobody else but root does.
pub(crate) fn make_directory(path: &Path) -> Result<(), GvisorError> {
    let made = fs::create_dir_all(path)
        .and_then(|()| std::os::unix::fs::chown(path, None, Some(GUEST_ROOT)))
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o710)));
    made.map_err(|source| GvisorError::file("create", path, source))
}

/// Mounts `parts`, the topmost first, over one another at `path`, which is made.
pub(crate) fn mount(path: &Path, parts: &[PathBuf]) -> Result<(), GvisorError> {
    let options = options(parts).map_err(|source| GvisorError::file("mount", path, source))?;
    fs::DirBuilder::new().mode(0o700).create(path).map_err(|source| GvisorError::file("create", path, source))?;
    let flags = MountFlags::RDONLY | MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID;
    let mounted = rustix::mount::mount("dormouse", path, "overlay", flags, options.as_c_str());
    mounted.map_err(|error| {
        let _ = fs::remove_dir(path);
        GvisorError::file("mount the layers of", path, io::Error::from(error))
    })
}

fn options(parts: &[PathBuf]) -> io::Result<CString> {
    let mut text = b"lowerdir=".to_vec();
    for (at, directory) in parts.iter().enumerate() {
        if at > 0 {
            text.push(b':');
        }
        for byte in directory.as_os_str().as_bytes() {
            if matches!(byte, b':' | b',' | b'\\') {
                text.push(b'\\');
            }
            text.push(*byte);
        }
    }
    if text.len() > OPTIONS_MAX {
        let what =
            format!("{} layers have longer paths than the kernel takes: use a shorter data directory", parts.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(CString::new(text)?)
}

/// Unmounts what is at `path`, if anything is.
pub(crate) fn unmount(path: &Path) -> Result<(), GvisorError> {
    let wrong = |operation, error: io::Error| GvisorError::file(operation, path, error);
    while is_mounted(path).map_err(|error| wrong("look at", error))? {
        let unmounted = match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW) {
            // Still in use: it vanishes from here, and for good when the last user is gone.
            Err(Errno::BUSY) => rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH),
            other => other,
        };
        unmounted.map_err(|error| wrong("unmount", error.into()))?;
    }
    Ok(())
}

/// Unmounts and removes what is at `path`, if anything is.
pub(crate) fn remove(path: &Path) -> Result<(), GvisorError> {
    unmount(path)?;
    match fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GvisorError::file("remove", path, error)),
        _ => Ok(()),
    }
}

pub(crate) fn is_mounted(path: &Path) -> io::Result<bool> {
    match rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE) {
        Ok(found) => Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Where the mount points are, beside the homes of the hulls.
pub(crate) fn directory(hulls: &Path) -> PathBuf {
    hulls.with_file_name("roots")
}
