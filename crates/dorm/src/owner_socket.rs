//! The socket of the daemon's owner: `api.sock` in the data directory, mode 0600. A client that can
//! connect to it needs no key and may name paths of the host.
//!
//! A socket address has room for 107 bytes, but the path of a data directory may be longer. Both
//! ends therefore use a path below an open descriptor of the directory: `/proc/self/fd/N/api.sock`.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, Mode, OFlags};
use tokio::net::UnixListener;

const NAME: &str = "api.sock";

/// The socket of a data directory, which may or may not exist.
#[derive(Clone, Debug)]
pub(crate) struct OwnerSocket {
    directory: Arc<OwnedFd>,
    shown: PathBuf,
}

impl OwnerSocket {
    /// Returns the socket of the data directory `data`.
    pub(crate) fn of(data: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(data, flags, Mode::empty())?;
        Ok(Self { directory: Arc::new(directory), shown: data.join(NAME) })
    }

    /// Returns the path to show to users.
    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    /// Returns the path to use in this process, as long as this value lives.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{NAME}", self.directory.as_raw_fd()))
    }

    /// Returns whether the socket exists and this process may connect to it.
    pub(crate) fn is_open_to_us(&self) -> bool {
        rustix::fs::accessat(&self.directory, NAME, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    }

    /// Listens on the socket, replacing that of an earlier daemon. The caller holds the data
    /// directory.
    pub(crate) fn listen(&self) -> io::Result<UnixListener> {
        self.remove()?;
        let listener = std::os::unix::net::UnixListener::bind(self.path())?;
        std::fs::set_permissions(self.path(), std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    }

    /// Removes the socket. Succeeds if there is none.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match std::fs::symlink_metadata(self.path()) {
            Ok(found) if found.file_type().is_socket() => std::fs::remove_file(self.path()),
            Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is not a socket has this name")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}
