//! The agent's binary, which is part of the daemon, and its installation on the host's disk.
//!
//! It is static, so it runs in any image. Sandboxes mount the installed file read-only. The file is
//! named by its digest and never written again, so a newer daemon does not change the agent of an
//! older sandbox.
//!
//! This crate does not know which sandboxes mount it, or at which path.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

/// The agent, a static executable for this architecture.
pub const AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dorm-agent"));

/// The program with which an engine is tried, a static executable for this architecture.
pub const TRIAL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dorm-trial"));

const NAME: &str = "dorm-agent";
const MODE: u32 = 0o755;
/// Guests' ids may traverse the directory to reach the agent, but not list it.
const HOME_MODE: u32 = 0o711;

/// The agent could not be installed.
#[derive(Debug, Error)]
#[error("cannot {operation} '{path}' to install the agent: check the data directory's permissions and free space")]
pub struct InstallError {
    /// The operation that failed.
    pub operation: &'static str,
    /// The path on the host.
    pub path: PathBuf,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

/// The path at which [`install`] puts the agent below `directory`.
pub fn installed_path(directory: &Path) -> PathBuf {
    let digest = blake3::hash(AGENT).to_hex();
    directory.join(format!("agent-{}", &digest[..16])).join(NAME)
}

/// Installs the agent as an executable file and returns its path. When it returns, the file is
/// complete and durable. Installing it again changes nothing, unless the file was damaged: then it
/// is replaced. Several processes may do this at the same time.
///
/// # Errors
/// If `directory` does not exist, cannot be written, or is full.
pub fn install(directory: &Path) -> Result<PathBuf, InstallError> {
    let path = installed_path(directory);
    if is_whole(&path) {
        return Ok(path);
    }
    let home = path.parent().unwrap_or(directory);
    match fs::create_dir(home) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed("make", home)(error)),
        Ok(()) | Err(_) => {}
    }
    fs::set_permissions(home, Permissions::from_mode(HOME_MODE)).map_err(failed("set the mode of", home))?;
    let draft = Draft::write(home)?;
    fs::rename(&draft.0, &path).map_err(failed("rename a draft to", &path))?;
    for directory in [home, directory] {
        File::open(directory).and_then(|open| open.sync_all()).map_err(failed("sync", directory))?;
    }
    Ok(path)
}

/// Whether the installed file has exactly the agent's bytes and is executable.
fn is_whole(path: &Path) -> bool {
    let executable = fs::symlink_metadata(path).is_ok_and(|at| at.is_file() && at.permissions().mode() & 0o777 == MODE);
    executable && fs::read(path).is_ok_and(|bytes| bytes == AGENT)
}

/// A file that is removed when dropped, unless it was renamed. One that a dead process left is
/// harmless.
struct Draft(PathBuf);

impl Draft {
    fn write(home: &Path) -> Result<Self, InstallError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let draft = Self(home.join(format!(".{NAME}-{}-{number}", std::process::id())));
        // A draft with this name is from a dead process with the same process id.
        drop(fs::remove_file(&draft.0));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&draft.0)
            .map_err(failed("create", &draft.0))?;
        file.write_all(AGENT).map_err(failed("write", &draft.0))?;
        file.set_permissions(Permissions::from_mode(MODE)).map_err(failed("set the mode of", &draft.0))?;
        file.sync_all().map_err(failed("sync", &draft.0))?;
        Ok(draft)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    let path = path.to_owned();
    move |source| InstallError { operation, path, source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::{AGENT, install};

    #[test]
    fn the_installed_agent_is_whole_runs_and_needs_no_loader() {
        let directory = tempfile::tempdir().unwrap();
        let path = install(directory.path()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), AGENT);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        let output = Command::new(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8(output.stderr).unwrap().contains("Usage"));
        assert!(!asks_for_a_loader(AGENT));
    }

    #[test]
    fn installing_twice_is_idempotent_and_repairs_damage() {
        let directory = tempfile::tempdir().unwrap();
        let path = install(directory.path()).unwrap();
        assert_eq!(install(directory.path()).unwrap(), path);
        for damage in [&AGENT[..AGENT.len() / 2], b""] {
            fs::write(&path, damage).unwrap();
            assert_eq!(install(directory.path()).unwrap(), path);
            assert_eq!(fs::read(&path).unwrap(), AGENT);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        install(directory.path()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn many_can_install_at_once() {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| install(directory.path()).unwrap());
            }
        });
        assert_eq!(fs::read(install(directory.path()).unwrap()).unwrap(), AGENT);
    }

    #[test]
    fn a_missing_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        let error = install(&missing).unwrap_err();
        assert!(error.to_string().contains(missing.to_str().unwrap()), "{error}");
    }

    /// Whether a 64-bit ELF file has an interpreter among its program headers.
    fn asks_for_a_loader(elf: &[u8]) -> bool {
        let number = |at: usize, length: usize| {
            elf[at..at + length].iter().rev().fold(0_usize, |number, byte| (number << 8) | usize::from(*byte))
        };
        assert_eq!(&elf[..5], b"\x7fELF\x02");
        let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
        (0..count).any(|entry| number(table + entry * size, 4) == 3)
    }
}
