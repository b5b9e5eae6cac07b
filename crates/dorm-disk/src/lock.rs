//! Locks between processes: a file that is locked as long as it is open. Failing to take a lock is
//! an error that names the process that holds it, so that no process waits forever for another one.
//!
//! The file of a lock has mode 0600: a user who can open it can also hold it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use thiserror::Error;

/// The pauses between attempts: they double from the first to the maximum.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// How often the list of locks is read when it names no holder.
const READS: usize = 3;
/// How many bytes of a command line an error shows.
const COMMAND_MAX: usize = 120;

/// The other processes that may hold the lock at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// No other process.
    Exclusive,
    /// Only processes that share it.
    Shared,
}

/// Why a lock was not taken.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{} is locked by {}: stop that process, or wait for it to end", path.display(), shown(holders))]
    Held {
        /// The file of the lock.
        path: PathBuf,
        /// The processes that hold it, as far as they are visible to this process.
        holders: Vec<Holder>,
    },
    /// The system refused.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl From<LockError> for io::Error {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Held { .. } => Self::new(io::ErrorKind::TimedOut, error),
            LockError::Io { ref source, .. } => Self::new(source.kind(), error),
        }
    }
}

/// A process that holds a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its process ID.
    pub pid: u32,
    /// Its command line, cut to a readable length; empty if it cannot be read.
    pub command: String,
}

/// Takes the lock in the file `path` within `limit`. Creates the file if it is missing.
///
/// # Errors
/// [`LockError::Held`] if another process holds it for longer than `limit`.
pub fn take(path: &Path, sharing: Sharing, limit: Duration) -> Result<File, LockError> {
    let file = open(path)?;
    hold(&file, path, sharing, limit)?;
    Ok(file)
}

/// Opens the file of a lock and removes other users' access to it, without locking it.
///
/// # Errors
/// When the file cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> Result<File, LockError> {
    let failed = |operation| move |source| LockError::Io { operation, path: path.to_owned(), source };
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).unwrap_or_default();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path).map_err(failed("open the lock"))?;
    let facts = file.metadata().map_err(failed("read the metadata of the lock"))?;
    if facts.mode() & 0o077 != 0 {
        let closed = std::fs::Permissions::from_mode(0o600);
        file.set_permissions(closed).map_err(failed("restrict the permissions of the lock"))?;
    }
    Ok(file)
}

/// Locks an open file within `limit`. `path` is its name in errors.
///
/// # Errors
/// As [`take`].
pub fn hold(file: &File, path: &Path, sharing: Sharing, limit: Duration) -> Result<(), LockError> {
    let how = match sharing {
        Sharing::Exclusive => FlockOperation::NonBlockingLockExclusive,
        Sharing::Shared => FlockOperation::NonBlockingLockShared,
    };
    let until = Instant::now() + limit;
    let mut pause = PAUSES.0;
    loop {
        match rustix::fs::flock(file.as_fd(), how) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(pause);
                pause = pause.saturating_mul(2).min(PAUSES.1);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(LockError::Held { path: path.to_owned(), holders: holders(file) });
            }
            Err(error) => {
                return Err(LockError::Io { operation: "lock", path: path.to_owned(), source: error.into() });
            }
        }
    }
}

/// Returns the processes that hold a lock on `file`, from `/proc/locks`.
pub fn holders(file: &File) -> Vec<Holder> {
    // The kernel returns its list in parts, and can leave out a lock while others come and go.
    (0..READS).map(|_| listed(file)).find(|holders| !holders.is_empty()).unwrap_or_default()
}

fn listed(file: &File) -> Vec<Holder> {
    let Ok(facts) = file.metadata() else { return Vec::new() };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let device = (rustix::fs::major(facts.dev()), rustix::fs::minor(facts.dev()));
    let locks: Vec<_> = locks.lines().filter_map(parse).filter(|lock| lock.inode == facts.ino()).collect();
    // On some file systems `stat` returns another device than the kernel's list of locks.
    let is_listed = locks.iter().any(|lock| lock.device == device);
    let held = locks.into_iter().filter(|lock| !is_listed || lock.device == device);
    held.map(|lock| Holder { pid: lock.pid, command: command(lock.pid) }).collect()
}

struct Lock {
    pid: u32,
    device: (u32, u32),
    inode: u64,
}

/// Parses a line such as `1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF`. The line of a waiting
/// process has `->` after its number.
fn parse(line: &str) -> Option<Lock> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?.parse().ok()?;
    let mut place = words.next()?.split(':');
    let mut number = || u32::from_str_radix(place.next()?, 16).ok();
    let device = (number()?, number()?);
    Some(Lock { pid, device, inode: place.next()?.parse().ok()? })
}

fn command(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    let line: String = String::from_utf8_lossy(&words.join(&b' ')).chars().take(COMMAND_MAX).collect();
    line.escape_debug().to_string()
}

fn shown(holders: &[Holder]) -> String {
    let shown = holders.iter().map(|holder| match holder.command.as_str() {
        "" => format!("process {}", holder.pid),
        command => format!("process {} ({command})", holder.pid),
    });
    let shown: Vec<_> = shown.collect();
    if shown.is_empty() { "a process that is not visible here".to_owned() } else { shown.join(" and ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_held_is_refused_within_its_limit_and_names_the_holder() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = take(&path, Sharing::Exclusive, Duration::ZERO).unwrap();
        for sharing in [Sharing::Exclusive, Sharing::Shared] {
            let refused = take(&path, sharing, Duration::from_millis(5)).unwrap_err();
            let LockError::Held { ref holders, .. } = refused else { panic!("{refused}") };
            assert_eq!(holders.iter().map(|holder| holder.pid).collect::<Vec<_>>(), [std::process::id()]);
            let program = std::env::args().next().unwrap();
            assert!(refused.to_string().contains(&program[..program.len().min(40)]), "{refused}");
        }
        drop(held);
        let shared = [(); 2].map(|()| take(&path, Sharing::Shared, Duration::ZERO).unwrap());
        assert_eq!(holders(&shared[0]).len(), 2);
        take(&path, Sharing::Exclusive, Duration::ZERO).unwrap_err();
    }

    #[test]
    fn the_file_of_a_lock_is_closed_to_other_users_and_no_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        take(&path, Sharing::Exclusive, Duration::ZERO).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        take(&link, Sharing::Exclusive, Duration::ZERO).unwrap_err();
    }

    #[test]
    fn lines_of_the_kernels_list_are_read() {
        let lock = parse("1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF").unwrap();
        assert_eq!((lock.pid, lock.device, lock.inode), (1234, (0xfe, 1), 5678));
        for line in ["1: -> FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF", "2: POSIX ADVISORY READ 1 08:01:2 0 EOF", ""]
        {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
