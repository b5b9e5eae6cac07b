//! The socket of the daemon's owner: `api.sock` in the data directory, mode 0600. A client that can
//! connect to it needs no key and may name paths of the host.
//!
//! A socket address has room for 107 bytes, but the path of a data directory may be longer. Both
//! ends therefore use a path below an open descriptor of the directory: `/proc/self/fd/N/api.sock`.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, Mode, OFlags};

const NAME: &str = "api.sock";

/// The socket of a data directory, which may or may not exist.
#[derive(Clone, Debug)]
pub struct OwnerSocket {
    directory: Arc<OwnedFd>,
    name: OsString,
    shown: PathBuf,
}

impl OwnerSocket {
    /// Returns the socket of the data directory `data`.
    ///
    /// # Errors
    /// If the directory cannot be opened.
    pub fn of(data: &Path) -> io::Result<Self> {
        Self::at(&data.join(NAME))
    }

    /// Returns the socket at a path.
    ///
    /// # Errors
    /// If its directory cannot be opened.
    pub fn at(socket: &Path) -> io::Result<Self> {
        let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the path of a socket"));
        };
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(directory, flags, Mode::empty())?;
        Ok(Self { directory: Arc::new(opened), name: name.to_owned(), shown: socket.to_owned() })
    }

    /// Returns the path to show to users.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// Returns the path to use in this process, as long as this value lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd())).join(&self.name)
    }

    /// Returns whether the socket exists and this process may connect to it.
    pub fn is_open_to_us(&self) -> bool {
        rustix::fs::accessat(&self.directory, &self.name, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    }
}
