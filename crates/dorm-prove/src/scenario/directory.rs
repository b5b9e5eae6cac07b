//! A data directory without its database, a copy of one, and one that is moved: sandboxes that run
//! continue unchanged.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use dorm_testing::Daemon;
use serde_json::json;

use crate::host::PATH;
use crate::probe::Probe;
use crate::report::Kind;
use crate::world::{Fault, Stage, Wake, WarmContainers, World, fault, said};

/// The files of the SQLite database.
const DATABASE: [&str; 3] = ["dormouse.db", "dormouse.db-wal", "dormouse.db-shm"];

/// Removes the database, and starts another daemon on a copy; each while a sandbox runs.
pub(super) async fn run(world: &mut World) -> Result<(u64, Vec<Fault>)> {
    let mut probe = world.sleeper(Stage::Running).await?;
    let mut faults = world.settle().await?;
    faults.extend(lost(world)?);
    faults.extend(world.settle().await?);
    faults.extend(probe.is_whole(&world.daemon).await.err().map(fault));
    faults.extend(copied(world)?);
    faults.extend(world.settle().await?);
    faults.extend(probe.is_whole(&world.daemon).await.err().map(fault));
    world.restart(WarmContainers::None).context("start again beside a copy that is gone")?;
    faults.extend(world.settle().await?);
    faults.extend(probe.is_whole(&world.daemon).await.err().map(fault));
    faults.extend(world.standing(Wake::Nobody).await);
    world.sleeper = Some(probe).filter(|_| faults.is_empty());
    Ok((2, faults))
}

/// Moves the directory while its sandboxes run and sleep, uses them there, and moves it back.
pub(super) async fn moved(world: &mut World) -> Result<(u64, Vec<Fault>)> {
    let mut probe = world.sleeper(Stage::Running).await?;
    let name = format!("moved-{}", world.number());
    let mut asleep = world.create(json!({ "name": name })).await?;
    world.bring(&mut asleep, Stage::Parked).await.map_err(said)?;
    let mut faults = world.settle().await?;
    world.daemon.kill()?;
    let (data, elsewhere) = (world.traces.data.clone(), world.directory.join("elsewhere"));
    std::fs::rename(&data, &elsewhere).context("move the data directory")?;
    let (dorm, images) = (world.daemon.program(), world.daemon.images());
    let log = world.directory.join("elsewhere.log");
    let there = match Daemon::start(dorm, &elsewhere, images, &log, &["--warm-containers", "0"]) {
        Ok(mut daemon) => {
            let used = used(&daemon, [&mut probe, &mut asleep]).await;
            daemon.kill()?;
            used
        }
        Err(error) => Err((Kind::SandboxLost, format!("no daemon starts on a moved directory: {error:#}"))),
    };
    std::fs::rename(&elsewhere, &data).context("move the data directory back")?;
    faults.extend(there.err());
    world.start_again(WarmContainers::None).context("start where the directory was before")?;
    // Their processes were started with the other path and report it; later ones report this one.
    faults.extend(used(&world.daemon, [&mut probe, &mut asleep]).await.err());
    world.daemon.act(&asleep.id, "terminate").await?;
    faults.extend(world.settle().await?);
    faults.extend(world.standing(Wake::Nobody).await);
    world.sleeper = Some(probe).filter(|_| faults.is_empty());
    Ok((2, faults))
}

/// Checks that both are unchanged, also after a sleep.
async fn used(daemon: &Daemon, probes: [&mut Probe; 2]) -> Result<(), Fault> {
    let wrong = |error: anyhow::Error| (Kind::SandboxLost, format!("{error:#}"));
    for probe in probes {
        daemon.act(&probe.id, "resume").await.map_err(wrong)?;
        probe.is_whole(daemon).await.map_err(fault)?;
        daemon.act(&probe.id, "suspend").await.map_err(wrong)?;
        daemon.act(&probe.id, "evict").await.map_err(wrong)?;
        daemon.act(&probe.id, "resume").await.map_err(wrong)?;
        probe.is_whole(daemon).await.map_err(fault)?;
    }
    Ok(())
}

/// A daemon that finds data without a database does not create a new database.
fn lost(world: &mut World) -> Result<Vec<Fault>> {
    world.daemon.kill()?;
    let (data, aside) = (world.traces.data.clone(), world.directory.join("aside"));
    std::fs::create_dir_all(&aside)?;
    let moved = |from: &Path, to: &Path| -> Result<()> {
        for name in DATABASE.iter().filter(|name| from.join(name).exists()) {
            std::fs::rename(from.join(name), to.join(name)).with_context(|| format!("move {name}"))?;
        }
        Ok(())
    };
    moved(&data, &aside)?;
    let started = world.start_again(WarmContainers::None);
    if started.is_ok() {
        world.daemon.kill()?;
    }
    for name in DATABASE {
        let _ = std::fs::remove_file(data.join(name));
    }
    moved(&aside, &data)?;
    world.start_again(WarmContainers::None).context("start with the database put back")?;
    let what = "a daemon began a new database beside sandboxes that run".to_owned();
    Ok(started.is_ok().then_some((Kind::WrongAnswer, what)).into_iter().collect())
}

/// A daemon on a copy of the directory does not start while the original's sandboxes run.
fn copied(world: &World) -> Result<Vec<Fault>> {
    let copy = world.directory.join("copy");
    let mut command = Command::new("cp");
    command.args(["-a", "-x", "--sparse=always"]).arg(&world.traces.data).arg(&copy).env("PATH", PATH);
    let output = command.output().context("copy the data directory")?;
    if !copy.join(DATABASE[0]).is_file() {
        bail!("copy the data directory: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let (dorm, images) = (world.daemon.program(), world.daemon.images());
    let log = world.directory.join("copy.log");
    let mut faults = Vec::new();
    if let Ok(mut other) = Daemon::start(dorm, &copy, images, &log, &["--warm-containers", "0"]) {
        faults
            .push((Kind::WrongAnswer, "a daemon started on a copy of a directory with sandboxes that run".to_owned()));
        other.kill()?;
    }
    std::fs::remove_dir_all(&copy).with_context(|| format!("remove {}", copy.display()))?;
    Ok(faults)
}
