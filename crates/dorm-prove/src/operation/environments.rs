//! A request for an environment: if the daemon dies, there is one sandbox for the key or none,
//! what is handed out is whole, and its setup ran once.

use std::time::Instant;

use anyhow::{Result, bail};
use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Heard, Scene};
use crate::host::word;
use crate::probe::PATIENCE;
use crate::report::Kind;
use crate::world::{Fault, World};

/// The label of sandboxes and snapshots of environments.
const LABEL: &str = "dorm.environment";

fn asked(world: &World, label: &str) -> Value {
    json!({
        "key": label,
        "image": world.image,
        "setup": [format!("echo {label} >> /set-up"), { "parallel": ["true", "true"] }],
        "ready_command": "test -e /set-up",
    })
}

/// Asks for an environment, which is set up; ends its sandbox; and asks again, which restores it.
pub(super) async fn perform(world: &World, label: &str) -> Result<Value> {
    let daemon = &world.daemon;
    let first = daemon.post("/ensure", asked(world, label)).await?;
    daemon.act(&word(&first["sandbox"], "id"), "terminate").await?;
    daemon.post("/ensure", asked(world, label)).await
}

/// Checks that the environment is had again, and that nothing else of it is left.
pub(super) async fn judge(world: &mut World, scene: &Scene, heard: &Heard, faults: &mut Vec<Fault>) -> Result<()> {
    let label = &scene.label;
    let all = world.daemon.get("/environments?limit=1000").await?;
    let is_there = all["environments"].as_array().into_iter().flatten().any(|one| one["key"] == json!(label));
    if !is_there {
        if heard.is_some() {
            faults.push((Kind::DataLost, format!("environment {label} was answered and is gone")));
        }
        return Ok(());
    }
    let again = world.daemon.post("/ensure", asked(world, label)).await?;
    let id = word(&again["sandbox"], "id");
    if let Some(heard) = heard
        && word(&heard["sandbox"], "id") != id
        && !world.lost_power
    {
        faults.push((Kind::DataLost, format!("environment {label} had another sandbox before: {heard}")));
    }
    let (_, said) = world.daemon.exec(&id, &["cat", "/set-up"]).await?;
    if said.trim() != label {
        faults.push((Kind::DataLost, format!("environment {label} was set up as {said:?}")));
    }
    let environment = word(&again["environment"], "id");
    for left in own(&world.daemon, "sandboxes", &environment).await? {
        if left != id {
            faults.push((Kind::LeftOver, format!("left over: sandbox {left} of environment {label}")));
        }
    }
    world.daemon.ask(Method::DELETE, &format!("/environments/{environment}"), None).await?;
    let end = Instant::now() + PATIENCE;
    loop {
        let mut left = own(&world.daemon, "sandboxes", &environment).await?;
        left.extend(own(&world.daemon, "snapshots", &environment).await?);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("environment {label} was removed, and {left:?} is left");
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Returns the sandboxes that live, or the snapshots, of an environment.
async fn own(daemon: &Daemon, kind: &str, environment: &str) -> Result<Vec<String>> {
    let path = match kind {
        "sandboxes" => "/sandboxes?state=running,suspended&limit=1000".to_owned(),
        kind => format!("/{kind}?limit=1000"),
    };
    let all = daemon.get(&path).await?;
    let is_own = |one: &&Value| one["labels"][LABEL] == json!(environment);
    Ok(all[kind].as_array().into_iter().flatten().filter(is_own).map(|one| word(one, "id")).collect())
}
