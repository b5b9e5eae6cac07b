//! Runs `nft`, with a script on its standard input, in the network namespace of the calling thread.
//! This module does not know what the scripts mean.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dorm_disk::lock::{self, Sharing};
use thiserror::Error;

/// Longer than any command that a killed daemon has left running.
const LOCK_LIMIT: Duration = Duration::from_secs(15);
/// The directories of system programs.
const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// Why a command failed.
#[derive(Debug, Error)]
pub(crate) enum CommandError {
    /// The program could not be started.
    #[error("cannot run {program}: install the package '{package}'")]
    Start {
        program: &'static str,
        package: &'static str,
        #[source]
        source: io::Error,
    },
    /// The program reported a failure.
    #[error("{program} failed: {said}")]
    Refused { program: &'static str, said: String },
}

/// The commands of one daemon, and the lock that ensures that it is the only one.
///
/// A command can outlive a daemon that is killed. Each command holds the lock until it exits, as
/// its standard output (to which it writes nothing), so that the next daemon only starts when no
/// command of the last one is running.
#[derive(Debug)]
pub(crate) struct Commands {
    lock: File,
}

impl Commands {
    /// Waits for the lock, which is a file in `directory`.
    pub(crate) fn of_daemon(directory: &Path) -> io::Result<Self> {
        Ok(Self { lock: lock::take(&directory.join("lock"), Sharing::Exclusive, LOCK_LIMIT)? })
    }

    /// Executes the script atomically.
    pub(crate) fn nft(&self, script: &str) -> Result<(), CommandError> {
        self.run("nft", "nftables", &["-f", "-"], script)
    }

    fn run(
        &self,
        program: &'static str,
        package: &'static str,
        arguments: &[&str],
        script: &str,
    ) -> Result<(), CommandError> {
        let lock = self.lock.try_clone().map_err(|source| CommandError::Start { program, package, source })?;
        run(program, package, arguments, script, lock.into())
    }
}

fn run(
    program: &'static str,
    package: &'static str,
    arguments: &[&str],
    script: &str,
    output: Stdio,
) -> Result<(), CommandError> {
    let start = |source| CommandError::Start { program, package, source };
    let mut child = Command::new(find(program))
        .args(arguments)
        // The variables of the shell or the daemon could change the behaviour, or name files of
        // other users.
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start)?;
    // These programs read all their input before they write much, so this cannot block. If one
    // exits early, its exit status gives the reason, and the broken pipe does not matter.
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(script.as_bytes());
    }
    let output = child.wait_with_output().map_err(start)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    Err(CommandError::Refused { program, said: format!("{} ({})", said, output.status) })
}

/// Returns the path of the program. The search path of a shell started by `su` often lacks the
/// directories of these programs; other directories are not searched.
fn find(program: &'static str) -> String {
    let mut places = PATH.split(':').map(|place| format!("{place}/{program}"));
    places.find(|path| Path::new(path).exists()).unwrap_or_else(|| program.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_get_nothing_of_the_daemons_environment() {
        assert!(std::env::vars_os().count() > 2);
        let mut said = tempfile::tempfile().unwrap();
        run("env", "coreutils", &[], "", said.try_clone().unwrap().into()).unwrap();
        let mut text = String::new();
        std::io::Seek::rewind(&mut said).unwrap();
        std::io::Read::read_to_string(&mut said, &mut text).unwrap();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["LC_ALL=C".to_owned(), format!("PATH={PATH}")]);
    }

    #[test]
    fn a_program_that_is_not_in_the_systems_directories_is_not_run() {
        let error = run("dorm-no-such-program", "none", &[], "", Stdio::null()).unwrap_err();
        assert!(matches!(error, CommandError::Start { .. }));
    }
}
