//! Merging the layers of a filesystem snapshot, which starts automatically when there are too many.

use anyhow::{Result, bail};
use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::json;

use super::lost::ended_with_its_run;
use super::{Heard, Scene};
use crate::host::word;
use crate::probe::{PATIENCE, Probe};
use crate::report::Kind;
use crate::world::{Fault, World, fault};

/// The most layers that are not merged: with one more, they are.
const LAYERS: usize = 8;

/// A running sandbox on the most layers that are not merged, with a file of its own.
pub(super) async fn prepare(world: &mut World, label: &str) -> Result<Probe> {
    let deep = match &world.deep {
        Some(deep) => deep.clone(),
        None => {
            let deep = pile(world).await?;
            world.deep.insert(deep).clone()
        }
    };
    let id = world.daemon.create(json!({ "snapshot": deep })).await?;
    let probe = Probe::begin(&world.daemon, &id).await?;
    world.daemon.write(&id, &path(LAYERS), label.as_bytes().to_vec()).await?;
    Ok(probe)
}

/// A snapshot of that many layers. Each has a file of its own and removes one of the layer below.
async fn pile(world: &World) -> Result<String> {
    let mut from = json!({ "image": world.image });
    for layer in 0..LAYERS {
        let id = world.daemon.create(from).await?;
        world.daemon.write(&id, &path(layer), layer.to_string().into_bytes()).await?;
        world.daemon.write(&id, &passing(layer), Vec::new()).await?;
        if let Some(below) = layer.checked_sub(1) {
            let (code, said) = world.daemon.exec(&id, &["rm", &passing(below)]).await?;
            if code != 0 {
                bail!("remove {}: {said}", passing(below));
            }
        }
        let taken = world.daemon.checkpoint(&id, "filesystem").await?;
        world.daemon.act(&id, "terminate").await?;
        from = json!({ "snapshot": word(&taken, "id") });
    }
    Ok(word(&from, "snapshot"))
}

fn path(layer: usize) -> String {
    format!("/root/layer-{layer}")
}

/// The file that is in one layer and gone in the next.
fn passing(layer: usize) -> String {
    format!("/root/passing-{layer}")
}

/// Checks that the sandbox keeps running, and that its snapshot has all files of all layers, merged
/// or not.
pub(super) async fn judge(world: &mut World, scene: Scene, heard: &Heard, faults: &mut Vec<Fault>) -> Result<()> {
    let Some(mut subject) = scene.subject else { return Ok(()) };
    if !ended_with_its_run(world, &subject.id).await? {
        faults.extend(subject.is_whole(&world.daemon).await.err().map(fault));
    }
    let snapshots = world.records().await?.snapshots;
    let new: Vec<_> = snapshots.iter().filter(|snapshot| !scene.before.contains(&word(snapshot, "id"))).collect();
    if let Some(told) = heard
        && !new.iter().any(|snapshot| snapshot["id"] == told["id"] && snapshot["status"] == "completed")
    {
        faults.push((Kind::DataLost, format!("snapshot {} is not there, though it was acknowledged", told["id"])));
    }
    for snapshot in new {
        let id = word(snapshot, "id");
        if snapshot["status"] == "completed" {
            match look(&world.daemon, &id, &scene.label).await {
                Ok(None) => {}
                Ok(Some(lost)) => faults.push((Kind::DataLost, format!("snapshot {id}: {lost}"))),
                Err(error) => faults.push((Kind::DataLost, format!("snapshot {id} cannot be used: {error:#}"))),
            }
        }
        world.forget(&id).await?;
    }
    world.daemon.act(&subject.id, "terminate").await?;
    Ok(())
}

/// The difference in the files of the snapshot, if there is one.
async fn look(daemon: &Daemon, snapshot: &str, label: &str) -> Result<Option<String>> {
    let id = daemon.create(json!({ "snapshot": snapshot })).await?;
    let found = wrong(daemon, &id, label).await;
    daemon.act(&id, "terminate").await?;
    found
}

async fn wrong(daemon: &Daemon, id: &str, label: &str) -> Result<Option<String>> {
    for layer in 0..=LAYERS {
        let wanted = if layer == LAYERS { label.to_owned() } else { layer.to_string() };
        let asked = daemon.request(Method::GET, &format!("/sandboxes/{id}/files?path={}", path(layer)));
        let answer = asked.timeout(PATIENCE).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        if !status.is_success() || text != wanted {
            return Ok(Some(format!("{} is '{text}' ({status}), not '{wanted}'", path(layer))));
        }
    }
    let (_, there) = daemon.exec(id, &["sh", "-c", "ls -d /root/passing-*"]).await?;
    let wanted = passing(LAYERS - 1);
    Ok((there.trim() != wanted).then(|| format!("of what was removed there is '{}', not '{wanted}'", there.trim())))
}
