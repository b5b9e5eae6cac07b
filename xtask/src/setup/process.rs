//! Runs other programs. Their output goes to a log, the end of which is shown if they fail.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

const SHOWN_LINES: usize = 20;

/// Finds a program on the PATH, or in the directories of root that a PATH may lack.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    directories.map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Runs `command` to its end.
pub(crate) fn run(command: &mut Command, log: &Path) -> Result<()> {
    let shown = format!("{command:?}");
    let mut file =
        OpenOptions::new().create(true).append(true).open(log).with_context(|| format!("open {}", log.display()))?;
    writeln!(file, "$ {shown}").with_context(|| format!("write {}", log.display()))?;
    let start = file.metadata().map_or(0, |facts| usize::try_from(facts.len()).unwrap_or(0));
    let output = || file.try_clone().map(Stdio::from).with_context(|| format!("open {} again", log.display()));
    let status = command
        .stdin(Stdio::null())
        .stdout(output()?)
        .stderr(output()?)
        .status()
        .with_context(|| format!("start {shown}"))?;
    if status.success() {
        return Ok(());
    }
    let written = fs::read(log).unwrap_or_default();
    let written = String::from_utf8_lossy(written.get(start..).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = written.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
        eprintln!("  | {line}");
    }
    let program = command.get_program().to_string_lossy().into_owned();
    bail!("{program} failed ({status}); the whole output is in {}", log.display())
}
