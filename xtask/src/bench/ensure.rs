//! Requests for the environment of a project in Python and JavaScript, beside the single commands
//! that they stand for.

use std::time::Instant;

use anyhow::{Result, ensure};
use dorm_testing::{Daemon, GitServer};
use reqwest::Method;
use serde_json::{Value, json};

use super::guest::{answers, is_in, resume};
use super::rows::Row;
use super::stage::Stage;
use super::{millis, project};

const KEY: &str = "bench-ensure";

fn asked(repository: &str) -> Value {
    json!({
        "key": KEY,
        "image": "tools",
        "resources": { "memory_bytes": 1u64 << 30 },
        "egress": "public",
        "source": { "git": { "url": repository } },
        "setup": project::SETUP,
        "start_command": project::START,
        "ready_command": project::READY,
    })
}

/// Compares ensure with resume, and with a create from the same snapshot.
pub(super) async fn ensured(stage: &Stage, daemon: &Daemon) -> Result<Vec<Row>> {
    let repositories = stage.path("repositories");
    project::repository(&repositories, &stage.clients)?;
    let server = GitServer::new(&repositories, "none")?;
    let asked = asked(&server.url("open", project::REPOSITORY));
    let mut live = Row::shown("ensure of a running environment to exec").beside("own exec");
    let mut parked = Row::new("ensure of a parked environment to first exec", 1.2).beside("own resume");
    let mut restored = Row::new("ensure that restores, to first exec", 1.2).beside("own create from that snapshot");
    let mut cold = Row::shown("ensure that creates and sets up, to first exec").beside("own ensure that restores");
    let (_, took) = had(daemon, &asked, "created").await?;
    cold.ours.push(took);
    for round in 0..stage.rounds(9) {
        eprintln!("bench: ensure, round {}", round + 1);
        let (id, took) = had(daemon, &asked, "live").await?;
        live.ours.push(took);
        let began = Instant::now();
        answers(daemon, &id).await?;
        live.peer.push(millis(began));
        is_in(daemon, &id, "suspend", "parked").await?;
        let (id, took) = had(daemon, &asked, "resumed").await?;
        parked.ours.push(took);
        is_in(daemon, &id, "suspend", "parked").await?;
        parked.peer.push(resume(daemon, &id).await?);
        daemon.act(&id, "terminate").await?;
        let (id, took) = had(daemon, &asked, "restored").await?;
        restored.ours.push(took);
        let environment = daemon.get(&format!("/environments/{KEY}")).await?;
        let began = Instant::now();
        let same = json!({ "snapshot": environment["snapshot"], "suspendable": true });
        let other = daemon.create(same).await?;
        answers(daemon, &other).await?;
        restored.peer.push(millis(began));
        daemon.act(&other, "terminate").await?;
        answers(daemon, &id).await?;
    }
    cold.peer = restored.ours.clone();
    daemon.ask(Method::DELETE, &format!("/environments/{KEY}"), None).await?;
    Ok(vec![live, parked, restored, cold])
}

/// Asks for the environment; returns its sandbox and the milliseconds to its first exec.
async fn had(daemon: &Daemon, asked: &Value, by: &str) -> Result<(String, f64)> {
    let began = Instant::now();
    let ensured = daemon.post("/ensure", asked.clone()).await?;
    let id = ensured["sandbox"]["id"].as_str().unwrap_or_default().to_owned();
    answers(daemon, &id).await?;
    let took = millis(began);
    ensure!(ensured["by"] == json!(by), "the environment was not {by}: {ensured}");
    Ok((id, took))
}
