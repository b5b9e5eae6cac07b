//! The root file system of each container: a read-only mount of its own, on which the image's
//! set-ID bits and devices have no effect on the host. It shows the image, or an overlay of the
//! image, the layers above it, and the mount point for volumes if the image lacks that. It is
//! outside the container's home, since guests' host IDs must be able to traverse to it, and they
//! have no other access to the image.
//!
//! ```text
//! roots/<container>   the mount point
//! ```

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use dorm_guest_ids::GuestIds;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use crate::error::GvisorError;

const FLAGS: MountFlags =
    MountFlags::RDONLY.union(MountFlags::NOATIME).union(MountFlags::NODEV).union(MountFlags::NOSUID);
/// The kernel accepts one page of mount options.
const OPTIONS_MAX: usize = 4095;

/// Creates the directory of the mount points. Only root and guests' host IDs can traverse it.
pub(crate) fn make_directory(path: &Path, ids: GuestIds) -> Result<(), GvisorError> {
    let made = fs::create_dir_all(path)
        .and_then(|()| std::os::unix::fs::chown(path, None, Some(ids.base())))
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o710)));
    made.map_err(|source| GvisorError::file("create", path, source))
}

/// Creates the directory `path` and mounts an overlay of `parts` there, the topmost first.
pub(crate) fn mount(path: &Path, parts: &[PathBuf]) -> Result<(), GvisorError> {
    let options = options(parts).map_err(|source| GvisorError::file("mount", path, source))?;
    fs::DirBuilder::new().mode(0o700).create(path).map_err(|source| GvisorError::file("create", path, source))?;
    let mounted = rustix::mount::mount("dormouse", path, "overlay", FLAGS, options.as_c_str());
    mounted.map_err(|error| {
        let _ = fs::remove_dir(path);
        GvisorError::file("mount the layers of", path, io::Error::from(error))
    })
}

/// Creates the directory `path` and mounts the plain directory `image` there.
pub(crate) fn mount_image(path: &Path, image: &Path) -> Result<(), GvisorError> {
    fs::DirBuilder::new().mode(0o755).create(path).map_err(|source| GvisorError::file("create", path, source))?;
    let mounted = rustix::mount::mount_bind(image, path).and_then(|()| {
        rustix::mount::mount_change(path, MountPropagationFlags::PRIVATE)?;
        rustix::mount::mount_remount(path, MountFlags::BIND | FLAGS, c"")
    });
    mounted.map_err(|error| {
        let _ = remove(path);
        GvisorError::file("mount the image at", path, io::Error::from(error))
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
        let what = format!(
            "the paths of {} layers are longer than the kernel accepts: use a data directory with a shorter path",
            parts.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(CString::new(text)?)
}

/// Unmounts everything that is mounted at `path`.
pub(crate) fn unmount(path: &Path) -> Result<(), GvisorError> {
    let wrong = |operation, error: io::Error| GvisorError::file(operation, path, error);
    while is_mounted(path).map_err(|error| wrong("read the metadata of", error))? {
        let unmounted = match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW) {
            // Still in use: it is detached from here now, and released when its last user is gone.
            Err(Errno::BUSY) => rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH),
            other => other,
        };
        unmounted.map_err(|error| wrong("unmount", error.into()))?;
    }
    Ok(())
}

/// Unmounts and removes `path`. A missing path is no error.
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

/// Returns the directory of the mount points, beside the homes of the containers.
pub(crate) fn directory(containers: &Path) -> PathBuf {
    containers.with_file_name("roots")
}
