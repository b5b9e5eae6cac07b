//! Runs `ip`, `tc` and `nft`, with a script on their standard input, in the network namespace of the calling thread.
//! Knows nothing of what the scripts mean.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dorm_disk::lock::{self, Sharing};
use thiserror::Error;

/// More than any command takes that a killed daemon has left behind.
const LOCK_LIMIT: Duration = Duration::from_secs(15);
/// Where programs of the system are.
const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// Why a command did not do its work.
#[derive(Debug, Error)]
pub(crate) enum CommandError {
    /// It could not be started.
    #[error("cannot run {program}: install the package '{package}'")]
    Start {
        program: &'static str,
        package: &'static str,
        #[source]
        source: io::Error,
    },
    /// It refused.
    #[error("{program} failed: {said}")]
    Refused { program: &'static str, said: String },
}

/// The commands of one daemon, and the lock that says that it is the only one.
///
/// A command outlives a daemon that is killed. Each holds the lock until it ends, as its standard output (on which it
/// says nothing), so that the next daemon begins only when nothing of the last one goes on.
#[derive(Debug)]
pub(crate) struct Commands {
    lock: File,
}

impl Commands {
    /// Waits for the lock, which is a file in `directory`.
    pub(crate) fn of_daemon(directory: &Path) -> io::Result<Self> {
        Ok(Self { lock: lock::take(&directory.join("lock"), Sharing::Exclusive, LOCK_LIMIT)? })
    }

    /// Carries out the lines, the first failure ending it.
    pub(crate) fn ip(&self, lines: &[String]) -> Result<(), CommandError> {
        self.run("ip", "iproute2", &["-batch", "-"], &(lines.join("\n") + "\n"))
    }

    /// Sets up schedulers, line by line.
    pub(crate) fn tc(&self, lines: &[String]) -> Result<(), CommandError> {
        self.run("tc", "iproute2", &["-batch", "-"], &(lines.join("\n") + "\n"))
    }

    /// Carries out the whole script, or nothing of it.
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

/// Runs a command that changes nothing that outlives the calling thread, and so holds no lock.
pub(crate) fn run_alone(
    program: &'static str,
    package: &'static str,
    arguments: &[&str],
    script: &str,
) -> Result<(), CommandError> {
    run(program, package, arguments, script, Stdio::null())
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
        // Both the shell's and the daemon's own variables could change what they do, or name files of others.
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start)?;
    // These programs read all of their input before they say much, so this cannot block. If one ends early, its exit
    // status tells why, and the broken pipe does not matter.
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

/// These programs are often in directories that are not in the search path of a shell made by `su`, and are looked for
/// nowhere else.
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
        let error = run_alone("dorm-no-such-program", "none", &[], "").unwrap_err();
        assert!(matches!(error, CommandError::Start { .. }));
    }
}
