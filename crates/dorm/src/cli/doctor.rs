//! `dorm doctor`: checks what this host provides and what it lacks. It changes nothing and calls no
//! daemon.

mod disk;
mod host;
mod records;
mod tools;

use std::path::PathBuf;

use serde::Serialize;

use super::output::{self, Format};
use super::problem::Done;
use crate::exit;
use crate::guest_ids::{self, Look};
use crate::program::Runsc;

/// Options of `dorm doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorOptions {
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    /// The data directory that the daemon uses or will use
    #[arg(long, env = "DORM_DATA", value_name = "DIRECTORY", default_value = crate::data::DEFAULT)]
    data: PathBuf,
    /// The first of the host ids that the daemon will use for guests. By default those of the data
    /// directory
    #[arg(long, env = "DORM_GUEST_IDS", value_name = "BASE")]
    guest_ids: Option<dorm_guest_ids::GuestIds>,
    /// The runsc that the daemon uses
    #[arg(long, env = "DORM_RUNSC", value_name = "PATH", default_value = "auto")]
    runsc: Runsc,
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    found: String,
    next_step: String,
}

/// The verdict of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// As it should be.
    Ok,
    /// Works, with a limitation.
    Warn,
    /// The daemon cannot run like this.
    Fail,
}

#[derive(Serialize)]
struct Report {
    usable: bool,
    checks: Vec<Check>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, found: found.into(), next_step: String::new() }
    }

    fn warn(name: &'static str, found: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warn, found: found.into(), next_step: next_step.into() }
    }

    fn fail(name: &'static str, found: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Fail, found: found.into(), next_step: next_step.into() }
    }
}

/// Runs all checks and prints their results.
pub(crate) async fn run(options: DoctorOptions) -> Done {
    let format = options.output;
    let records = records::checks(&options.data).await;
    // The checks start programs and read files, which may block.
    let checks = tokio::task::spawn_blocking(move || checks(&options)).await;
    let mut checks =
        checks.map_err(|error| super::problem::Problem::failed(format!("a check ended unexpectedly: {error}"), ""))?;
    checks.extend(records);
    let usable = checks.iter().all(|check| check.verdict != Verdict::Fail);
    match format {
        Format::Json => output::json(&Report { usable, checks })?,
        Format::Table => print(&checks, usable)?,
    }
    Ok(if usable { exit::OK } else { exit::FAILED })
}

fn checks(options: &DoctorOptions) -> Vec<Check> {
    let mut checks = host::checks(&options.runsc.programs(), &options.data);
    checks.extend(tools::checks());
    checks.extend(disk::checks(&options.data));
    checks.push(self::guest_ids(options));
    checks.push(records::damage(&options.data));
    checks
}

/// Checks whether another user or range of the host has host ids of guests.
fn guest_ids(options: &DoctorOptions) -> Check {
    const NAME: &str = "guest ids";
    match guest_ids::look(&options.data, options.guest_ids) {
        Ok(Look::Free(ids)) => Check::ok(NAME, format!("{ids}, used by nothing else")),
        Ok(Look::Claimed { found, next_step, does_start: true }) => Check::warn(NAME, found, next_step),
        Ok(Look::Claimed { found, next_step, does_start: false }) => Check::fail(NAME, found, next_step),
        Err(error) => {
            let next = "write the first id of the range and a line feed to that file";
            Check::fail(NAME, format!("{:#}", anyhow::Error::from(error)), next)
        }
    }
}

fn print(checks: &[Check], usable: bool) -> Result<(), super::problem::Problem> {
    let row = |check: &Check| vec![super::shown::word(&check.verdict), check.name.to_owned(), check.found.clone()];
    // Plain lines: a narrow terminal must not cut off the next step.
    let rows: Vec<_> = checks.iter().map(row).collect();
    let names = rows.iter().map(|row| row[1].len()).max().unwrap_or(0);
    let mut text = String::new();
    for (row, check) in rows.iter().zip(checks) {
        text.push_str(&format!("{:4}  {:names$}  {}\n", row[0], row[1], output::harmless(&row[2])));
        if !check.next_step.is_empty() {
            text.push_str(&format!("{:4}  {:names$}  next: {}\n", "", "", output::harmless(&check.next_step)));
        }
    }
    text.push_str(if usable {
        "\nThe daemon can run on this host.\n"
    } else {
        "\nThe daemon cannot run on this host yet.\n"
    });
    output::write(text.as_bytes())
}
