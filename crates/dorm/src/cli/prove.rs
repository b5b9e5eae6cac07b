//! `dorm prove`: proves on this host, with daemons of its own, that nothing is lost. It neither
//! calls nor changes the daemon that users have.

use std::path::PathBuf;
use std::time::Duration;

use dorm_prove::{Outcome, Report, Row, Setting, Silenced, Soaked, Walked};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::output::{self, Format};
use super::problem::{Done, Problem};
use crate::exit;
use crate::program::Runsc;

/// Options of `dorm prove`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProveOptions {
    /// Repeat for this long, in another order each time. By default one complete pass
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=60 * 24 * 30))]
    minutes: Option<u64>,
    /// The image to start sandboxes from
    #[arg(long, value_name = "IMAGE", default_value = "base")]
    image: String,
    /// The directory of images, which is not changed. By default that of the data directory
    #[arg(long, env = "DORM_IMAGES", value_name = "DIRECTORY")]
    images: Option<PathBuf>,
    /// The daemon's data directory, used only to find its images
    #[arg(long, env = "DORM_DATA", value_name = "DIRECTORY", default_value = crate::data::DEFAULT)]
    data: PathBuf,
    /// Where to create a directory of its own; needs a few GiB of free space
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    place: PathBuf,
    /// The runsc to use
    #[arg(long, env = "DORM_RUNSC", value_name = "PATH", default_value = "auto")]
    runsc: Runsc,
    /// Prove only this operation, such as `resume-evicted`; may be given several times
    #[arg(long, value_name = "OPERATION")]
    only: Vec<String>,
    /// Cut the power instead of only killing the daemon: the data is on a separate disk that loses
    /// everything not synced, at each step and as soon as the caller has its answer
    #[arg(long)]
    power: bool,
    /// Run this many random walks instead: sequences of all operations on sandboxes and snapshots,
    /// each compared with a model of all files and memory
    #[arg(long, value_name = "N", conflicts_with_all = ["minutes", "only", "power"], value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    walks: Option<u64>,
    /// Suspend and resume a sandbox this many times instead, while its process is stopped from time
    /// to time, for up to 60 s
    #[arg(long, value_name = "CYCLES", conflicts_with_all = ["minutes", "only", "walks"], value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    silent_agents: Option<u64>,
    /// Run sandboxes for this many minutes instead whose processes write memory and files all the
    /// time, while they are suspended, forked, rewound and restored; needs an image with python3
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["minutes", "only", "power", "walks", "silent_agents"], value_parser = clap::value_parser!(u64).range(1..=60 * 24 * 30))]
    soak: Option<u64>,
    /// Repeat the order of an earlier proof, or the walk with this seed
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

#[derive(Serialize)]
struct Printed<'a> {
    holds: bool,
    interrupted: bool,
    #[serde(flatten)]
    report: &'a Report,
    remains: &'a [String],
}

/// Runs the proof and prints its table.
pub(crate) async fn run(options: ProveOptions) -> Done {
    if !rustix::process::geteuid().is_root() {
        return Err(Problem::failed("the proof needs root, as the daemon does", "run it as root"));
    }
    let setting = setting(&options)?;
    let seconds = std::time::Instant::now();
    let tell = |line: &str| output::talk(&format!("prove: {:4} s  {line}", seconds.elapsed().as_secs()));
    tell(&format!("seed {}", setting.seed));
    if let Some(count) = options.walks {
        let walked = dorm_prove::walk(&setting, count, interrupted()?, &tell).await;
        let walked = walked.map_err(|error| Problem::failed(format!("cannot complete the walks: {error:#}"), ""))?;
        return print_walked(&walked, &options);
    }
    if let Some(count) = options.silent_agents {
        let silenced = dorm_prove::silence(&setting, count, interrupted()?, &tell).await;
        let silenced = silenced.map_err(|error| Problem::failed(format!("cannot start the proof: {error:#}"), ""))?;
        return print_silenced(&silenced, &options);
    }
    if let Some(minutes) = options.soak {
        let soaked = dorm_prove::soak(&setting, Duration::from_secs(60 * minutes), interrupted()?, &tell).await;
        let soaked = soaked.map_err(|error| Problem::failed(format!("cannot start the soak: {error:#}"), ""))?;
        return print_soaked(&soaked, &options);
    }
    let outcome = dorm_prove::prove(&setting, interrupted()?, &tell).await;
    let outcome = outcome.map_err(|error| Problem::failed(format!("cannot start the proof: {error:#}"), ""))?;
    let Outcome { report, interrupted, remains } = &outcome;
    let holds = report.holds() && !interrupted && remains.is_empty();
    match options.output {
        Format::Json => output::json(&Printed { holds, interrupted: *interrupted, report, remains })?,
        Format::Table => print(report)?,
    }
    for what in remains {
        output::talk(&format!("not cleaned up: {what}"));
    }
    tell(&verdict(&outcome, holds));
    Ok(if holds { exit::OK } else { exit::FAILED })
}

fn setting(options: &ProveOptions) -> Result<Setting, Problem> {
    let images = options.images.clone().unwrap_or_else(|| options.data.join("images"));
    let images = std::path::absolute(&images).map_err(|error| Problem::host("find the images", &error))?;
    if !images.join("tags").is_dir() {
        return Err(Problem::not_found(
            format!("there are no images in {}", images.display()),
            "import one with `dorm image import PATH --tag base` (`cargo xtask setup` creates one), or give \
             their directory with --images",
        ));
    }
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| Problem::failed(format!("cannot choose a seed: {error}"), ""))?;
    Ok(Setting {
        // This program itself, even if its file was replaced meanwhile.
        dorm: format!("/proc/{}/exe", std::process::id()).into(),
        images,
        image: options.image.clone(),
        runsc: match &options.runsc {
            Runsc::Auto => None,
            Runsc::Program(program) => Some(crate::program::find(program)),
        },
        directory: options.place.clone(),
        prefix: crate::identity::prefix,
        limit: options.minutes.map(|minutes| Duration::from_secs(60 * minutes)),
        only: options.only.clone(),
        power: options.power,
        seed: options.seed.unwrap_or(u64::from_ne_bytes(seed) >> 16),
    })
}

/// Completes on SIGINT or SIGTERM, which are handled from now on: what the proof creates must
/// always be cleaned up.
fn interrupted() -> Result<impl Future<Output = ()>, Problem> {
    let listen = |kind| signal(kind).map_err(|error| Problem::host("listen for signals", &error));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[derive(Serialize)]
struct PrintedWalks<'a> {
    holds: bool,
    #[serde(flatten)]
    walked: &'a Walked,
}

fn print_walked(walked: &Walked, options: &ProveOptions) -> Done {
    let holds = walked.holds();
    match options.output {
        Format::Json => output::json(&PrintedWalks { holds, walked })?,
        Format::Table => {
            let rows = walked.actions.iter().map(|done| vec![done.action.clone(), done.times.to_string()]);
            output::table(&["ACTION", "TIMES"], &rows.collect::<Vec<_>>())?;
        }
    }
    for stumble in &walked.stumbles {
        let (seed, image) = (stumble.seed, &options.image);
        output::talk(&format!("walk {seed} found: {}", stumble.what));
        for step in &stumble.steps {
            output::talk(&format!("  {step}"));
        }
        output::talk(&format!("to repeat: dorm prove --walks 1 --seed {seed} --image {image}, with the same --images"));
    }
    conclude(&walked.remains, walked.log.as_deref());
    let Walked { walks, checks, seconds, seed, .. } = walked;
    let how = match (holds, walked.interrupted && walked.stumbles.is_empty() && walked.remains.is_empty()) {
        (true, _) => "everything matched the model",
        (false, true) => "interrupted; everything matched the model until then",
        (false, false) => "the proof failed",
    };
    output::talk(&format!("{walks} walks from seed {seed}, {checks} comparisons, {seconds} s: {how}"));
    Ok(if holds { exit::OK } else { exit::FAILED })
}

#[derive(Serialize)]
struct PrintedSilence<'a> {
    holds: bool,
    #[serde(flatten)]
    silenced: &'a Silenced,
}

fn print_silenced(silenced: &Silenced, options: &ProveOptions) -> Done {
    let holds = silenced.holds();
    let Silenced { cycles, stopped, stopped_seconds, refused, unquiesced, restarts, .. } = silenced;
    match options.output {
        Format::Json => output::json(&PrintedSilence { holds, silenced })?,
        Format::Table => output::fields(&[
            ("cycles", cycles.to_string()),
            ("stopped", format!("{stopped} times, {stopped_seconds} s in total")),
            ("operations refused", refused.to_string()),
            ("suspends without quiescing", unquiesced.to_string()),
            ("restarts of the daemon", restarts.to_string()),
        ])?,
    }
    for what in &silenced.losses {
        output::talk(&format!("found: {what}"));
    }
    conclude(&silenced.remains, silenced.log.as_deref());
    let how = match (holds, silenced.interrupted) {
        (true, _) => "nothing was lost and no run was ended",
        (false, true) => "interrupted",
        (false, false) => "the proof failed",
    };
    output::talk(&format!("{cycles} cycles from seed {}: {how}", silenced.seed));
    Ok(if holds { exit::OK } else { exit::FAILED })
}

#[derive(Serialize)]
struct PrintedSoak<'a> {
    holds: bool,
    #[serde(flatten)]
    soaked: &'a Soaked,
}

fn print_soaked(soaked: &Soaked, options: &ProveOptions) -> Done {
    let holds = soaked.holds();
    let Soaked { seed, seconds, done, .. } = soaked;
    match options.output {
        Format::Json => output::json(&PrintedSoak { holds, soaked })?,
        Format::Table => output::fields(&[
            ("comparisons", done.checks.to_string()),
            (
                "suspends",
                format!(
                    "{}, {} resumed from disk, {} from released memory",
                    done.suspends, done.from_disk, done.parked_long
                ),
            ),
            ("forks", done.forks.to_string()),
            ("restores", done.restores.to_string()),
            ("rewinds", done.rewinds.to_string()),
            ("operations that timed out", done.timed_out.to_string()),
            ("saves of the same memory", format!("up to {}", done.generations)),
        ])?,
    }
    for what in &soaked.findings {
        output::talk(&format!("found: {what}"));
    }
    conclude(&soaked.remains, soaked.log.as_deref());
    let how = match (holds, soaked.interrupted) {
        (true, _) => "everything matched the model",
        (false, true) => "interrupted; everything matched the model until then",
        (false, false) => "the proof failed",
    };
    output::talk(&format!("{seconds} s from seed {seed}: {how}"));
    Ok(if holds { exit::OK } else { exit::FAILED })
}

/// Prints leftovers and the place of the daemon's log.
fn conclude(remains: &[String], log: Option<&std::path::Path>) {
    for what in remains {
        output::talk(&format!("not cleaned up: {what}"));
    }
    if let Some(log) = log {
        output::talk(&format!("the daemon's log is {}", log.display()));
    }
}

const TITLES: [&str; 10] =
    ["OPERATION", "STEPS", "TRIED", "CYCLES", "KILLS", "CUTS", "FAULTS", "LOST", "DATA LOST", "LEFT OVER"];

fn print(report: &Report) -> Result<(), Problem> {
    let mut rows: Vec<Vec<String>> = report.rows.iter().map(row).collect();
    rows.push(row(&total(report)));
    output::table(&TITLES, &rows)?;
    for row in report.rows.iter().filter(|row| !row.untried.is_empty()) {
        output::talk(&format!("not tried in '{}': {}", row.operation, row.untried.join(", ")));
    }
    for row in report.rows.iter().filter(|row| !row.by_chance.is_empty()) {
        let steps = row.by_chance.join(", ");
        output::talk(&format!("reached only sometimes in '{}': {steps}", row.operation));
    }
    for finding in &report.findings {
        let step = finding.step.as_ref().map(|step| format!(" at the step '{step}'")).unwrap_or_default();
        output::talk(&format!("found in '{}'{step}: {}", finding.operation, finding.what));
    }
    Ok(())
}

fn row(row: &Row) -> Vec<String> {
    let numbers =
        [row.cycles, row.kills, row.power_cuts, row.disk_faults, row.sandboxes_lost, row.data_lost, row.left_overs];
    let mut cells = vec![row.operation.clone(), row.steps.to_string(), row.tried.to_string()];
    cells.extend(numbers.iter().map(u64::to_string));
    cells
}

fn total(report: &Report) -> Row {
    let start = Row { operation: "all".to_owned(), ..Row::default() };
    report.rows.iter().fold(start, |mut total, row| {
        total.steps += row.steps;
        total.tried += row.tried;
        total.cycles += row.cycles;
        total.kills += row.kills;
        total.power_cuts += row.power_cuts;
        total.disk_faults += row.disk_faults;
        total.sandboxes_lost += row.sandboxes_lost;
        total.data_lost += row.data_lost;
        total.left_overs += row.left_overs;
        total.wrong_answers += row.wrong_answers;
        total
    })
}

fn verdict(outcome: &Outcome, holds: bool) -> String {
    let report = &outcome.report;
    let seed = report.seed;
    match (&report.log, holds) {
        (_, true) => format!("{} passes, nothing was lost (seed {seed})", report.passes),
        (Some(log), false) => {
            format!("the proof failed: {} findings; the daemons' log is {}", report.findings.len(), log.display())
        }
        (None, false) if outcome.interrupted => "interrupted; everything was cleaned up".to_owned(),
        (None, false) => "not every step was tried: increase --minutes; all steps that were tried passed".to_owned(),
    }
}
