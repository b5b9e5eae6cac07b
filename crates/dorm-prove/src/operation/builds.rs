//! A build of a template: whenever the daemon dies, the next one finishes it, and nothing else of
//! it is left.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Heard, Scene};
use crate::host::word;
use crate::probe::PATIENCE;
use crate::report::Kind;
use crate::world::{Fault, World, is_ended_build};

/// The labels of sandboxes and snapshots of builds.
const LABELS: [&str; 2] = ["dorm.build", "dorm.trial"];

/// Requests a build and waits for its end.
pub(super) async fn perform(world: &World, label: &str) -> Result<Value> {
    let asked = json!({
        "from": world.image,
        "steps": [{ "run": format!("echo {label} > /built") }],
        "tag": label,
        "start_command": "exec sleep 100000",
        "ready_command": "true",
        "template": { "name": label },
    });
    let build = world.daemon.post("/builds", asked).await?;
    ended(&world.daemon, &word(&build, "id")).await
}

async fn ended(daemon: &Daemon, id: &str) -> Result<Value> {
    let end = Instant::now() + PATIENCE;
    loop {
        let build = daemon.get(&format!("/builds/{id}")).await?;
        if is_ended_build(&build) {
            return Ok(build);
        }
        if Instant::now() > end {
            bail!("build {id} does not end: {build}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Checks that the build has succeeded, if it was recorded, and removes what it made.
pub(super) async fn judge(world: &mut World, scene: &Scene, heard: &Heard, faults: &mut Vec<Fault>) -> Result<()> {
    let daemon = &world.daemon;
    let label = &scene.label;
    let builds = daemon.get("/builds?limit=1000").await?;
    let own = builds["builds"].as_array().into_iter().flatten().find(|build| build["tag"] == json!(label));
    let Some(build) = own else {
        if heard.is_some() {
            faults.push((Kind::DataLost, format!("the build of {label} was answered and is gone")));
        }
        return Ok(());
    };
    let build = ended(daemon, &word(build, "id")).await?;
    if build["state"] != "succeeded" {
        faults.push((Kind::DataLost, format!("the build of {label} was not continued: {build}")));
        return Ok(());
    }
    let id = daemon.create(json!({ "template": label })).await?;
    let (_, said) = daemon.exec(&id, &["cat", "/built"]).await?;
    if said.trim() != label {
        faults.push((Kind::DataLost, format!("the template {label} has the content {said:?}")));
    }
    daemon.act(&id, "terminate").await?;
    let log = daemon.get(&format!("/builds/{}/logs", word(&build, "id"))).await?;
    let is_whole = log["lines"]
        .as_array()
        .and_then(|lines| lines.last())
        .is_some_and(|line| line["text"].as_str().is_some_and(|text| text.starts_with("succeeded")));
    if !is_whole {
        faults.push((Kind::DataLost, format!("the log of the build of {label} is not whole: {log}")));
    }
    let has_label = |one: &&Value| LABELS.iter().any(|label| !one["labels"][label].is_null());
    let living = daemon.get("/sandboxes?state=running,suspended&limit=1000").await?;
    for left in living["sandboxes"].as_array().into_iter().flatten().filter(has_label) {
        faults.push((Kind::LeftOver, format!("left over: sandbox {} of a build", word(left, "id"))));
    }
    daemon.ask(Method::DELETE, &format!("/templates/{label}"), None).await?;
    let snapshots = daemon.get("/snapshots?limit=1000").await?;
    for snapshot in snapshots["snapshots"].as_array().into_iter().flatten().filter(has_label) {
        daemon.ask(Method::DELETE, &format!("/snapshots/{}", word(snapshot, "id")), None).await?;
    }
    gone(daemon, &word(&build, "snapshot")).await?;
    daemon.ask(Method::DELETE, &format!("/images/{label}"), None).await?;
    Ok(())
}

/// Waits until the snapshot of a template is deleted.
async fn gone(daemon: &Daemon, snapshot: &str) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while daemon.get(&format!("/snapshots/{snapshot}")).await.is_ok() {
        if Instant::now() > end {
            bail!("snapshot {snapshot} of a template is not deleted");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
