//! Measures what a neighbour, the API and the host notice of a sandbox in which root tries
//! everything at once that could affect others.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::json;

use super::millis;
use super::rows::{Row, Unit};
use super::stage::resident_mib;

/// The attacks of root in the sandbox.
const ATTACK: &str = include_str!("attack/attack.py");
const ATTACKED: Duration = Duration::from_secs(600);
/// How long one hostile sandbox attacks before the next one.
const ROUND: Duration = Duration::from_secs(100);
/// How much memory a hostile sandbox takes that must stay alive, in MiB.
const MODERATE_MIB: u64 = 200;
const POST: Method = Method::POST;
const DELETE: Method = Method::DELETE;
/// How long the same is measured before and after the attack.
const ALONE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);
const MEMORY: u64 = 512 << 20;
const DISK: u64 = 256 << 20;
/// The memory of a sandbox while it is saved: four limits and 1 GiB (docs/threat-model.md).
const SAVING: u64 = 4 * MEMORY + (1 << 30);
/// The promise for the daemon's memory, in MiB.
const DAEMON_MIB_MAX: f64 = 150.0;
const SLOWER_MAX: f64 = 3.0;
const MIB: f64 = 1_048_576.0;

/// Measures a neighbour and the API alone and under attack, and what the daemon and the disk have
/// to take.
pub(super) async fn attack(daemon: &Daemon, table: &mut Vec<Row>) -> Result<()> {
    let neighbour = daemon.create(json!({ "name": "neighbour", "image": "base" })).await?;
    let mut rows = [
        Row::new("exec of true beside a hostile sandbox", SLOWER_MAX).beside("alone"),
        Row::new("the slowest twentieth of them", SLOWER_MAX).beside("alone"),
        Row::new("list of sandboxes beside a hostile sandbox", SLOWER_MAX).beside("alone"),
        Row::new("the slowest twentieth of them", SLOWER_MAX).beside("alone"),
    ];
    eprintln!("bench: a neighbour alone, for {} s", ALONE.as_secs());
    let mut alone = measure(daemon, &neighbour, Instant::now() + ALONE).await?;
    let before = bytes_below(daemon.data());
    eprintln!("bench: the same beside a hostile sandbox, for {} s", ATTACKED.as_secs());
    let end = Instant::now() + ATTACKED;
    let saving = AtomicBool::new(false);
    let (attacked, watched, done) =
        tokio::join!(measure(daemon, &neighbour, end), watch(daemon, end, &saving), attack_until(daemon, end, &saving));
    let (attacked, peaks, done) = (attacked?, watched?, done?);
    eprintln!("bench: attacks: {done:?}");
    eprintln!("bench: the neighbour alone again, for {} s", ALONE.as_secs());
    let after = measure(daemon, &neighbour, Instant::now() + ALONE).await?;
    daemon.post(&format!("/sandboxes/{neighbour}/terminate"), json!({})).await?;
    alone.exec.extend(after.exec);
    alone.list.extend(after.list);
    for (at, ours, peer) in [(0, attacked.exec, alone.exec), (2, attacked.list, alone.list)] {
        rows[at + 1].ours.push(slowest_twentieth(&ours));
        rows[at + 1].peer.push(slowest_twentieth(&peer));
        rows[at].ours.extend(ours);
        rows[at].peer.extend(peer);
    }
    let mut daemons = Row::at_most("memory of the daemon meanwhile", DAEMON_MIB_MAX).unit(Unit::Mib);
    daemons.ours.push(peaks.memory_mib);
    let mut disks = Row::new("growth of the host's disk at most", 1.0).unit(Unit::Mib).beside("the sandbox's disk");
    disks.ours.push(peaks.disk.saturating_sub(before) as f64 / MIB);
    disks.peer.push(DISK as f64 / MIB);
    let mut saved = Row::new("the same during snapshots by its owner", 1.0)
        .unit(Unit::Mib)
        .beside("the memory it may have for that");
    saved.ours.push(peaks.disk_while_saving.saturating_sub(before) as f64 / MIB);
    saved.peer.push((SAVING + 2 * DISK) as f64 / MIB);
    table.extend(rows.into_iter().chain([daemons, disks, saved]));
    let idle: Vec<_> = done.iter().filter(|(_, count)| **count == 0).collect();
    ensure!(!done.is_empty() && idle.is_empty(), "these attacks had no effect: {idle:?} of {done:?}");
    Ok(())
}

/// Runs one hostile sandbox after the other, each with all attacks. Every other one takes more
/// memory than it has, for which its kernel may end it. In the middle of each, the owner takes a
/// snapshot of its files if possible. Returns how often each attack succeeded.
async fn attack_until(daemon: &Daemon, end: Instant, saving: &AtomicBool) -> Result<BTreeMap<String, u64>> {
    let mut sums = BTreeMap::new();
    for round in 0_u32.. {
        let left = end.saturating_duration_since(Instant::now());
        if left < ROUND / 2 {
            break;
        }
        let time = left.min(ROUND);
        let resources = json!({ "memory_bytes": MEMORY, "disk_bytes": DISK });
        let asked = json!({ "name": format!("hostile{round}"), "image": "base", "resources": resources });
        let hostile = daemon.create(asked).await?;
        daemon.write(&hostile, "/root/attack.py", ATTACK.as_bytes().to_vec()).await?;
        let memory = if round % 2 == 0 { MODERATE_MIB } else { MEMORY >> 20 };
        let argv = ["python3", "/root/attack.py", &time.as_secs().to_string(), &memory.to_string()];
        daemon.post(&format!("/sandboxes/{hostile}/processes"), json!({ "argv": argv })).await?;
        tokio::time::sleep(time / 2).await;
        saving.store(true, Ordering::SeqCst);
        let taken = daemon
            .try_ask(POST, &format!("/sandboxes/{hostile}/checkpoint"), Some(json!({ "kind": "filesystem" })))
            .await?;
        if let Some(id) = taken.body["id"].as_str() {
            daemon.ask(DELETE, &format!("/snapshots/{id}"), None).await?;
        }
        saving.store(false, Ordering::SeqCst);
        tokio::time::sleep(time / 2).await;
        let said = counts(daemon, &hostile).await?;
        let ended = daemon.describe(&hostile).await?["state"] != "running";
        eprintln!(
            "bench: hostile sandbox {round}: {}, a snapshot of its files: {}, its counts: {}",
            if ended { "ended" } else { "running" },
            taken.status,
            if said.is_some() { "read" } else { "missing" }
        );
        for (attack, count) in said.unwrap_or_default() {
            *sums.entry(attack).or_default() += count;
        }
        if !ended {
            daemon.post(&format!("/sandboxes/{hostile}/terminate"), json!({})).await?;
        }
    }
    Ok(sums)
}

#[derive(Default)]
struct Times {
    exec: Vec<f64>,
    list: Vec<f64>,
}

/// Repeats both requests until `end`.
async fn measure(daemon: &Daemon, neighbour: &str, end: Instant) -> Result<Times> {
    let mut times = Times::default();
    while Instant::now() < end {
        let began = Instant::now();
        ensure!(daemon.exec(neighbour, &["true"]).await?.0 == 0, "true failed");
        times.exec.push(millis(began));
        let began = Instant::now();
        daemon.get("/sandboxes").await?;
        times.list.push(millis(began));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(times)
}

/// The most that the daemon and its directory took.
#[derive(Default)]
struct Peaks {
    memory_mib: f64,
    /// The size of the directory in bytes while no snapshot was in progress.
    disk: u64,
    disk_while_saving: u64,
}

/// Looks at the daemon and its directory until `end`.
async fn watch(daemon: &Daemon, end: Instant, saving: &AtomicBool) -> Result<Peaks> {
    let mut peaks = Peaks::default();
    while Instant::now() < end {
        peaks.memory_mib = peaks.memory_mib.max(resident_mib(daemon.pid())?);
        let was_saving = saving.load(Ordering::SeqCst);
        let bytes = bytes_below(daemon.data());
        let peak =
            if was_saving || saving.load(Ordering::SeqCst) { &mut peaks.disk_while_saving } else { &mut peaks.disk };
        *peak = bytes.max(*peak);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    Ok(peaks)
}

/// Returns the counts of attacks so far, or none if the sandbox cannot write them or has ended.
async fn counts(daemon: &Daemon, hostile: &str) -> Result<Option<BTreeMap<String, u64>>> {
    let path = format!("/sandboxes/{hostile}/files?path=/root/counts");
    let answer = daemon.request(Method::GET, &path).timeout(PATIENCE).send().await;
    let Ok(answer) = answer else { return Ok(None) };
    Ok(serde_json::from_slice(&answer.bytes().await.unwrap_or_default()).ok())
}

fn slowest_twentieth(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() * 19 / 20).copied().unwrap_or(f64::NAN)
}

/// Returns the disk space of the files below `directory`.
fn bytes_below(directory: &Path) -> u64 {
    let output = std::process::Command::new("du").args(["-sxB1"]).arg(directory).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}
