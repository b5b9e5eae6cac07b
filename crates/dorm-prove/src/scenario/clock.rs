//! The wall clock is set by a year, forwards and backwards, with a running daemon and without one:
//! nothing is deleted, and no sandbox is suspended or ended for that.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::host::word;
use crate::probe::Probe;
use crate::report::Kind;
use crate::world::{Fault, Stage, WarmContainers, World, fault};

const YEAR: i64 = 365 * 86_400;
/// The shifts of the clock in seconds, one after the other.
const SHIFTS: [i64; 5] = [YEAR, 0, -YEAR, 60, 0];
/// How long a daemon is watched for mistakes after the clock was set.
const WATCHED: Duration = Duration::from_secs(2);
const HOUR: u64 = 3600;

/// The sandboxes and snapshots that must stay.
struct Cast {
    named: Probe,
    ephemeral: Probe,
    asleep: Probe,
    snapshots: Vec<String>,
}

pub(super) async fn run(world: &mut World) -> Result<(u64, Vec<Fault>)> {
    let limits = json!({ "timeout_secs": HOUR });
    let named = world.create(json!({ "name": "by-the-clock", "timeout_secs": HOUR })).await?;
    let ephemeral = world.create(json!({ "timeout_secs": HOUR })).await?;
    let asleep = world.sleeper(Stage::Evicted).await?;
    let asked = json!({ "kind": "memory", "expires_secs": 24 * HOUR });
    let taken = world.daemon.post(&format!("/sandboxes/{}/checkpoint", named.id), asked).await?;
    let older = world.daemon.checkpoint(&asleep.id, "memory").await?;
    let mut cast = Cast { named, ephemeral, asleep, snapshots: vec![word(&taken, "id"), word(&older, "id")] };
    let (mut faults, mut count) = (Vec::new(), 0);
    let clock = world.clock_file();
    for shift in SHIFTS {
        for is_down in [false, true] {
            if is_down {
                std::fs::write(&clock, "0").context("set the clock back")?;
                tokio::time::sleep(WATCHED).await;
                world.daemon.kill()?;
            }
            std::fs::write(&clock, shift.to_string()).context("set the clock")?;
            if is_down {
                world.start_again(WarmContainers::None).context("start with another clock")?;
            }
            count += 1;
            tokio::time::sleep(WATCHED).await;
            let wrong = changed(world, &mut cast, &limits).await?;
            let how = if is_down { "while it was down" } else { "while it ran" };
            faults
                .extend(wrong.into_iter().map(|(kind, what)| (kind, format!("clock set by {shift} s {how}: {what}"))));
        }
        if !faults.is_empty() {
            break;
        }
    }
    std::fs::write(&clock, "0").context("set the clock back")?;
    world.daemon.act(&cast.asleep.id, "resume").await?;
    faults.extend(cast.asleep.is_whole(&world.daemon).await.err().map(fault));
    for id in [&cast.named.id, &cast.ephemeral.id] {
        world.daemon.act(id, "terminate").await?;
    }
    for snapshot in &cast.snapshots {
        world.forget(snapshot).await?;
    }
    world.sleeper = Some(cast.asleep).filter(|_| faults.is_empty());
    faults.extend(world.settle().await?);
    Ok((count, faults))
}

/// The sandboxes and snapshots that have changed.
async fn changed(world: &World, cast: &mut Cast, limits: &Value) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for probe in [&mut cast.named, &mut cast.ephemeral] {
        let view = world.daemon.describe(&probe.id).await?;
        if view["state"] != "running" || view["timeout_secs"].as_f64() != limits["timeout_secs"].as_f64() {
            let what = format!("sandbox {} is {}, with a limit of {}", probe.id, view["state"], view["timeout_secs"]);
            faults.push((Kind::SandboxLost, what));
            continue;
        }
        faults.extend(probe.is_whole(&world.daemon).await.err().map(fault));
    }
    let view = world.daemon.describe(&cast.asleep.id).await?;
    if view["state"] != "suspended" {
        faults.push((Kind::SandboxLost, format!("sandbox {} is {}", cast.asleep.id, view["state"])));
    }
    let there = world.records().await?.snapshots;
    for snapshot in &cast.snapshots {
        if !there.iter().any(|found| found["id"] == snapshot.as_str() && found["status"] == "completed") {
            faults.push((Kind::DataLost, format!("snapshot {snapshot} is gone, which was to be kept")));
        }
    }
    Ok(faults)
}
