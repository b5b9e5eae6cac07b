//! A soak: sandboxes whose processes write memory and files all the time, while they are suspended,
//! resumed, forked, rewound and created from snapshots, for as long as asked.
//!
//! ```text
//! guest.py: steps fill pages of heap, mapped file and shared memory; forks; calls what it compiles
//!     │ answers with the number of steps and a digest of each area
//! model: the same seed and number of steps ─► the same digest?
//! ```

mod line;
mod model;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::Setting;
use crate::session::session;
use crate::world::{WarmContainers, World};
use line::Line;

/// The time between two lines of progress.
const TOLD: Duration = Duration::from_secs(60);

/// How often something was done during a soak.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Soakings {
    /// Comparisons of a sandbox with the model.
    pub checks: u64,
    /// Suspends that were followed by a resume.
    pub suspends: u64,
    /// The suspends among them whose sandbox was resumed from disk.
    pub from_disk: u64,
    /// Those whose sandbox was parked for so long that its run has released its memory.
    pub parked_long: u64,
    /// Sandboxes that were forked off.
    pub forks: u64,
    /// Sandboxes that were created from a memory snapshot.
    pub restores: u64,
    /// Rewinds of a running sandbox, with its future kept and restored.
    pub rewinds: u64,
    /// Operations that took longer than their limits, and were asked for again.
    pub timed_out: u64,
    /// The longest chain of saves of the same memory.
    pub generations: u64,
}

/// The result of a soak.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Soaked {
    /// The seed of the order of everything.
    pub seed: u64,
    /// The number of seconds that were asked for.
    pub wanted: u64,
    /// Its duration in seconds.
    pub seconds: u64,
    /// The counts.
    #[serde(flatten)]
    pub done: Soakings,
    /// The differences found, for people.
    pub findings: Vec<String>,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Leftovers that could not be cleared away afterwards.
    pub remains: Vec<String>,
    /// The file with the daemon's output; only if something was found.
    pub log: Option<std::path::PathBuf>,
}

impl Soaked {
    /// Whether it lasted as long as asked, and nothing was found.
    pub fn holds(&self) -> bool {
        self.seconds >= self.wanted && self.findings.is_empty() && self.remains.is_empty() && !self.interrupted
    }
}

/// Soaks for `length`. `interrupted` stops it; in any case everything that it made is cleared away.
/// `tell` gets progress lines for people. The image needs `python3`.
///
/// # Errors
/// If it cannot begin: no image, no directory, no daemon.
pub async fn soak(
    setting: &Setting,
    length: Duration,
    interrupted: impl Future<Output = ()>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Soaked> {
    let begun = Instant::now();
    let done = Mutex::new(Soakings::default());
    let ended = session(setting, interrupted, tell, async |world| {
        world.restart(WarmContainers::Ready)?;
        soaking(world, (&done, setting.seed), begun + length, tell).await?;
        // Warm containers are in no record, so they would count as left over.
        world.restart(WarmContainers::None)
    })
    .await?;
    let log = ended.close(false)?;
    Ok(Soaked {
        seed: setting.seed,
        wanted: length.as_secs(),
        seconds: begun.elapsed().as_secs(),
        done: *lock(&done),
        findings: ended.found.iter().map(|error| format!("{error:#}")).collect(),
        interrupted: ended.interrupted,
        remains: ended.remains,
        log,
    })
}

async fn soaking(
    world: &World,
    (done, seed): (&Mutex<Soakings>, u64),
    end: Instant,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<()> {
    let line = |number| Line::new(world, done, (seed, number)).run(end);
    let lines = async { tokio::try_join!(line(0), line(1), line(2)).map(drop) };
    tokio::pin!(lines);
    loop {
        tokio::select! {
            ended = &mut lines => return ended,
            () = tokio::time::sleep(TOLD) => {
                let Soakings { checks, suspends, forks, restores, rewinds, .. } = *lock(done);
                tell(&format!(
                    "{checks} comparisons, {suspends} suspends, {forks} forks, {restores} restores, {rewinds} rewinds"
                ));
            }
        }
    }
}

fn lock(done: &Mutex<Soakings>) -> MutexGuard<'_, Soakings> {
    done.lock().unwrap_or_else(PoisonError::into_inner)
}
