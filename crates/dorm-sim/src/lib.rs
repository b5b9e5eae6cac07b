//! The simulator: the real service, storage and store over a fake engine, driven from one seed.
//!
//! A seed determines a simulation run: several callers send random commands; the daemon dies
//! between any two steps; engines fail, hang and return wrong results; the disk is full; the power
//! fails, and data that was not synced is lost; clocks are set. After each death the next daemon
//! recovers. At each quiet moment the checkers run: no sandbox is lost, no memory is older than
//! acknowledged, nothing is left over, and no answer was false. The same seed gives the same run to
//! the last line of its trace, so every failure can be replayed.
//!
//! ```text
//! seed ─► plan ─► callers ─► Service ─► SteppedStore ─► (watched) memory or SQLite ─┐
//!                    │          ├─────► SteppedEngine ─► (watched) FakeEngine       ├─► Model ─► checks
//!                    │          └─────► Storage, steps in place                     │
//!                    └──────────────── answers ─────────────────────────────────────┘
//! ```
//!
//! The tasks of a dead daemon are not aborted one by one. From its death on, every port it holds
//! hangs, its streams too, so it changes nothing. The runtime is dropped at the end of the run.
//!
//! It does not know real engines, networks or HTTP: `dorm prove` does the same to those, without a
//! seed.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod check;
mod client;
mod deadlines;
mod disk;
mod engine;
mod model;
mod random;
mod scale;
mod simulation;
mod sqlite;
mod steps;
mod store;
mod trace;
mod world;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

pub use deadlines::latest as latest_deadline;
pub use scale::{Counts, at_scale};
pub use simulation::Figures;
pub use steps::{Coverage, Visits};
pub use trace::Echo;
pub use world::{Guests, StoreKind};

use random::Random;
use simulation::{Plan, Simulation};
use trace::Trace;
use world::World;

/// The result of one simulation run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// The use of memory by its guests.
    pub guests: Guests,
    /// The hash of its trace: the same for the same seed, store and guests.
    pub hash: u64,
    /// The length of its trace.
    pub lines: u64,
    /// The counts of events and faults in it.
    pub figures: Figures,
    /// The first failed check, if any.
    pub failure: Option<Failure>,
}

/// A failed check: something that must never happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// A description for people.
    pub what: String,
    /// The last lines of the trace.
    pub tail: Vec<String>,
}

impl Outcome {
    /// A report for people: the seed, the failure, the end of the trace, and the command that
    /// replays it. `None` without a failure.
    pub fn report(&self, store: StoreKind) -> Option<String> {
        let failure = self.failure.as_ref()?;
        let option = match store {
            StoreKind::Memory => "",
            StoreKind::Sqlite => " --sqlite",
        };
        let guests = match self.guests {
            Guests::Modest => "",
            Guests::MemoryPressure => " --memory-pressure",
        };
        let (seed, what, tail) = (self.seed, &failure.what, failure.tail.join("\n"));
        Some(format!(
            "{tail}\n\nseed {seed}: {what}\nsee it again: cargo xtask sim --seed {seed}{option}{guests} --verbose"
        ))
    }
}

/// The place of simulation runs: a directory with the image that all sandboxes start from. The
/// directory is removed when this is dropped.
pub struct Simulator {
    place: TempDir,
    helper: Runtime,
    simulations: AtomicU64,
    guests: Guests,
}

impl Simulator {
    /// Makes the directory, in memory if the host has enough.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> Result<Self> {
        let place = tempfile::Builder::new().prefix("dorm-sim-").tempdir_in(home()).context("make a directory")?;
        let helper = Builder::new_multi_thread().worker_threads(1).enable_all().build().context("start a runtime")?;
        helper.block_on(make_images(place.path().to_owned()))?;
        Ok(Self { place, helper, simulations: AtomicU64::new(0), guests: Guests::default() })
    }

    /// Sets the use of memory by guests.
    pub fn with(mut self, guests: Guests) -> Self {
        self.guests = guests;
        self
    }

    /// Executes the simulation run of `seed`.
    ///
    /// # Errors
    /// If the host refuses something that is not part of the simulation.
    pub fn run(&self, seed: u64, store: StoreKind, echo: Echo) -> Result<Outcome> {
        let number = self.simulations.fetch_add(1, Ordering::Relaxed);
        let data = self.place.path().join(format!("simulation-{number}"));
        std::fs::create_dir(&data).with_context(|| format!("make {}", data.display()))?;
        let runtime =
            Builder::new_current_thread().enable_time().start_paused(true).build().context("start a runtime")?;
        let watch = self.helper.spawn(give_up(seed));
        let outcome = runtime.block_on(self.execute(seed, &data, store, echo));
        watch.abort();
        drop(runtime);
        std::fs::remove_dir_all(&data).with_context(|| format!("remove {}", data.display()))?;
        outcome
    }

    async fn execute(&self, seed: u64, data: &Path, store: StoreKind, echo: Echo) -> Result<Outcome> {
        let trace = Trace::new(self.place.path().display().to_string(), echo);
        let mut random = Random::new(seed);
        let plan = Plan::new(&mut random);
        let is_building = random.chance(20);
        let home = if is_building { data } else { self.place.path() };
        if is_building {
            self.helper.spawn(make_images(data.to_owned())).await.context("make images")??;
        }
        let images = home.join("images");
        let store = (store, self.helper.handle());
        let mut world = World::new((data, &images), store, &mut random, plan.misfortune, trace.clone())?;
        (world.guests, world.is_building) = (self.guests, is_building);
        world.is_ensuring = random.chance(30);
        let simulation = Simulation { world: Arc::new(world), random, plan, figures: Figures::default() };
        let figures = simulation.execute().await?;
        let (hash, lines, wrong) = trace.end();
        let failure = wrong.map(|(what, tail)| Failure { what, tail });
        Ok(Outcome { seed, guests: self.guests, hash, lines, figures, failure })
    }
}

/// Makes the images in a directory: one without a program, one with.
async fn make_images(place: PathBuf) -> Result<()> {
    let source = place.join("source/etc");
    std::fs::create_dir_all(&source).context("make an image")?;
    std::fs::write(source.join("hello"), "hello").context("make an image")?;
    let storage = dorm_storage::Storage::open(&place.join("first"), &place.join("images"))?;
    let base = storage.import(&place.join("source"), Some("base"), |_| {}).await?;
    let config = dorm_storage::ImageConfig {
        command: ["sleep", "1000000000"].map(str::to_owned).to_vec(),
        ready: Some("sleep 0.005".to_owned()),
        ..dorm_storage::ImageConfig::default()
    };
    let app = storage.compose_image(&base.digest, None, config, None, |_| {}).await?;
    storage.tag(&app.digest, "app").await?;
    Ok(())
}

/// Aborts a simulation run whose time stands still because a task is always busy: it would never
/// end.
async fn give_up(seed: u64) {
    tokio::time::sleep(Duration::from_secs(300)).await;
    eprintln!("seed {seed}: a task is always busy, so the simulated time stands still");
    std::process::abort();
}

/// A directory in memory if there is enough of it, since simulation runs sync a lot; else a
/// temporary one.
fn home() -> PathBuf {
    let shared = Path::new("/dev/shm");
    match rustix::fs::statvfs(shared) {
        Ok(facts) if facts.f_bavail.saturating_mul(facts.f_frsize) > 1 << 30 => shared.to_owned(),
        Ok(_) | Err(_) => std::env::temp_dir(),
    }
}
