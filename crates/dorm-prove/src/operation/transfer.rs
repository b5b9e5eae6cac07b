//! Snapshots that are exported to files, and files that are imported as snapshots.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Heard, Operation, Scene};
use crate::host::word;
use crate::probe::Probe;
use crate::report::Kind;
use crate::world::{Fault, World, fault};

/// The file of a memory snapshot with layers below it, and its expected content.
pub(super) async fn file(world: &mut World) -> Result<(PathBuf, Probe)> {
    if let Some(exported) = &world.exported {
        return Ok(exported.clone());
    }
    let (files, _) = world.files_origin().await?;
    let id = world.daemon.create(json!({ "snapshot": files })).await?;
    let probe = Probe::begin(&world.daemon, &id).await?;
    let taken = word(&world.daemon.checkpoint(&id, "memory").await?, "id");
    world.daemon.act(&id, "terminate").await?;
    let path = world.directory.join("snapshot.dorm");
    std::fs::write(&path, export(world, &taken).await?).with_context(|| format!("write {}", path.display()))?;
    world.forget(&taken).await?;
    Ok(world.exported.insert((path, probe)).clone())
}

async fn export(world: &World, snapshot: &str) -> Result<Vec<u8>> {
    let answer = world.daemon.request(Method::GET, &format!("/snapshots/{snapshot}/export")).send().await?;
    let status = answer.status();
    if !status.is_success() {
        bail!("export snapshot {snapshot}: {status}: {}", answer.text().await?);
    }
    Ok(answer.bytes().await.with_context(|| format!("export snapshot {snapshot}"))?.to_vec())
}

pub(super) async fn perform(world: &World, operation: Operation, snapshot: &str) -> Result<Value> {
    match operation {
        Operation::ImportSnapshot => {
            let (path, _) = world.exported.as_ref().context("there is no file to import")?;
            let file = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
            let answer = world.daemon.request(Method::POST, "/snapshots/import").body(file).send().await?;
            let (status, text) = (answer.status(), answer.text().await?);
            if !status.is_success() {
                bail!("import a snapshot: {status}: {text}");
            }
            serde_json::from_str(&text).with_context(|| format!("import a snapshot: {text}"))
        }
        Operation::FilesOfSnapshot => world.daemon.post(&format!("/snapshots/{snapshot}/files"), json!({})).await,
        _ => Ok(json!({ "bytes": export(world, snapshot).await?.len() })),
    }
}

/// Checks that the new file or snapshot is whole or not there, and that the old one is there.
pub(super) async fn judge(
    world: &mut World,
    operation: Operation,
    scene: &Scene,
    heard: &Heard,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    let held = match operation {
        Operation::ImportSnapshot => file(world).await?.1,
        Operation::FilesOfSnapshot => world.origin().await?.1.files(),
        _ => world.origin().await?.1,
    };
    let records = world.records().await?;
    let is_new =
        |snapshot: &&Value| !scene.before.contains(&word(snapshot, "id")) && snapshot["goes_when_free"] != true;
    let new: Vec<String> = records.snapshots.iter().filter(is_new).map(|snapshot| word(snapshot, "id")).collect();
    let told = heard.as_ref().map(|answer| word(answer, "id")).filter(|id| !id.is_empty());
    if new.len() > 1 || told.as_ref().is_some_and(|told| new != [told.clone()]) {
        faults.push((Kind::DataLost, format!("the snapshots {new:?} are new, and {told:?} was answered")));
    }
    let looked_at = match operation {
        Operation::ExportSnapshot => scene.snapshot.clone().into_iter().collect(),
        _ => new.clone(),
    };
    for snapshot in looked_at {
        match world.daemon.create(json!({ "snapshot": snapshot })).await {
            Ok(id) => {
                faults.extend(held.of(&id).is_whole(&world.daemon).await.err().map(fault));
                world.daemon.act(&id, "terminate").await?;
            }
            Err(error) => faults.push((Kind::DataLost, format!("snapshot {snapshot} cannot be used: {error:#}"))),
        }
    }
    for snapshot in new {
        world.forget(&snapshot).await?;
    }
    Ok(())
}
