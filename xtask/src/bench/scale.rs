//! The promises for many sandboxes at once: deadlines that are met, a restart that finds every
//! sandbox, one resume for all requests. The limits of times are noted, since they depend on the
//! machine.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dorm_testing::{Daemon, until};
use serde_json::{Value, json};

use super::millis;
use super::rows::{Row, Unit};

const PATIENCE: Duration = Duration::from_secs(300);
/// How late a deadline may be acted on, in milliseconds.
const LATE: f64 = 2000.0;
/// How long a restart may take to find every sandbox, in milliseconds.
const FOUND: f64 = 5000.0;
/// Over how long the deadlines are spread, in seconds.
const MINUTE: f64 = 60.0;

/// Measures on real sandboxes.
pub(super) async fn real(daemon: &mut Daemon, rows: &mut Vec<Row>) -> Result<()> {
    rows.push(deadlines(daemon, 30).await?);
    rows.push(one_resume(daemon).await?);
    daemon.end_sandboxes().await?;
    rows.push(after_a_kill(daemon).await?);
    daemon.end_sandboxes().await
}

async fn create(daemon: &Daemon, name: String, timeout: Option<f64>) -> Result<Value> {
    let resources = json!({ "memory_bytes": 128 << 20, "disk_bytes": 256 << 20 });
    let asked = json!({ "name": name, "image": "base", "resources": resources, "timeout_secs": timeout });
    daemon.post("/sandboxes", asked).await
}

async fn deadlines(daemon: &Daemon, count: u32) -> Result<Row> {
    eprintln!("bench: {count} deadlines on gVisor, spread over a minute");
    let mut row = Row::noted("30 deadlines, gVisor: how late the last one is", LATE);
    let mut ids = Vec::new();
    for number in 0..count {
        // Creating takes a while itself: the first deadline comes when the last sandbox exists.
        let timeout = 20.0 + MINUTE / f64::from(count) * f64::from(number);
        let made = create(daemon, format!("due{number}"), Some(timeout)).await?;
        ids.push(made["id"].as_str().context("id")?.to_owned());
    }
    for id in &ids {
        until(PATIENCE, "every deadline is met", || async { Ok(daemon.describe(id).await?["state"] == "suspended") })
            .await?;
        let events = daemon.get(&format!("/events?sandbox={id}")).await?;
        let started = moment(&events, "started")?;
        let passed = moment(&events, "deadline_passed")?;
        let timeout = daemon.describe(id).await?["timeout_secs"].as_f64().context("timeout")?;
        row.ours.push((passed - started).mul_add(1000.0, -timeout * 1000.0));
    }
    // The worst one counts.
    let worst = row.ours.iter().copied().fold(0.0, f64::max);
    row.ours = vec![worst];
    Ok(row)
}

/// Returns when an event of this kind happened, in seconds.
fn moment(events: &Value, kind: &str) -> Result<f64> {
    let mut all = events["events"].as_array().into_iter().flatten();
    let event = all.find(|event| event["kind"] == kind).with_context(|| format!("no event {kind} in {events}"))?;
    let at: jiff::Timestamp = event["at"].as_str().context("at")?.parse().context("read a moment")?;
    Ok(at.as_duration().as_secs_f64())
}

async fn one_resume(daemon: &Daemon) -> Result<Row> {
    eprintln!("bench: 50 requests at once to a suspended sandbox");
    let mut row = Row::at_most("resumes for 50 requests to a suspended sandbox", 1.0).unit(Unit::Count);
    let made = create(daemon, "busy".to_owned(), None).await?;
    let id = made["id"].as_str().context("id")?;
    daemon.write(id, "/srv/who", b"busy".to_vec()).await?;
    let server =
        json!({ "argv": ["python3", "-m", "http.server", "8000", "--bind", "0.0.0.0", "--directory", "/srv"] });
    daemon.post(&format!("/sandboxes/{id}/processes"), server).await?;
    until(PATIENCE, "the server answers", || async { Ok(daemon.visit(id, 8000, "/who").await.is_ok()) }).await?;
    daemon.act(id, "suspend").await?;
    daemon.act(id, "evict").await?;
    let visits = (0..50).map(|_| daemon.visit(id, 8000, "/who"));
    for answer in futures_util::future::join_all(visits).await {
        let answer = answer?;
        ensure!(answer == "busy", "a request was answered with {answer:?}");
    }
    let events = daemon.get(&format!("/events?sandbox={id}")).await?;
    let resumed = events["events"].as_array().into_iter().flatten().filter(|event| event["kind"] == "resumed").count();
    ensure!(resumed == 1, "{resumed} resumes for 50 requests");
    row.ours.push(1.0);
    Ok(row)
}

async fn after_a_kill(daemon: &mut Daemon) -> Result<Row> {
    eprintln!("bench: 60 sandboxes, and SIGKILL to the daemon");
    let mut row = Row::noted("20 running, 20 parked, 20 evicted sandboxes found after SIGKILL", FOUND);
    let mut ids = Vec::new();
    for number in 0..60 {
        let made = create(daemon, format!("many{number}"), None).await?;
        let id = made["id"].as_str().context("id")?.to_owned();
        let keep = format!("echo {number} > /dev/shm/number; sleep 100000 & echo $! > /dev/shm/pid");
        ensure!(daemon.exec(&id, &["sh", "-c", &keep]).await?.0 == 0, "memory was not filled");
        if number >= 20 {
            daemon.act(&id, "suspend").await?;
        }
        if number >= 40 {
            daemon.act(&id, "evict").await?;
        }
        ids.push(id);
    }
    daemon.kill()?;
    let began = Instant::now();
    daemon.start_again()?;
    let list = daemon.get("/sandboxes?limit=1000").await?;
    row.ours.push(millis(began));
    for (number, id) in ids.iter().enumerate() {
        let found = list["sandboxes"].as_array().into_iter().flatten().find(|sandbox| sandbox["id"] == id.as_str());
        let found = found.with_context(|| format!("sandbox {number} is lost"))?;
        let wanted = [("running", "running"), ("suspended", "parked"), ("suspended", "evicted")][number / 20];
        ensure!((found["state"].as_str(), found["residence"].as_str()) == (Some(wanted.0), Some(wanted.1)), "{found}");
        daemon.act(id, "resume").await?;
        let check = "cat /dev/shm/number; kill -0 $(cat /dev/shm/pid)";
        let (code, said) = daemon.exec(id, &["sh", "-c", check]).await?;
        ensure!(code == 0 && said.trim() == number.to_string(), "sandbox {number} has lost its memory: {code}, {said}");
        daemon.act(id, "terminate").await?;
    }
    Ok(row)
}

/// Measures the service alone with the simulator's program: the fake engine, records in SQLite, the
/// real clock.
pub(super) fn fake(simulator: &Path) -> Result<Row> {
    const COUNT: &str = "1000";
    eprintln!("bench: {COUNT} deadlines on the fake engine with SQLite, spread over a minute");
    let output = std::process::Command::new(simulator).args(["--deadlines", COUNT]).output();
    let output = output.with_context(|| format!("run {}", simulator.display()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let late = said.trim().parse().with_context(|| format!("{} said '{said}'", simulator.display()))?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let name = "1000 deadlines, fake engine and SQLite: how late the last one is";
    Ok(Row { ours: vec![late], ..Row::noted(name, LATE) })
}
