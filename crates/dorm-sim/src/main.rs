//! The simulator as a program: executes one simulation run, or as many as fit into some minutes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use dorm_sim::{Counts, Echo, Figures, Guests, Simulator, StoreKind};

/// Executes simulation runs of Dormouse, each from a seed, and stops at the first failure.
#[derive(Parser)]
struct Arguments {
    /// Execute only the run of this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Execute runs for this many minutes.
    #[arg(long, default_value_t = 1)]
    minutes: u64,
    /// The first seed. Default: the current time.
    #[arg(long)]
    from: Option<u64>,
    /// Execute this many runs, however long they take.
    #[arg(long)]
    count: Option<u64>,
    /// Use SQLite instead of a store in memory.
    #[arg(long)]
    sqlite: bool,
    /// Let guests take all the memory they can get, and callers fork sandboxes.
    #[arg(long)]
    memory_pressure: bool,
    /// Print every line of the trace.
    #[arg(long)]
    verbose: bool,
    /// Instead: create so many sandboxes with deadlines spread over a minute, in real time, and
    /// print how many milliseconds late the latest was acted on.
    #[arg(long)]
    deadlines: Option<u32>,
    /// Instead: measure the service on stores that are empty, that hold only the living, and that
    /// hold all of these: living, terminated sandboxes, events; and print milliseconds as JSON.
    #[arg(long, value_name = "LIVING,TERMINATED,EVENTS", value_parser = counts)]
    scale: Option<Counts>,
    /// Leave those stores in this directory, as `empty`, `living` and `full`.
    #[arg(long, requires = "scale", value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
    /// Continue after a failure and count the failures.
    #[arg(long)]
    keep_going: bool,
}

fn counts(text: &str) -> Result<Counts, String> {
    let numbers: Option<Vec<u64>> = text.split(',').map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some([living, terminated, events]) => Ok(Counts { living: *living, terminated: *terminated, events: *events }),
        _ => Err(format!("'{text}' is not three numbers with commas between")),
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(count) = arguments.deadlines {
        println!("{:.0}", dorm_sim::latest_deadline(count)?);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(counts) = arguments.scale {
        let temporary = tempfile::tempdir().context("make a directory")?;
        let directory = arguments.keep.as_deref().unwrap_or(temporary.path());
        println!("{:#}", dorm_sim::at_scale(counts, directory)?);
        return Ok(ExitCode::SUCCESS);
    }
    let store = if arguments.sqlite { StoreKind::Sqlite } else { StoreKind::Memory };
    let echo = if arguments.verbose { Echo::On } else { Echo::Off };
    let guests = if arguments.memory_pressure { Guests::MemoryPressure } else { Guests::Modest };
    let simulator = Simulator::new()?.with(guests);
    if let Some(seed) = arguments.seed {
        let outcome = simulator.run(seed, store, echo)?;
        println!("seed {seed}: {} lines, hash {:016x}", outcome.lines, outcome.hash);
        return Ok(match outcome.report(store) {
            Some(report) => {
                eprintln!("{report}");
                ExitCode::FAILURE
            }
            None => ExitCode::SUCCESS,
        });
    }
    let (began, limit) = (Instant::now(), Duration::from_secs(60 * arguments.minutes));
    let first = arguments.from.unwrap_or_else(seconds);
    let mut figures = Figures::default();
    let (mut executed, mut wrong) = (0u64, 0u64);
    while arguments.count.map_or_else(|| began.elapsed() < limit, |count| executed < count) {
        let outcome = simulator.run(first + executed, store, echo)?;
        executed += 1;
        figures.add(&outcome.figures);
        match (outcome.report(store), &outcome.failure) {
            (Some(_), Some(failure)) if arguments.keep_going => {
                println!("seed {}: {}", outcome.seed, failure.what);
                wrong += 1;
            }
            (Some(report), _) => {
                eprintln!("{report}");
                return Ok(ExitCode::FAILURE);
            }
            (None, _) => {}
        }
    }
    print(&figures, executed, wrong, began.elapsed());
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn seconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_secs().saturating_mul(1_000_000)
}

fn print(figures: &Figures, executed: u64, wrong: u64, took: Duration) {
    let Figures { daemons, deaths, power_losses, faults, sandboxes, events, coverage } = figures;
    println!(
        "{executed} simulation runs in {:.1} s ({:.0}/s), {wrong} wrong",
        took.as_secs_f64(),
        executed as f64 / took.as_secs_f64()
    );
    println!(
        "{daemons} daemons, {deaths} deaths, {power_losses} losses of power, {faults} faults, {sandboxes} sandboxes, \
         {events} events"
    );
    println!("{:<32} {:>10} {:>8} {:>8}", "step", "reached", "died", "failed");
    for (step, visits) in coverage {
        println!("{step:<32} {:>10} {:>8} {:>8}", visits.reached, visits.died, visits.failed);
    }
}
