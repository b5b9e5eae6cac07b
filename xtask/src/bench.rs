//! `cargo xtask bench`: compares Dormouse, through its HTTP API, with stock `runsc` on the same
//! root file system, alternating in the same run. Absolute times mean little on a noisy machine;
//! the promises are ratios. It measures the build that is shipped.
//!
//! ```text
//! stage ─► parts, each with rows ─► report ─► table, results, docs/performance.md with plots
//! ```

mod attack;
mod build;
mod e2b;
mod ensure;
mod forks;
mod guest;
mod images;
mod lifecycle;
mod lineage;
mod many;
mod page;
mod peer;
mod plots;
mod price;
mod project;
mod reflink;
mod report;
mod rows;
mod scale;
mod stage;
mod store;
mod suspend;
mod wake;
mod zipf;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use dorm_testing::Daemon;

use peer::Peer;
use report::{Machine, Report};
use rows::Row;
use stage::Stage;

/// A part of the bench.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Create, exec, and resumes of parked sandboxes.
    Lifecycle,
    /// Wakes of 256 MiB, 1 GiB and 4 GiB from disk.
    Wake,
    /// Ten and forty forks.
    Fork,
    /// Suspends, for the first time and after a wake.
    Suspend,
    /// First writes after a wake.
    Price,
    /// Snapshots of files.
    Files,
    /// Rewinds to a snapshot.
    Rewind,
    /// Requests for environments.
    Ensure,
    /// The door for clients of E2B.
    E2b,
    /// Building images.
    Build,
    /// The import of a large image, and the memory it needs.
    Images,
    /// The resource use of an idle daemon.
    Idle,
    /// Many deadlines, many requests, a restart.
    Scale,
    /// A hostile sandbox and its neighbour, for twelve minutes.
    Attack,
    /// Suspends on an XFS of the bench's own, with reflinks.
    Reflink,
    /// Idle running sandboxes, parked ones, and a create beside them.
    Many,
    /// How many sandboxes run until one is refused.
    Density,
    /// Traffic to more sandboxes than have room.
    Zipf,
    /// The service on an empty store and on one with a million sandboxes.
    Store,
}

impl Part {
    /// Returns whether it uses the daemon that parts share.
    const fn shares_daemon(self) -> bool {
        match self {
            Self::Lifecycle | Self::Wake | Self::Fork | Self::Suspend | Self::Price | Self::Files | Self::Rewind => {
                true
            }
            Self::Ensure | Self::E2b | Self::Build | Self::Images | Self::Idle | Self::Scale | Self::Attack => true,
            Self::Reflink | Self::Many | Self::Density | Self::Zipf | Self::Store => false,
        }
    }

    /// Returns whether the short form leaves it out.
    const fn is_long(self) -> bool {
        matches!(self, Self::Attack | Self::Store | Self::Scale | Self::Images | Self::Build)
    }

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Measure only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Repeat less, and leave out attack, store, scale, images and build: a quarter of an hour on
    /// two CPUs.
    #[arg(long)]
    short: bool,
    /// Also write the results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How to print the results.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// The runsc of the daemon; by default dorm-runsc, if it can be built here. The peer is always
    /// the stock one.
    #[arg(long, value_name = "PATH")]
    runsc: Option<PathBuf>,
    /// Measure this program instead of building one, such as target/release/dorm.
    #[arg(long, value_name = "PATH")]
    dorm: Option<PathBuf>,
    /// Write docs/performance.md with its plots from the results.
    #[arg(long)]
    write_docs: bool,
    /// Measure nothing, and use the results in these files. A part that several of them have is
    /// taken from the last.
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    from: Vec<PathBuf>,
    /// A remark for readers of the results, such as other work on the machine.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

impl Options {
    /// Returns whether this part was asked for.
    fn wants(&self, part: Part) -> bool {
        if self.only.is_empty() { !(self.short && part.is_long()) } else { self.only.contains(&part) }
    }

    /// Returns whether sandboxes are needed at all.
    pub(crate) fn measures(&self) -> bool {
        self.from.is_empty()
    }

    /// Returns whether the image of the code interpreter is needed.
    pub(crate) fn needs_interpreter(&self) -> bool {
        self.wants(Part::E2b)
    }

    /// Returns the program to measure, after building it if none is given: the build that is
    /// shipped. Parts over the fake engine need the simulator's beside it.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        match &self.dorm {
            Some(dorm) => Ok(dorm.clone()),
            None => crate::build::dist(self.wants(Part::Scale) || self.wants(Part::Store)),
        }
    }
}

/// The rows so far, and the parts that failed.
#[derive(Default)]
struct Found {
    rows: Vec<Row>,
    failed: Vec<String>,
}

impl Found {
    /// Keeps the rows of a part, or its failure.
    fn keep(&mut self, part: Part, began: Instant, rows: Result<Vec<Row>>) {
        let name = part.name();
        match rows {
            Ok(rows) => {
                eprintln!("bench: {name} took {} s", began.elapsed().as_secs());
                self.rows.extend(rows.into_iter().map(|row| Row { part: name.clone(), ..row }));
            }
            Err(error) => {
                eprintln!("bench: {name} failed: {error:#}");
                self.failed.push(name);
            }
        }
    }
}

/// Prints the results of an earlier bench, and writes the page from them if asked to.
pub(crate) fn show(options: &Options) -> Result<()> {
    let mut report = Report::read_all(&options.from)?;
    report.machine.note = options.note.clone().or(report.machine.note);
    deliver(options, &report)
}

/// Runs the bench, or some parts of it, and prints what was measured, also if a part fails.
pub(crate) async fn run(
    dorm: &Path,
    (environment, clients): (&crate::setup::Environment, crate::setup::Clients),
    options: &Options,
) -> Result<()> {
    let stage = Stage::new(dorm, (environment, clients), options.runsc.as_deref(), options.short).await?;
    let machine = Machine::of(&stage, options.note.as_deref());
    let mut found = Found::default();
    let measured = measure(&stage, options, &mut found).await;
    stage.clear();
    let delivered = deliver(options, &Report { machine: machine?, rows: found.rows });
    measured?;
    if !found.failed.is_empty() {
        bail!("these parts failed: {}", found.failed.join(", "));
    }
    delivered
}

async fn measure(stage: &Stage, options: &Options, found: &mut Found) -> Result<()> {
    let wanted: Vec<Part> = Part::value_variants().iter().copied().filter(|part| options.wants(*part)).collect();
    if wanted.iter().any(|part| part.shares_daemon()) {
        stage
            .with_daemon(&stage.path("data"), &[], async |daemon| {
                let peer = stage.peer(&stage.path("peer"))?;
                guest::warm(daemon).await?;
                for part in wanted.iter().copied().filter(|part| part.shares_daemon()) {
                    let began = Instant::now();
                    found.keep(part, began, shared(part, stage, daemon, &peer).await);
                    // The next part must not find what a part that failed has left.
                    peer.end_all();
                    daemon.end_sandboxes().await?;
                }
                Ok(())
            })
            .await?;
    }
    for part in wanted.iter().copied().filter(|part| !part.shares_daemon()) {
        if stage.is_interrupted() {
            bail!("interrupted");
        }
        let began = Instant::now();
        found.keep(part, began, alone(part, stage).await);
    }
    Ok(())
}

/// Measures a part with the shared daemon.
async fn shared(part: Part, stage: &Stage, daemon: &mut Daemon, peer: &Peer) -> Result<Vec<Row>> {
    match part {
        Part::Lifecycle => lifecycle::lifecycle(stage, daemon, peer).await,
        Part::Wake => wake::wake(stage, daemon, peer).await,
        Part::Fork => forks::fork(stage, daemon).await,
        Part::Suspend => suspend::suspend(stage, daemon, peer).await,
        Part::Price => price::price(stage, daemon, peer).await,
        Part::Files => lineage::files(stage, daemon).await,
        Part::Rewind => lineage::rewind(stage, daemon).await,
        Part::Ensure => ensure::ensured(stage, daemon).await,
        Part::E2b => e2b::beside_native(stage, daemon).await,
        Part::Build => build::build(daemon, &stage.dorm, &stage.directory).await,
        Part::Images => images::import(daemon, &stage.directory).await,
        Part::Idle => lifecycle::idle(daemon).await,
        Part::Scale => {
            let mut rows = Vec::new();
            scale::real(daemon, &mut rows).await?;
            rows.push(scale::fake(&stage.dorm.with_file_name("dorm-sim"))?);
            Ok(rows)
        }
        Part::Attack => {
            let mut rows = Vec::new();
            attack::attack(daemon, &mut rows).await?;
            Ok(rows)
        }
        Part::Reflink | Part::Many | Part::Density | Part::Zipf | Part::Store => {
            bail!("{} has daemons of its own", part.name())
        }
    }
}

/// Measures a part that starts what it needs.
async fn alone(part: Part, stage: &Stage) -> Result<Vec<Row>> {
    match part {
        Part::Reflink => suspend::on_reflink(stage).await,
        Part::Many => {
            let mut rows = many::idle(stage).await?;
            rows.extend(many::parked(stage).await?);
            Ok(rows)
        }
        Part::Density => many::density(stage).await,
        Part::Zipf => zipf::zipf(stage).await,
        _ => store::on_full_store(&stage.dorm, &stage.path("stores")),
    }
}

/// Prints a report, writes the files that were asked for, and fails if a limit is missed. Limits of
/// absolute times do not count.
fn deliver(options: &Options, report: &Report) -> Result<()> {
    match options.output {
        Output::Table => rows::print(&report.rows),
        Output::Json => print!("{}", report.to_json()?),
    }
    if let Some(path) = &options.json {
        std::fs::write(path, report.to_json()?).with_context(|| format!("write {}", path.display()))?;
    }
    if options.write_docs {
        page::write(report, &crate::setup::root()?)?;
    }
    let missed: Vec<&str> = report.rows.iter().filter(|row| row.fails()).map(|row| row.name.as_str()).collect();
    if !missed.is_empty() {
        bail!("{} of {} rows missed their limits: {}", missed.len(), report.rows.len(), missed.join("; "));
    }
    Ok(())
}

fn millis(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1000.0
}
