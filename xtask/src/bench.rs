//! `cargo xtask bench`: compares Dormouse, through its HTTP API, with bare `runsc` on the same root
//! file system, alternating in the same run. Absolute times mean little on a noisy machine; the
//! promises are ratios.

mod attack;
mod build;
mod images;
mod lineage;
mod peer;
mod scale;
mod store;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use dorm_testing::{Daemon, until};
use peer::Peer;

const ROUNDS: usize = 7;
const PATIENCE: Duration = Duration::from_secs(120);

/// Touches 256 MiB that cannot be compressed, reports that, and keeps running.
pub(crate) const TOUCH: &str = "import os,time\n\
    held=[os.urandom(1<<20) for _ in range(256)]\n\
    open('/root/touched','w').close()\n\
    time.sleep(100000)\n";

/// A part of the bench.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Create, exec, suspend, resume.
    Lifecycle,
    /// Ten forks.
    Fork,
    /// Snapshots of files.
    Files,
    /// Rewinds to a snapshot.
    Rewind,
    /// Building images.
    Build,
    /// The resource use of an idle daemon.
    Idle,
    /// Many sandboxes, many deadlines, many requests.
    Scale,
    /// The import of a large image, and the memory it needs.
    Images,
    /// The service on an empty store and on one with a million sandboxes.
    Store,
    /// A hostile sandbox and its neighbour, for twelve minutes.
    Attack,
}

struct Row {
    name: String,
    ours: Vec<f64>,
    peer: Vec<f64>,
    limit: f64,
}

impl Row {
    fn new(name: impl Into<String>, limit: f64) -> Self {
        Self { name: name.into(), ours: Vec::new(), peer: Vec::new(), limit }
    }

    fn ratio(&self) -> f64 {
        median(&self.ours) / median(&self.peer)
    }
}

/// Runs the bench, or `only` some parts of it, and prints its table. Writes the rows to `json` if
/// given.
pub(crate) async fn run(dorm: &Path, images: &Path, only: &[Part], json_file: Option<&Path>) -> Result<()> {
    let wanted = |part| only.is_empty() || only.contains(&part);
    let directory = std::env::temp_dir().join(format!("dormouse-bench-{}", std::process::id()));
    let log = std::env::temp_dir().join("dorm-bench.log");
    let mut daemon = Daemon::start(dorm, &directory.join("data"), images, &log, &[])?;
    let peer = Peer::new(&directory.join("peer"), &rootfs(&daemon, images).await?)?;
    let mut rows = Vec::new();
    let measured = async {
        if wanted(Part::Lifecycle) {
            rows.extend(measure(&daemon, &peer).await?);
        } else {
            warm(&daemon).await?;
        }
        if wanted(Part::Fork) {
            rows.push(fork(&daemon, &peer).await?);
        }
        if wanted(Part::Files) {
            rows.extend(lineage::files(&daemon).await?);
        }
        if wanted(Part::Rewind) {
            rows.extend(lineage::rewind(&daemon).await?);
        }
        if wanted(Part::Build) {
            rows.extend(build::build(&daemon, dorm, &directory).await?);
        }
        if wanted(Part::Images) {
            rows.extend(images::import(&daemon, &directory).await?);
        }
        let idle = if wanted(Part::Idle) { idle(&daemon).await? } else { String::new() };
        if wanted(Part::Scale) {
            scale::real(&mut daemon, &mut rows).await?;
            rows.push(scale::fake(&dorm.with_file_name("dorm-sim"))?);
        }
        if wanted(Part::Store) {
            rows.extend(store::on_full_store(dorm, &directory.join("stores"))?);
        }
        if wanted(Part::Attack) {
            attack::attack(&daemon, &mut rows).await?;
        }
        Ok::<_, anyhow::Error>(idle)
    };
    let idle = measured.await;
    peer.clear();
    let ended = daemon.end().await;
    let _ = std::fs::remove_dir_all(&directory);
    // Print what was measured before a failure.
    print(&rows);
    if let Some(path) = json_file {
        write(&rows, path)?;
    }
    println!("{}", idle?);
    ended
}

async fn rootfs(daemon: &Daemon, images: &Path) -> Result<PathBuf> {
    let list = daemon.get("/images").await?;
    let base = list["images"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|image| image["tags"].as_array().is_some_and(|tags| tags.iter().any(|tag| tag == "base")));
    let digest = base.and_then(|image| image["digest"].as_str()).context("there is no image 'base'")?;
    Ok(images.join(digest).join("rootfs"))
}

async fn measure(daemon: &Daemon, peer: &Peer) -> Result<Vec<Row>> {
    let mut create = Row::new("create to first exec", 0.5);
    let mut exec = Row::new("exec of true", 0.5);
    let mut suspend = Row::new("suspend 256 MiB", 0.5);
    let mut parked = Row::new("resume parked to first exec", 0.15);
    let mut evicted = Row::new("resume evicted to first exec", 0.7);
    warm(daemon).await?;
    for round in 0..ROUNDS {
        eprintln!("bench: round {} of {ROUNDS}", round + 1);
        let (id, took) = first_exec(daemon, round).await?;
        create.ours.push(took);
        let (bare, took) = peer.first_exec(round)?;
        create.peer.push(took);
        for _ in 0..5 {
            let began = Instant::now();
            ensure!(daemon.exec(&id, &["true"]).await?.0 == 0, "true failed");
            exec.ours.push(millis(began));
            exec.peer.push(peer.exec(&bare)?);
        }
        touch(daemon, &id).await?;
        peer.touch(&bare)?;
        // One side must not pay for what the other, as the peer does, leaves unwritten.
        rustix::fs::sync();
        let began = Instant::now();
        daemon.post(&format!("/sandboxes/{id}/suspend"), json!({})).await?;
        suspend.ours.push(millis(began));
        parked.ours.push(resume(daemon, &id).await?);
        daemon.post(&format!("/sandboxes/{id}/suspend"), json!({})).await?;
        daemon.post(&format!("/sandboxes/{id}/evict"), json!({})).await?;
        evicted.ours.push(resume(daemon, &id).await?);
        daemon.post(&format!("/sandboxes/{id}/terminate"), json!({})).await?;
        rustix::fs::sync();
        suspend.peer.push(peer.checkpoint(&bare)?);
        let took = peer.restore(&bare)?;
        parked.peer.push(took);
        evicted.peer.push(took);
        peer.end(&bare);
    }
    Ok(vec![create, exec, suspend, parked, evicted])
}

/// Compares ten children, all of which answer, with ten restores one after another.
async fn fork(daemon: &Daemon, peer: &Peer) -> Result<Row> {
    const CHILDREN: usize = 10;
    let mut row = Row::new("fork 256 MiB into 10, all answer", 0.6);
    let (id, _) = first_exec(daemon, 2000).await?;
    let (bare, _) = peer.first_exec(2000)?;
    touch(daemon, &id).await?;
    peer.touch(&bare)?;
    peer.checkpoint(&bare)?;
    for round in 0..3 {
        eprintln!("bench: fork, round {} of 3", round + 1);
        let began = Instant::now();
        let forked = daemon.post(&format!("/sandboxes/{id}/fork"), json!({ "count": CHILDREN })).await?;
        let mut children = Vec::new();
        for child in forked["children"].as_array().context("children")? {
            children.push(child["sandbox"]["id"].as_str().with_context(|| format!("no child: {child}"))?.to_owned());
        }
        for child in &children {
            ensure!(daemon.exec(child, &["true"]).await?.0 == 0, "true failed");
        }
        row.ours.push(millis(began));
        for child in &children {
            daemon.post(&format!("/sandboxes/{child}/terminate"), json!({})).await?;
        }
        row.peer.push(peer.restore_many(&bare, CHILDREN)?);
    }
    peer.end(&bare);
    daemon.post(&format!("/sandboxes/{id}/terminate"), json!({})).await?;
    Ok(row)
}

/// The first create of an image boots its template, which is not to be measured.
async fn warm(daemon: &Daemon) -> Result<()> {
    for round in 0..3 {
        let (id, _) = first_exec(daemon, 1000 + round).await?;
        daemon.post(&format!("/sandboxes/{id}/terminate"), json!({})).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    Ok(())
}

async fn first_exec(daemon: &Daemon, round: usize) -> Result<(String, f64)> {
    let began = Instant::now();
    let asked =
        json!({ "name": format!("bench{round}"), "image": "base", "resources": { "memory_bytes": 1u64 << 30 } });
    let created = daemon.post("/sandboxes", asked).await?;
    let id = created["id"].as_str().context("id")?.to_owned();
    ensure!(daemon.exec(&id, &["true"]).await?.0 == 0, "true failed");
    Ok((id, millis(began)))
}

async fn touch(daemon: &Daemon, id: &str) -> Result<()> {
    let process = json!({ "argv": ["python3", "-c", TOUCH] });
    daemon.post(&format!("/sandboxes/{id}/processes"), process).await?;
    until(PATIENCE, "256 MiB are touched", || async {
        Ok(daemon.exec(id, &["test", "-e", "/root/touched"]).await?.0 == 0)
    })
    .await
}

async fn resume(daemon: &Daemon, id: &str) -> Result<f64> {
    let began = Instant::now();
    daemon.post(&format!("/sandboxes/{id}/resume"), json!({})).await?;
    ensure!(daemon.exec(id, &["true"]).await?.0 == 0, "true failed");
    Ok(millis(began))
}

/// Returns what the daemon itself uses while it is idle.
async fn idle(daemon: &Daemon) -> Result<String> {
    let pid = daemon.pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("read the daemon's status")?;
    let resident = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("VmRSS: ?");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = ticks(pid)?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let used = ticks(pid)? - before;
    let resident = resident.trim_start_matches("VmRSS:").trim();
    Ok(format!("idle daemon: {resident} resident (limit 60 MiB), {} ms of CPU in 10 s", used * 10))
}

fn ticks(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("read the daemon's times")?;
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let tick = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Ok(tick(11) + tick(12))
}

fn millis(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1000.0
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    let digits = if median(values) < 10.0 { 2 } else { 0 };
    format!("{:.digits$} ({least:.digits$}–{most:.digits$})", median(values))
}

fn print(rows: &[Row]) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header([
        "what",
        "dorm ms (spread)",
        "peer ms (spread)",
        "ratio",
        "limit",
        "",
    ]);
    for row in rows {
        let verdict = if row.ratio() <= row.limit { "holds" } else { "missed" };
        table.add_row([
            row.name.clone(),
            spread(&row.ours),
            spread(&row.peer),
            format!("{:.2}", row.ratio()),
            format!("{:.2}", row.limit),
            verdict.to_owned(),
        ]);
    }
    println!("{table}");
}

fn write(rows: &[Row], path: &Path) -> Result<()> {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "name": row.name,
                "median_ms": median(&row.ours),
                "peer_median_ms": median(&row.peer),
                "ratio": row.ratio(),
                "limit": row.limit,
            })
        })
        .collect();
    std::fs::write(path, serde_json::to_string_pretty(&rows)?).with_context(|| format!("write {}", path.display()))
}
