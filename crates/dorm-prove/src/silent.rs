//! Cycles of suspend and resume. In some of them the sandbox's process is stopped for up to a
//! minute: then nothing in it answers, though the process lives.
//!
//! However an operation ends, no run may be lost and no acknowledged data may be missing.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use dorm_testing::{sandbox_process, signal, until};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::json;

use crate::Setting;
use crate::host::word;
use crate::probe::{Loss, Probe};
use crate::session::session;
use crate::world::{WarmContainers, World};

/// The longest time for which a sandbox is stopped.
const LONGEST: Duration = Duration::from_secs(60);

/// How long a sandbox may take to reach its expected state, once nothing is stopped any more.
const REST: Duration = Duration::from_secs(900);

/// The result of cycles with silent agents.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Silenced {
    /// The seed of the order of everything.
    pub seed: u64,
    /// The number of cycles that were asked for.
    pub wanted: u64,
    /// The number of cycles that were completed.
    pub cycles: u64,
    /// How often a sandbox was stopped.
    pub stopped: u64,
    /// The seconds for which sandboxes were stopped, in all.
    pub stopped_seconds: u64,
    /// The number of operations that failed and were tried again.
    pub refused: u64,
    /// The number of suspends whose event says that they were not quiesced.
    pub unquiesced: u64,
    /// The number of restarts of the daemon.
    pub restarts: u64,
    /// The losses found, for people.
    pub losses: Vec<String>,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Leftovers that could not be cleared away afterwards.
    pub remains: Vec<String>,
    /// The file with the daemon's output; only if something was lost.
    pub log: Option<std::path::PathBuf>,
}

impl Silenced {
    /// Whether all cycles were completed and nothing was lost.
    pub fn holds(&self) -> bool {
        self.cycles == self.wanted && self.losses.is_empty() && self.remains.is_empty() && !self.interrupted
    }
}

/// Runs `count` cycles. `interrupted` stops them; in any case everything that they made is cleared
/// away. `tell` gets progress lines for people.
///
/// # Errors
/// If it cannot begin: no image, no directory, no daemon.
pub async fn silence(
    setting: &Setting,
    count: u64,
    interrupted: impl Future<Output = ()>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Silenced> {
    let mut silenced = Silenced { seed: setting.seed, wanted: count, ..Silenced::default() };
    let ended = session(setting, interrupted, tell, async |world| cycles(world, &mut silenced, tell).await).await?;
    let log = ended.close(false)?;
    silenced.losses.extend(ended.found.map(|error| format!("{error:#}")));
    Ok(Silenced { interrupted: ended.interrupted, remains: ended.remains, log, ..silenced })
}

async fn cycles(world: &mut World, silenced: &mut Silenced, tell: &(dyn Fn(&str) + Sync)) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(silenced.seed);
    let mut probe = world.create(json!({ "name": "silent" })).await?;
    for cycle in 1..=silenced.wanted {
        let ended = one(world, &mut probe, &mut random, silenced).await;
        silenced.cycles = cycle;
        if let Err(error) = ended {
            bail!("cycle {cycle}: {error:#}");
        }
        if cycle % 10 == 0 {
            let Silenced { stopped, stopped_seconds, refused, unquiesced, .. } = silenced;
            tell(&format!(
                "{cycle} of {} cycles, stopped {stopped} times for {stopped_seconds} s, {refused} operations refused, \
                 {unquiesced} suspends not quiesced",
                silenced.wanted
            ));
        }
    }
    Ok(())
}

/// Suspends and resumes a sandbox, and checks it. During both its process may be stopped at any
/// moment.
async fn one(world: &mut World, probe: &mut Probe, random: &mut fastrand::Rng, silenced: &mut Silenced) -> Result<()> {
    probe.note(&world.daemon).await?;
    let asked = match random.u8(..10) {
        0 => Asked::Checkpoint,
        1 => Asked::Restart,
        _ => Asked::Suspend,
    };
    let stop = Stop::choose(random);
    disturbed(world, probe, asked, stop, silenced).await?;
    if asked != Asked::Suspend {
        return is_whole(world, probe, silenced).await;
    }
    // Even if the operation failed, it must work now.
    settles(world, probe, "suspend", "suspended", silenced).await?;
    if random.u8(..4) == 0 {
        world.daemon.act(&probe.id, "evict").await?;
    }
    let stop = Stop::choose(random);
    disturbed(world, probe, Asked::Resume, stop, silenced).await?;
    settles(world, probe, "resume", "running", silenced).await?;
    is_whole(world, probe, silenced).await
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Suspend,
    Resume,
    Checkpoint,
    Restart,
}

/// When a sandbox is stopped, counted from the beginning of an operation, and for how long.
#[derive(Clone, Copy, Debug)]
struct Stop {
    after: Duration,
    length: Duration,
}

impl Stop {
    /// Chooses a stop for one operation in four. Most are short; one in four lasts up to the
    /// longest time.
    fn choose(random: &mut fastrand::Rng) -> Option<Self> {
        if random.u8(..4) != 0 {
            return None;
        }
        let most = if random.u8(..4) == 0 { LONGEST } else { LONGEST / 10 };
        let length = Duration::from_millis(random.u64(100..=u64::try_from(most.as_millis()).unwrap_or(100)));
        Some(Self { after: Duration::from_millis(random.u64(..400)), length })
    }
}

/// Asks for an operation while the sandbox is stopped and continued; both are over afterwards.
async fn disturbed(
    world: &mut World,
    probe: &Probe,
    asked: Asked,
    stop: Option<Stop>,
    silenced: &mut Silenced,
) -> Result<()> {
    let data = world.daemon.data().to_owned();
    let id = probe.id.clone();
    let stopping = async move {
        let Some(Stop { after, length }) = stop else { return Ok(None) };
        tokio::time::sleep(after).await;
        // An evicted sandbox has no process.
        let Some(pid) = sandbox_process(&data, &id) else { return Ok(None) };
        if signal(pid, Signal::STOP).is_err() {
            return Ok(None);
        }
        tokio::time::sleep(length).await;
        // The process may have ended meanwhile, since its image was restored instead.
        let _ = signal(pid, Signal::CONT);
        anyhow::Ok(Some(length))
    };
    let answer = if asked == Asked::Restart {
        let stopping = tokio::spawn(stopping);
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.restart(WarmContainers::None)?;
        silenced.restarts += 1;
        count(silenced, stopping.await.context("stop the sandbox")??);
        return Ok(());
    } else {
        let daemon = &world.daemon;
        let asking = async {
            match asked {
                Asked::Suspend => daemon.act(&probe.id, "suspend").await,
                Asked::Resume => daemon.act(&probe.id, "resume").await,
                Asked::Checkpoint | Asked::Restart => daemon.checkpoint(&probe.id, "memory").await,
            }
        };
        let (answer, stopped) = tokio::join!(asking, stopping);
        count(silenced, stopped?);
        answer
    };
    match answer {
        Ok(taken) if asked == Asked::Checkpoint => world.forget(&word(&taken, "id")).await,
        Ok(_) => Ok(()),
        Err(_) if stop.is_some() => {
            silenced.refused += 1;
            Ok(())
        }
        Err(error) => Err(error.context(format!("{asked:?}, with nothing stopped"))),
    }
}

fn count(silenced: &mut Silenced, stopped: Option<Duration>) {
    if let Some(length) = stopped {
        silenced.stopped += 1;
        silenced.stopped_seconds += length.as_secs();
    }
}

/// Waits until the sandbox is in `state`, and asks for that if it is not.
async fn settles(world: &World, probe: &Probe, verb: &str, state: &str, silenced: &mut Silenced) -> Result<()> {
    let end = Instant::now() + REST;
    loop {
        let view = world.daemon.describe(&probe.id).await?;
        if view["state"] == state && view["operation"].is_null() {
            return Ok(());
        }
        if view["state"] == "terminated" {
            bail!("it was terminated: {}", view["cause"]);
        }
        if Instant::now() > end {
            bail!("it does not come to be {state}: {view}");
        }
        if let Err(error) = world.daemon.act(&probe.id, verb).await {
            silenced.refused += 1;
            // The operation that was disturbed may still be running.
            if Instant::now() > end {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Checks that the sandbox runs, answers, holds what it held, and never lost a run.
async fn is_whole(world: &World, probe: &mut Probe, silenced: &mut Silenced) -> Result<()> {
    let daemon = &world.daemon;
    let id = probe.id.clone();
    let answers = || async {
        let view = daemon.describe(&id).await?;
        if view["state"] == "terminated" {
            bail!("it was terminated: {}", view["cause"]);
        }
        Ok(view["state"] == "running" && view["unreachable"].is_null() && view["operation"].is_null())
    };
    until(REST, "it runs and answers", answers).await?;
    probe.is_whole(daemon).await.map_err(|loss| match loss {
        Loss::Sandbox(what) | Loss::Data(what) => anyhow::anyhow!(what),
    })?;
    let kinds = world.events(&id).await?;
    let of = |kind: &str| kinds.iter().filter(|event| event["kind"] == kind).cloned().collect::<Vec<_>>();
    if let Some(lost) = of("run_lost").first() {
        bail!("a run was lost: {lost}");
    }
    let unquiesced = of("suspended").iter().filter(|event| !event["detail"].is_null()).count();
    silenced.unquiesced = unquiesced as u64;
    Ok(())
}
