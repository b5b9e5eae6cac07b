//! The simulator as a program: tells one simulation run, or as many as fit into some minutes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use dorm_sim::{Counts, Echo, Figures, Guests, Simulator, StoreKind};

/// Tells simulation runs of Dormouse, each from a seed, and stops at the first in which something is wrong.
#[derive(Parser)]
struct Arguments {
    /// Only this simulation run.
    #[arg(long)]
    seed: Option<u64>,
    /// As many simulation runs as fit into so many minutes.
    #[arg(long, default_value_t = 1)]
    minutes: u64,
    /// The seed to begin with; by default the time.
    #[arg(long)]
    from: Option<u64>,
    /// As many simulation runs, whatever time they take.
    #[arg(long)]
    count: Option<u64>,
    /// With SQLite instead of a store in memory.
    #[arg(long)]
    sqlite: bool,
    /// With guests that take all the memory they can get, and callers that fork.
    #[arg(long)]
    memory_pressure: bool,
    /// Print every line of the trace.
    #[arg(long)]
    verbose: bool,
    /// Instead: create so many sandboxes with deadlines spread over a minute, in real time, and print how many
    /// milliseconds late the latest was acted on.
    #[arg(long)]
    deadlines: Option<u32>,
    /// Instead: measure the service on stores that are empty, that hold only the living, and that hold all of these: living,
    /// terminated sandboxes, events; and print milliseconds as JSON.
    #[arg(long, value_name = "LIVING,TERMINATED,EVENTS", value_parser = counts)]
    scale: Option<Counts>,
    /// Leave those stores in this directory, as `empty`, `living` and `full`.
    #[arg(long, requires = "scale", value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
    /// Go on after a failure and only count.
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
    let (mut told, mut wrong) = (0u64, 0u64);
    while arguments.count.map_or_else(|| began.elapsed() < limit, |count| told < count) {
        let outcome = simulator.run(first + told, store, echo)?;
        told += 1;
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
    print(&figures, told, wrong, began.elapsed());
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn seconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_secs().saturating_mul(1_000_000)
}

fn print(figures: &Figures, told: u64, wrong: u64, took: Duration) {
    let Figures { daemons, deaths, power_losses, faults, sandboxes, events, coverage } = figures;
    println!(
        "{told} simulation runs in {:.1} s ({:.0}/s), {wrong} wrong",
        took.as_secs_f64(),
        told as f64 / took.as_secs_f64()
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
