//! A sandbox in which everything is tried at once that root inside can do to others: what a neighbour, the API and the host
//! notice of it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dorm_testing::{Daemon, until};
use serde_json::{Value, json};

use super::{Row, millis};

/// What root inside does.
const ATTACK: &str = include_str!("attack/attack.py");
const ATTACKED: Duration = Duration::from_secs(600);
/// How long the same is measured before and after.
const ALONE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(300);
const MEMORY: u64 = 512 << 20;
const DISK: u64 = 256 << 20;
/// The promise for the daemon's memory, in MiB.
const DAEMON_MIB_MAX: f64 = 150.0;
const SLOWER_MAX: f64 = 3.0;
const MIB: f64 = 1_048_576.0;

/// Measures a neighbour and the API alone and under attack, and what the daemon and the disk are made to take.
pub(super) async fn attack(daemon: &Daemon) -> Result<Vec<Row>> {
    let neighbour = daemon.create(json!({ "name": "neighbour", "image": "base" })).await?;
    let hostile =
        json!({ "name": "hostile", "image": "base", "resources": { "memory_bytes": MEMORY, "disk_bytes": DISK } });
    let hostile = daemon.create(hostile).await?;
    daemon.write(&hostile, "/root/attack.py", ATTACK.as_bytes().to_vec()).await?;
    let mut rows = [
        Row::new("exec of true beside a hostile sandbox, and alone", SLOWER_MAX),
        Row::new("the slowest twentieth of them", SLOWER_MAX),
        Row::new("list of sandboxes beside a hostile sandbox, and alone", SLOWER_MAX),
        Row::new("the slowest twentieth of them", SLOWER_MAX),
    ];
    eprintln!("bench: a neighbour alone, for {} s", ALONE.as_secs());
    let mut alone = measure(daemon, &neighbour, ALONE).await?;
    let before = bytes_below(daemon.data());
    let argv = ["python3", "/root/attack.py", &ATTACKED.as_secs().to_string()];
    daemon.post(&format!("/sandboxes/{hostile}/processes"), json!({ "argv": argv })).await?;
    eprintln!("bench: the same beside a hostile sandbox, for {} s", ATTACKED.as_secs());
    let (attacked, watched) =
        tokio::join!(measure(daemon, &neighbour, ATTACKED), watch(daemon, &hostile, Instant::now() + ATTACKED));
    let (attacked, (memory, disk)) = (attacked?, watched?);
    let counts = counts(daemon, &hostile).await?;
    eprintln!("bench: what was done inside: {counts}");
    daemon.post(&format!("/sandboxes/{hostile}/terminate"), json!({})).await?;
    eprintln!("bench: the neighbour alone again, for {} s", ALONE.as_secs());
    let after = measure(daemon, &neighbour, ALONE).await?;
    daemon.post(&format!("/sandboxes/{neighbour}/terminate"), json!({})).await?;
    alone.exec.extend(after.exec);
    alone.list.extend(after.list);
    for (at, ours, peer) in [(0, attacked.exec, alone.exec), (2, attacked.list, alone.list)] {
        rows[at + 1].ours.push(slowest_twentieth(&ours));
        rows[at + 1].peer.push(slowest_twentieth(&peer));
        rows[at].ours.extend(ours);
        rows[at].peer.extend(peer);
    }
    let mut daemons = Row::new("MiB of memory of the daemon meanwhile, and the promise", 1.0);
    daemons.ours.push(memory);
    daemons.peer.push(DAEMON_MIB_MAX);
    let mut disks = Row::new("MiB more on the host's disk at most, and the sandbox's disk", 1.0);
    disks.ours.push(disk.saturating_sub(before) as f64 / MIB);
    disks.peer.push(DISK as f64 / MIB);
    Ok(rows.into_iter().chain([daemons, disks]).collect())
}

#[derive(Default)]
struct Times {
    exec: Vec<f64>,
    list: Vec<f64>,
}

/// Asks for both again and again for so long.
async fn measure(daemon: &Daemon, neighbour: &str, time: Duration) -> Result<Times> {
    let end = Instant::now() + time;
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

/// The most memory of the daemon in MiB and the most bytes in its directory until `end`. Every two minutes the owner takes
/// a snapshot of the hostile sandbox's files, if it can be had.
async fn watch(daemon: &Daemon, hostile: &str, end: Instant) -> Result<(f64, u64)> {
    const LOOKS: usize = 120;
    let (mut memory, mut disk) = (0.0_f64, 0);
    let mut looks = 0;
    while Instant::now() < end {
        looks += 1;
        memory = memory.max(resident_mib(daemon.pid())?);
        if looks % 10 == 0 {
            disk = disk.max(bytes_below(daemon.data()));
        }
        if looks % LOOKS == 0 {
            let path = format!("/sandboxes/{hostile}/checkpoint");
            let taken = daemon.try_ask(reqwest::Method::POST, &path, Some(json!({ "kind": "filesystem" }))).await?;
            eprintln!("bench: a snapshot of its files: {}", taken.status);
            if let Some(id) = taken.body["id"].as_str() {
                daemon.ask(reqwest::Method::DELETE, &format!("/snapshots/{id}"), None).await?;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok((memory, disk))
}

/// What was done inside; each attack did something.
async fn counts(daemon: &Daemon, hostile: &str) -> Result<Value> {
    let path = format!("/sandboxes/{hostile}/exec");
    let read = || async {
        let asked = json!({ "argv": ["cat", "/root/counts"] });
        let answer = daemon.try_ask(reqwest::Method::POST, &path, Some(asked)).await?;
        Ok::<_, anyhow::Error>(answer.body["stdout"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok()))
    };
    until(PATIENCE, "the attack is over", || async { Ok(read().await?.is_some()) }).await?;
    let counts = read().await?.context("the counts were there a moment ago")?;
    let idle: Vec<_> =
        counts.as_object().into_iter().flatten().filter(|(_, count)| count.as_u64() == Some(0)).collect();
    ensure!(idle.is_empty() && counts.is_object(), "these attacks did nothing: {idle:?}");
    Ok(counts)
}

fn slowest_twentieth(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() * 19 / 20).copied().unwrap_or(f64::NAN)
}

fn resident_mib(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("read the daemon's status")?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map(|kib: f64| kib / 1024.0).context("the daemon has no memory")
}

/// What the files below `directory` take of the disk.
fn bytes_below(directory: &Path) -> u64 {
    let output = std::process::Command::new("du").args(["-sxB1"]).arg(directory).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}
