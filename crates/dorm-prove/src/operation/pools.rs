//! A pool is created, a sandbox of it claimed, and the pool resized and removed. Whenever the
//! daemon dies, no sandbox is claimed twice, and of a removed pool only what was claimed is left.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use reqwest::Method;
use serde_json::{Value, json};

use super::judge::works;
use super::{Heard, Scene};
use crate::host::word;
use crate::probe::PATIENCE;
use crate::report::Kind;
use crate::world::{Fault, World};

/// How long a claim waits until a sandbox is ready, in seconds.
const WAIT: u64 = 120;

/// Returns the claimed sandbox.
pub(super) async fn perform(world: &World, scene: &Scene) -> Result<Value> {
    let (daemon, name) = (&world.daemon, &scene.label);
    daemon.post("/pools", json!({ "name": name, "image": world.image, "ready": 1 })).await?;
    let asked = json!({ "labels": { "prove": name }, "max_wait_secs": WAIT });
    let claimed = daemon.post(&format!("/pools/{name}/claim"), asked).await?;
    let size = json!({ "ready": 2, "most": 3 });
    daemon.ask(Method::PUT, &format!("/pools/{name}/size"), Some(size)).await?;
    daemon.ask(Method::DELETE, &format!("/pools/{name}"), None).await?;
    gone(world, name).await?;
    Ok(claimed)
}

/// Waits until a pool that is removed has no members that wait.
async fn gone(world: &World, name: &str) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !waiting(world).await?.is_empty() {
        if Instant::now() > end {
            bail!("sandboxes of the removed pool {name} still wait: {:?}", waiting(world).await?);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// The living sandboxes that wait in a pool.
async fn waiting(world: &World) -> Result<Vec<String>> {
    let records = world.records().await?;
    let waits = |sandbox: &&Value| sandbox["waits_in_pool"] == true && sandbox["state"] != "terminated";
    Ok(records.sandboxes.iter().filter(waits).map(|sandbox| word(sandbox, "id")).collect())
}

pub(super) async fn judge(world: &mut World, scene: &Scene, heard: &Heard, faults: &mut Vec<Fault>) -> Result<()> {
    let name = &scene.label;
    let pools = world.daemon.get("/pools").await?;
    let is_there = pools["pools"].as_array().into_iter().flatten().any(|pool| word(pool, "name") == *name);
    if is_there && heard.is_some() {
        faults.push((Kind::WrongAnswer, format!("pool {name} is there, though it was removed")));
    }
    if is_there {
        world.daemon.ask(Method::DELETE, &format!("/pools/{name}"), None).await?;
    }
    gone(world, name).await?;
    let found = world.daemon.get(&format!("/sandboxes?label=prove={name}")).await?;
    let claimed: Vec<String> =
        found["sandboxes"].as_array().into_iter().flatten().map(|sandbox| word(sandbox, "id")).collect();
    let told = heard.as_ref().map(|view| word(view, "id"));
    if claimed.len() > 1 || told.as_ref().is_some_and(|told| claimed != [told.clone()]) {
        faults.push((Kind::SandboxLost, format!("sandboxes {claimed:?} were claimed, and {told:?} was answered")));
    }
    for id in &claimed {
        // Claimed without an answer, it may still be on its way.
        world.daemon.act(id, "resume").await?;
    }
    let found = world.daemon.get(&format!("/sandboxes?label=prove={name}")).await?;
    works(world, found, None, faults).await
}
