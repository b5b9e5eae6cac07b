//! Programs that are notified when their sandbox gets a new identity. Each listens on a Unix socket
//! of its own in `/run/dormouse/on-resume.d`, receives one line, and answers with one line when it
//! has adapted.
//!
//! A socket is used because it belongs to a live process: the socket of a dead one refuses the
//! connection, whereas its process ID could be reused by another process.

use std::fs::{self, FileType};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dorm_agent_proto::{GuestPath, Hook, HookOutcome};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// How long all of them together may take to answer.
const TIME_MAX: Duration = Duration::from_secs(5);
/// The maximum number of notified listeners. More sockets than this are a mistake of a program.
const LISTENERS_MAX: usize = 1024;

/// Creates the directory, in which programs of any user may listen.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o1777)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sends `line` to every program that listens in `directory`, all at once, then waits for their
/// answers.
pub(crate) fn tell(directory: &Path, line: &str) -> Vec<Hook> {
    let told: Vec<_> = sockets(directory).into_iter().filter_map(|path| Some((send(&path, line)?, path))).collect();
    let deadline = Instant::now() + TIME_MAX;
    let mut hooks = Vec::new();
    for (told, path) in told {
        let Ok(path) = GuestPath::try_from(path.as_path()) else { continue };
        let outcome = told.and_then(|stream| answered(stream, deadline)).unwrap_or_else(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => HookOutcome::TimedOut,
            _ => HookOutcome::NotStarted(error.to_string()),
        });
        hooks.push(Hook { path, outcome });
    }
    hooks
}

fn sockets(directory: &Path) -> Vec<PathBuf> {
    let is_socket = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind: FileType| kind.is_socket());
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.filter(is_socket).map(|entry| entry.path()).take(LISTENERS_MAX).collect();
    paths.sort();
    paths
}

/// Connects to one listener. Returns `None`, and removes the socket, if no process listens on it
/// any more.
fn send(path: &Path, line: &str) -> Option<io::Result<UnixStream>> {
    match dial(path) {
        Ok(mut stream) => Some(stream.write_all(line.as_bytes()).map(|()| stream)),
        Err(Errno::CONNREFUSED) => {
            drop(fs::remove_file(path));
            None
        }
        Err(Errno::NOENT) => None,
        Err(error) => Some(Err(error.into())),
    }
}

/// Never blocks: the queue of a program that does not accept becomes full.
fn dial(path: &Path) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(stream)
}

fn answered(mut stream: UnixStream, deadline: Instant) -> io::Result<HookOutcome> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(left))?;
    // The content of the answer does not matter.
    match stream.read(&mut [0; 256])? {
        0 => Ok(HookOutcome::NotStarted("it closed the connection without an answer".to_owned())),
        _ => Ok(HookOutcome::Done),
    }
}
