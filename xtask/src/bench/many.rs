//! Many sandboxes that do nothing: their CPU time, what a create beside them takes, the cost of
//! parked ones, and how many run until the daemon refuses more.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::{Value, json};

use super::guest::{answers, is_in, prepared, warm};
use super::millis;
use super::rows::{Row, Unit};
use super::stage::{Groups, NO_CPU_TIME, Stage};

/// How many idle sandboxes are measured, and how many containers of the peer.
const IDLE: usize = 50;
const IDLE_PEER: usize = 10;
/// Beside how many another one is created.
const BESIDE: usize = 100;
/// CPU time per idle sandbox and second, in milliseconds.
const CPU_MS: f64 = 1.0;
/// How long CPU time is counted, after a time in which everything calms down.
const COUNTED: Duration = Duration::from_secs(20);
const CALM: Duration = Duration::from_secs(10);
/// Limits of the sandboxes.
const MIB: u64 = 128;
/// The most that density counts up to.
const DENSITY_MAX: usize = 150;

/// Measures idle running sandboxes and a create beside them.
pub(super) async fn idle(stage: &Stage) -> Result<Vec<Row>> {
    let mut cpu =
        Row::at_most(format!("CPU of each of {IDLE} idle running sandboxes; each of {IDLE_PEER} of runsc"), CPU_MS)
            .unit(Unit::CpuMs)
            .plotted("idle", "idle");
    let mut beside = Row::new("the 101st create to first exec", 1.5).beside("the first ones");
    stage
        .with_daemon(&stage.path("idle"), &[], async |daemon| {
            warm(daemon).await?;
            for round in 0..stage.rounds(7) {
                beside.peer.push(create_once(daemon, round).await?);
            }
            eprintln!("bench: {IDLE} idle sandboxes");
            for number in 0..IDLE {
                create(daemon, &format!("idle{number}"), MIB).await?;
            }
            tokio::time::sleep(CALM).await;
            cpu.ours = cpu_of_each(&Groups::of(daemon)?, IDLE).await?;
            eprintln!("bench: creates beside {BESIDE} idle sandboxes");
            for number in IDLE..BESIDE {
                create(daemon, &format!("idle{number}"), MIB).await?;
            }
            tokio::time::sleep(CALM).await;
            for round in 0..stage.rounds(7) {
                beside.ours.push(create_once(daemon, 100 + round).await?);
            }
            Ok(())
        })
        .await?;
    eprintln!("bench: {IDLE_PEER} idle containers of runsc");
    let peer = stage.peer_in_group("idle")?;
    for number in 0..IDLE_PEER {
        peer.start(&format!("idle{number}"))?;
    }
    tokio::time::sleep(CALM).await;
    let micros = || peer.group()?.usage()?.cpu_micros.context(NO_CPU_TIME);
    let (before, began) = (micros()?, Instant::now());
    tokio::time::sleep(COUNTED).await;
    cpu.peer.push((micros()? - before) as f64 / 1000.0 / began.elapsed().as_secs_f64() / IDLE_PEER as f64);
    Ok(vec![cpu, beside])
}

/// Returns the CPU time of the `count` busiest containers, in milliseconds per second. The others
/// are warm containers, which are frozen.
async fn cpu_of_each(groups: &Groups, count: usize) -> Result<Vec<f64>> {
    let before = groups.cpu_ms_of_each()?;
    let began = Instant::now();
    tokio::time::sleep(COUNTED).await;
    let after = groups.cpu_ms_of_each()?;
    let seconds = began.elapsed().as_secs_f64();
    let used = after.iter().filter_map(|(name, ms)| {
        let (_, earlier) = before.iter().find(|(other, _)| other == name)?;
        Some((ms - earlier) / seconds)
    });
    let mut used: Vec<f64> = used.collect();
    ensure!(used.len() >= count, "only {} of {count} control groups were found", used.len());
    used.sort_by(|one, other| other.total_cmp(one));
    used.truncate(count);
    Ok(used)
}

async fn create(daemon: &Daemon, name: &str, mib: u64) -> Result<String> {
    daemon.create(asked(name, mib)).await
}

fn asked(name: &str, mib: u64) -> Value {
    json!({ "name": name, "image": "base", "resources": { "memory_bytes": mib << 20, "disk_bytes": 64 << 20 } })
}

/// Creates one more, and ends it when it has answered.
async fn create_once(daemon: &Daemon, round: usize) -> Result<f64> {
    prepared().await;
    let began = Instant::now();
    let id = create(daemon, &format!("once{round}"), MIB).await?;
    answers(daemon, &id).await?;
    let took = millis(began);
    daemon.act(&id, "terminate").await?;
    Ok(took)
}

/// Measures what parked sandboxes use: CPU time, and memory without file cache.
pub(super) async fn parked(stage: &Stage) -> Result<Vec<Row>> {
    let count: usize = if stage.short { 60 } else { 200 };
    let mut cpu = Row::shown(format!("CPU of {count} parked sandboxes and the daemon, all together")).unit(Unit::CpuMs);
    let mut memory =
        Row::shown(format!("memory of {count} parked sandboxes, each, without page cache")).unit(Unit::Mib);
    let options = ["--park-count", "256", "--park-memory-mib", "65536"];
    stage
        .with_daemon(&stage.path("parked"), &options, async |daemon| {
            warm(daemon).await?;
            eprintln!("bench: {count} parked sandboxes");
            let groups = Groups::of(daemon)?;
            let before = groups.sandboxes()?.memory_bytes;
            for number in 0..count {
                let id = create(daemon, &format!("parked{number}"), MIB).await?;
                is_in(daemon, &id, "suspend", "parked").await?;
            }
            tokio::time::sleep(CALM).await;
            let used = groups.sandboxes()?.memory_bytes.saturating_sub(before);
            memory.ours.push(used as f64 / 1_048_576.0 / count as f64);
            let (before, began) = (groups.cpu_ms()?, Instant::now());
            tokio::time::sleep(COUNTED).await;
            cpu.ours.push((groups.cpu_ms()? - before) / began.elapsed().as_secs_f64());
            Ok(())
        })
        .await?;
    Ok(vec![cpu, memory])
}

/// Creates sandboxes until the daemon refuses one, with a budget and with the default.
pub(super) async fn density(stage: &Stage) -> Result<Vec<Row>> {
    const BUDGET_MIB: u64 = 8192;
    let budget = BUDGET_MIB.to_string();
    let limited = until_refused(stage, "density", &["--memory-budget-mib", &budget], 64).await?;
    let default = until_refused(stage, "density-default", &[], 256).await?;
    let expected = BUDGET_MIB / 64;
    let mut running =
        Row::shown("running sandboxes of 64 MiB until refusal, 8 GiB of --memory-budget-mib").unit(Unit::Count);
    running.ours.push(limited.running as f64);
    let mut off = Row::at_most("of these, more or fewer than the budget has room for", 0.0).unit(Unit::Count);
    off.ours.push((expected as f64 - limited.running as f64).abs());
    let mut memory = Row::shown("memory of each of these, without page cache").unit(Unit::Mib);
    memory.ours.push(limited.mib_each);
    let name = match default.refusal {
        Some(_) => "running sandboxes of 256 MiB until refusal, default budget".to_owned(),
        None => format!("running sandboxes of 256 MiB, default budget; not refused up to {DENSITY_MAX}"),
    };
    let mut all = Row::shown(name).unit(Unit::Count);
    all.ours.push(default.running as f64);
    Ok(vec![running, off, memory, all])
}

struct Density {
    running: usize,
    refusal: Option<String>,
    mib_each: f64,
}

async fn until_refused(stage: &Stage, name: &str, options: &[&str], mib: u64) -> Result<Density> {
    stage
        .with_daemon(&stage.path(name), options, async |daemon| {
            warm_small(daemon).await?;
            eprintln!("bench: sandboxes of {mib} MiB until one is refused");
            let groups = Groups::of(daemon)?;
            let before = groups.sandboxes()?.memory_bytes;
            let (mut running, mut refusal) = (0, None);
            while running < DENSITY_MAX && refusal.is_none() {
                let asked = asked(&format!("dense{running}"), mib);
                let answer = daemon.try_ask(Method::POST, "/sandboxes", Some(asked)).await?;
                match answer.status {
                    200..=299 => running += 1,
                    _ => refusal = Some(answer.body["detail"].as_str().unwrap_or_default().to_owned()),
                }
            }
            if let Some(why) = &refusal {
                eprintln!("bench: the daemon refused the one after {running}: {why}");
            }
            let used = groups.sandboxes()?.memory_bytes.saturating_sub(before);
            Ok(Density { running, refusal, mib_each: used as f64 / 1_048_576.0 / running.max(1) as f64 })
        })
        .await
}

/// Boots the template of the image, in a sandbox that any budget has room for.
async fn warm_small(daemon: &Daemon) -> Result<()> {
    let id = create(daemon, "warm", 64).await?;
    answers(daemon, &id).await?;
    daemon.act(&id, "terminate").await.map(drop)
}
