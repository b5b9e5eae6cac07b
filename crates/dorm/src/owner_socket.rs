//! The daemon's end of its owner's socket.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};

use dorm_client::OwnerSocket;
use tokio::net::UnixListener;

/// Listens on the socket, replacing that of an earlier daemon. The caller holds the data directory.
pub(crate) fn listen(socket: &OwnerSocket) -> io::Result<UnixListener> {
    remove(socket)?;
    let listener = std::os::unix::net::UnixListener::bind(socket.path())?;
    std::fs::set_permissions(socket.path(), std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Removes the socket. Succeeds if there is none.
pub(crate) fn remove(socket: &OwnerSocket) -> io::Result<()> {
    match std::fs::symlink_metadata(socket.path()) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(socket.path()),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is not a socket has this name")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
