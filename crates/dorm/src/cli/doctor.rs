//! `dorm doctor`: what this host has and lacks. It looks and changes nothing, and asks no daemon.

mod disk;
mod host;
mod records;
mod tools;

use std::path::PathBuf;

use serde::Serialize;

use super::exit;
use super::output::{self, Format};
use super::problem::Done;
use crate::guest_ids::{self, Look};

/// Where to look.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorOptions {
    /// How data is printed
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    /// The data directory that the daemon has or is to have
    #[arg(long, env = "DORM_DATA", value_name = "DIRECTORY", default_value = super::DATA)]
    data: PathBuf,
    /// The first of the host ids of guests that the daemon is to be given. By default those that the data directory has
    #[arg(long, env = "DORM_GUEST_IDS", value_name = "BASE")]
    guest_ids: Option<dorm_guest_ids::GuestIds>,
    /// The runsc that the daemon uses
    #[arg(long, env = "DORM_RUNSC", value_name = "PATH", default_value = "runsc")]
    runsc: PathBuf,
}

/// What was found about one thing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    found: String,
    next_step: String,
}

/// What that means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// As it should be.
    Ok,
    /// It works, but something is lost.
    Warn,
    /// The daemon cannot work like this.
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

/// Looks, and prints what it found.
pub(crate) async fn run(options: DoctorOptions) -> Done {
    let format = options.output;
    let records = records::checks(&options.data).await;
    // It starts programs and reads files, which may take a moment.
    let checks = tokio::task::spawn_blocking(move || checks(&options)).await;
    let mut checks =
        checks.map_err(|error| super::problem::Problem::failed(format!("a check broke off: {error}"), ""))?;
    checks.extend(records);
    let usable = checks.iter().all(|check| check.verdict != Verdict::Fail);
    match format {
        Format::Json => output::json(&Report { usable, checks })?,
        Format::Table => print(&checks, usable)?,
    }
    Ok(if usable { exit::OK } else { exit::FAILED })
}

fn checks(options: &DoctorOptions) -> Vec<Check> {
    let mut checks = host::checks(&crate::program::find(&options.runsc));
    checks.extend(tools::checks());
    checks.extend(disk::checks(&options.data));
    checks.push(self::guest_ids(options));
    checks.push(records::damage(&options.data));
    checks
}

/// Whether somebody else has host ids of guests.
fn guest_ids(options: &DoctorOptions) -> Check {
    const NAME: &str = "guest ids";
    match guest_ids::look(&options.data, options.guest_ids) {
        Ok(Look::Free(ids)) => Check::ok(NAME, format!("{ids}, which nobody else has")),
        Ok(Look::Claimed { found, next_step, does_start: true }) => Check::warn(NAME, found, next_step),
        Ok(Look::Claimed { found, next_step, does_start: false }) => Check::fail(NAME, found, next_step),
        Err(error) => {
            let next = "put the first id of the range and a line feed into that file";
            Check::fail(NAME, format!("{:#}", anyhow::Error::from(error)), next)
        }
    }
}

fn print(checks: &[Check], usable: bool) -> Result<(), super::problem::Problem> {
    let row = |check: &Check| vec![super::shown::word(&check.verdict), check.name.to_owned(), check.found.clone()];
    // Plain lines: what is to be done must not be cut off by a narrow terminal.
    let rows: Vec<_> = checks.iter().map(row).collect();
    let names = rows.iter().map(|row| row[1].len()).max().unwrap_or(0);
    let mut text = String::new();
    for (row, check) in rows.iter().zip(checks) {
        text.push_str(&format!("{:4}  {:names$}  {}\n", row[0], row[1], output::harmless(&row[2])));
        if !check.next_step.is_empty() {
            text.push_str(&format!("{:4}  {:names$}  next: {}\n", "", "", output::harmless(&check.next_step)));
        }
    }
    text.push_str(if usable { "\nThe daemon can work here.\n" } else { "\nThe daemon cannot work here yet.\n" });
    output::write(text.as_bytes())
}
