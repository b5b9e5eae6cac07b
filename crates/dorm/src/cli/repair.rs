//! `dorm repair`: finds unreadable records in a data directory and rebuilds them.

use std::path::PathBuf;

use serde::Serialize;

use super::output::{self, Format};
use super::problem::{Done, Problem};
use crate::data::Data;
use crate::exit;
use crate::repair::{Asked, Finding, Remedy, Report, repair};

/// Options of `dorm repair`.
#[derive(Debug, clap::Args)]
pub(crate) struct RepairOptions {
    /// The data directory. No daemon may use it meanwhile; running sandboxes keep running
    #[arg(long, env = "DORM_DATA", value_name = "DIRECTORY", default_value = crate::data::DEFAULT)]
    data: PathBuf,
    /// The directory of images. By default in the data directory
    #[arg(long, env = "DORM_IMAGES", value_name = "DIRECTORY")]
    images: Option<PathBuf>,
    /// Only show what is wrong and what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Move rows that cannot be rebuilt out of the database, each to a file in `quarantine/`. Data
    /// that only they needed may then be deleted
    #[arg(long)]
    quarantine: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

#[derive(Serialize)]
struct Printed {
    /// Whether everything can be read now, or could be after a real run.
    mended: bool,
    dry_run: bool,
    /// The database from before the repair, if it was changed.
    kept: Option<PathBuf>,
    findings: Vec<PrintedFinding>,
}

#[derive(Serialize)]
struct PrintedFinding {
    kind: String,
    id: String,
    problem: String,
    /// `rebuilt`, `quarantined` or `none`.
    remedy: &'static str,
    /// The facts it was rebuilt from, the file it was moved to, or why there is no remedy.
    detail: String,
    /// Values that are unknown, and what was recorded instead.
    unknown: Vec<String>,
}

impl From<Finding> for PrintedFinding {
    fn from(finding: Finding) -> Self {
        let Finding { kind, id, problem, remedy } = finding;
        let word = remedy.word();
        let (detail, unknown) = match remedy {
            Remedy::Rebuild { change: _, from, unknown } => (format!("from {from}"), unknown),
            Remedy::Quarantined(path) => (format!("in {path}"), Vec::new()),
            Remedy::Anew(detail) | Remedy::Nothing(detail) => (detail, Vec::new()),
        };
        Self { kind, id, problem, remedy: word, detail, unknown }
    }
}

const TITLES: [&str; 5] = ["KIND", "ID", "REMEDY", "DETAIL", "PROBLEM"];

/// Finds unreadable records, repairs them, and prints the findings.
pub(super) async fn run(options: RepairOptions) -> Done {
    let RepairOptions { data, images, dry_run, quarantine, output } = options;
    if !data.is_dir() {
        return Err(Problem::not_found(
            format!("there is no data directory {}", data.display()),
            "give it with --data",
        ));
    }
    let held = Data::take(&data)?;
    let images = images.unwrap_or_else(|| held.path().join("images"));
    let report = repair(held.path(), &images, Asked { dry_run, quarantine }).await;
    let report = report.map_err(|error| Problem::failed(super::problem::message(&error), "nothing was changed"))?;
    let mended = report.is_mended();
    print(report, mended, dry_run, output)?;
    Ok(if mended { exit::OK } else { exit::FAILED })
}

fn print(report: Report, mended: bool, dry_run: bool, format: Format) -> Result<(), Problem> {
    let Report { findings, kept } = report;
    let findings: Vec<PrintedFinding> = findings.into_iter().map(Into::into).collect();
    if format == Format::Json {
        return output::json(&Printed { mended, dry_run, kept, findings });
    }
    if findings.is_empty() {
        output::talk("all records can be read");
        return Ok(());
    }
    let row = |finding: &PrintedFinding| {
        let PrintedFinding { kind, id, problem, remedy, detail, unknown } = finding;
        let mut detail = detail.clone();
        if !unknown.is_empty() {
            detail = format!("{detail}; not known: {}", unknown.join("; "));
        }
        vec![kind.clone(), id.clone(), (*remedy).to_owned(), detail, problem.clone()]
    };
    output::table(&TITLES, &findings.iter().map(row).collect::<Vec<_>>())?;
    match (dry_run, kept) {
        (true, _) => output::talk("dry run: nothing was changed"),
        (false, Some(kept)) => output::talk(&format!("the previous database is kept as {}", kept.display())),
        (false, None) => {}
    }
    if !mended {
        output::talk("rows without a remedy are not changed; --quarantine moves them out of the database");
    }
    Ok(())
}
