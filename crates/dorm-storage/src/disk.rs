//! The operations on files from which every durable change is built.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use dorm_disk::lock::{self, LockError, Sharing};
use rustix::fs::{CWD, FlockOperation, RenameFlags};
use rustix::io::Errno;

use crate::error::{StorageError, failed};
use crate::steps::Steps;

/// How long a step of another process may hold a lock. The longest one removes the remains of an
/// interrupted import, on a slow disk.
const LOCK_LIMIT: Duration = Duration::from_secs(600);

/// Creates a directory and missing ones above it, which only their owner may list. Existing ones do
/// not change.
pub(crate) fn make_directories(path: &Path) -> Result<(), StorageError> {
    let missing: Vec<_> = path.ancestors().take_while(|above| !above.exists()).collect();
    DirBuilder::new().recursive(true).create(path).map_err(failed("make the directory", path))?;
    // The umask of the process may remove more permissions than this.
    missing.into_iter().filter(|made| !made.as_os_str().is_empty()).try_for_each(|made| {
        fs::set_permissions(made, Permissions::from_mode(0o711)).map_err(failed("set the mode of", made))
    })
}

/// Lets only its owner enter a directory.
pub(crate) fn close_directory(path: &Path) -> Result<(), StorageError> {
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed("set the mode of", path))
}

/// Lets only the owner and the host's group `group` pass through a directory. Without root no
/// process can have that group, and only the owner can pass.
pub(crate) fn let_pass(path: &Path, group: u32) -> Result<(), StorageError> {
    match std::os::unix::fs::chown(path, None, Some(group)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return close_directory(path),
        Err(error) => return Err(failed("set the group of", path)(error)),
    }
    fs::set_permissions(path, Permissions::from_mode(0o710)).map_err(failed("set the mode of", path))
}

/// Creates one directory, which must not exist.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_directory(path: &Path, steps: &Steps) -> Result<(), StorageError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(failed("sync the directory", path))?;
    steps.durable(path);
    Ok(())
}

/// Writes a new file and makes its content durable. Its name is durable once the directory is
/// synced.
pub(crate) fn write_new(path: &Path, content: &[u8], steps: &Steps) -> Result<(), StorageError> {
    #[cfg(feature = "planted-bugs")]
    if path.ends_with("manifest.json") && dorm_steps::planted::is(dorm_steps::planted::Planted::ManifestNotSynced) {
        return fs::write(path, content).map_err(failed("write", path));
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        })
        .map_err(failed("write", path))?;
    steps.durable(path);
    Ok(())
}

/// Renames to a name that is not taken; [`io::ErrorKind::AlreadyExists`] if it is.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems do not support the flag. An empty directory at the new name would then
        // be replaced silently; no name here is ever that of an empty directory.
        Err(Errno::INVAL | Errno::NOSYS) => {
            if to.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)
        }
        other => other.map_err(io::Error::from),
    }
}

/// Removes a directory and everything in it, without following links. Succeeds if it does not
/// exist.
pub(crate) fn remove_tree(path: &Path) -> Result<(), StorageError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(failed("remove", path)),
    }
}

/// Removes a file. Succeeds if it does not exist.
pub(crate) fn remove_file(path: &Path) -> Result<(), StorageError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(failed("remove", path)),
    }
}

/// Returns how many bytes an ordinary user can still write to the file system of `path`.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, StorageError> {
    let facts = rustix::fs::statvfs(path).map_err(failed("ask for free space in", path))?;
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// Returns the names in a directory that are UTF-8, in any order.
pub(crate) fn names(path: &Path) -> Result<Vec<String>, StorageError> {
    let entries = fs::read_dir(path).map_err(failed("list", path))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed("list", path))?;
        if let Ok(name) = entry.file_name().into_string() {
            names.push(name);
        }
    }
    Ok(names)
}

/// Waits for an exclusive lock on `path`. It is held until the returned file is dropped or the
/// process dies.
pub(crate) fn lock(path: &Path) -> Result<File, StorageError> {
    lock::take(path, Sharing::Exclusive, LOCK_LIMIT).map_err(|error| failed("lock", path)(io::Error::from(error)))
}

/// Waits for a shared lock on `path`.
pub(crate) fn lock_shared(path: &Path) -> Result<File, StorageError> {
    lock::take(path, Sharing::Shared, LOCK_LIMIT).map_err(|error| failed("lock", path)(io::Error::from(error)))
}

/// Takes an exclusive lock on `path` if no other process holds one.
pub(crate) fn try_lock(path: &Path) -> Result<Option<File>, StorageError> {
    match lock::take(path, Sharing::Exclusive, Duration::ZERO) {
        Ok(file) => Ok(Some(file)),
        Err(LockError::Held { .. }) => Ok(None),
        Err(error) => Err(failed("lock", path)(io::Error::from(error))),
    }
}

/// Takes an exclusive lock on the directory `path` if no other process holds one.
pub(crate) fn try_lock_directory(path: &Path) -> Result<Option<File>, StorageError> {
    let directory = File::open(path).map_err(failed("open", path))?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(directory)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(failed("lock", path)(error)),
    }
}
