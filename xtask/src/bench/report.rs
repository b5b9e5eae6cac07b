//! The results of a bench, as a file that tables, plots and the page in `docs` are made from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::rows::Row;
use super::stage::Stage;

/// Where and when a bench ran.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) date: String,
    pub(super) commit: String,
    pub(super) cpus: usize,
    pub(super) cpu: String,
    pub(super) memory_mib: u64,
    pub(super) kernel: String,
    pub(super) disk: String,
    /// The version of the daemon's `runsc`, and of the peer's.
    pub(super) engine: String,
    pub(super) peer: String,
    /// Whether it repeated less.
    pub(super) short: bool,
    /// The circumstances that a reader must know, such as other work on the machine.
    pub(super) note: Option<String>,
}

/// Everything that one bench has found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) rows: Vec<Row>,
}

impl Report {
    /// Reads the file that a bench wrote.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
    }

    /// Reads the files of several benches of the same builds on the same machine. The rows of a
    /// part are those of the last file that has it.
    pub(super) fn read_all(paths: &[PathBuf]) -> Result<Self> {
        let (first, rest) = paths.split_first().context("there are no results to read")?;
        let mut report = Self::read(first)?;
        for path in rest {
            let other = Self::read(path)?;
            if other.machine != report.machine {
                bail!("{} and {} are of different machines, days, builds or lengths", first.display(), path.display());
            }
            report.rows.retain(|row| other.rows.iter().all(|new| new.part != row.part));
            report.rows.extend(other.rows);
        }
        Ok(report)
    }

    /// Returns the report for programs; [`Report::read`] accepts it.
    pub(super) fn to_json(&self) -> Result<String> {
        let rows = self.rows.iter().map(Row::to_json).collect::<Result<Vec<Value>>>()?;
        let report = json!({ "machine": self.machine, "rows": rows });
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }
}

impl Machine {
    pub(super) fn of(stage: &Stage, note: Option<&str>) -> Result<Self> {
        let info = rustix::system::sysinfo();
        let cpus = fs::read_to_string("/proc/cpuinfo").context("read /proc/cpuinfo")?;
        let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let name = rustix::system::uname();
        Ok(Self {
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            commit: said(
                Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(crate::setup::root()?),
            )?,
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            cpu: cpu.map_or("unknown", |(_, model)| model.trim()).to_owned(),
            memory_mib: info.totalram.saturating_mul(u64::from(info.mem_unit)) >> 20,
            kernel: name.release().to_string_lossy().into_owned(),
            disk: super::reflink::kind_of(&stage.directory)?,
            engine: version(&stage.engine)?,
            peer: version(&stage.stock)?,
            short: stage.short,
            note: note.map(str::to_owned),
        })
    }
}

/// Returns the version of a `runsc`.
fn version(runsc: &Path) -> Result<String> {
    let text = said(Command::new(runsc).arg("--version"))?;
    let first = text.lines().next().unwrap_or_default();
    Ok(first.trim_start_matches("runsc version ").to_owned())
}

fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn report(directory: &Path, name: &str, cpus: usize, parts: &[(&str, f64)]) -> PathBuf {
        let machine = Machine {
            date: "2026-11-25".to_owned(),
            commit: "0123456".to_owned(),
            cpus,
            cpu: "a CPU".to_owned(),
            memory_mib: 1024,
            kernel: "6.1".to_owned(),
            disk: "ext4 without reflink".to_owned(),
            engine: "1".to_owned(),
            peer: "1".to_owned(),
            short: false,
            note: None,
        };
        let row = |(part, value): &(&str, f64)| Row { part: (*part).to_owned(), ours: vec![*value], ..Row::shown("x") };
        let path = directory.join(name);
        fs::write(&path, Report { machine, rows: parts.iter().map(row).collect() }.to_json().unwrap()).unwrap();
        path
    }

    #[test]
    fn a_part_that_was_measured_again_replaces_its_earlier_rows() {
        let directory = tempfile::tempdir().unwrap();
        let first = report(directory.path(), "1", 2, &[("wake", 1.0), ("fork", 2.0)]);
        let again = report(directory.path(), "2", 2, &[("wake", 3.0)]);
        let both = Report::read_all(&[first, again]).unwrap();
        let values: Vec<_> = both.rows.iter().map(|row| (row.part.as_str(), row.ours[0])).collect();
        assert_eq!(values, [("fork", 2.0), ("wake", 3.0)]);
    }

    #[test]
    fn results_of_two_machines_are_not_mixed() {
        let directory = tempfile::tempdir().unwrap();
        let paths = [report(directory.path(), "1", 2, &[]), report(directory.path(), "2", 4, &[])];
        assert!(Report::read_all(&paths).is_err());
    }
}
