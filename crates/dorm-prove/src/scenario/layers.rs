//! Damaged files of a layer below a filesystem snapshot: a daemon that has not used the layer since
//! its start refuses it by name, and it works again as soon as its file is restored.

use std::fs::{self, FileTimes, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use serde_json::json;

use crate::damage::Damage;
use crate::host::word;
use crate::report::Kind;
use crate::world::{Fault, WarmContainers, World, fault};

/// Damages a file of a layer in every way.
pub(super) async fn run(world: &mut World, random: &mut fastrand::Rng) -> Result<(u64, Vec<Fault>)> {
    let (snapshot, probe) = world.files_origin().await?;
    let saved_state = saved_state_of(world, &probe.id)?;
    let file = file_in(&saved_state.join("root"))?.context("the layer has no file")?;
    let (aside, mut faults, mut done) = (world.traces.data.join("aside"), Vec::new(), 0);
    for damage in Damage::ALL {
        fs::rename(&file, &aside).with_context(|| format!("set {} aside", file.display()))?;
        damaged(&aside, &file, damage, random)?;
        let tried = refused(world, &snapshot, &saved_state, &mut faults).await;
        let _ = fs::remove_file(&file);
        fs::rename(&aside, &file).with_context(|| format!("put {} back", file.display()))?;
        tried.with_context(|| format!("{damage:?}"))?;
        done += 1;
    }
    world.restart(WarmContainers::None)?;
    let id = world.daemon.create(json!({ "snapshot": snapshot })).await.context("start from the layer put right")?;
    faults.extend(probe.of(&id).is_whole(&world.daemon).await.err().map(fault));
    world.daemon.act(&id, "terminate").await?;
    faults.extend(world.settle().await?);
    Ok((done, faults))
}

/// The filesystem snapshot of that sandbox.
fn saved_state_of(world: &World, sandbox: &str) -> Result<PathBuf> {
    let mut found = world.traces.manifests()?;
    found.retain(|(path, manifest)| {
        path.join("root").is_dir() && manifest.as_ref().is_some_and(|text| word(&text["body"], "sandbox") == sandbox)
    });
    match found.as_slice() {
        [(path, _)] => Ok(path.clone()),
        several => bail!("sandbox {sandbox} has {} layers, not one", several.len()),
    }
}

/// A file with content, somewhere in `directory`.
fn file_in(directory: &Path) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?.flatten() {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_file() && entry.metadata()?.len() > 0 {
            return Ok(Some(path));
        }
        if kind.is_dir()
            && let Some(found) = file_in(&path)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Puts a damaged copy of `good` at `path`. Only its content differs.
pub(super) fn damaged(good: &Path, path: &Path, damage: Damage, random: &mut fastrand::Rng) -> Result<()> {
    let content = fs::read(good).with_context(|| format!("read {}", good.display()))?;
    let Some(content) = damage.of(content, random) else { return Ok(()) };
    let facts = fs::metadata(good)?;
    fs::write(path, content).with_context(|| format!("damage {}", path.display()))?;
    chown(path, Some(facts.uid()), Some(facts.gid()))?;
    fs::set_permissions(path, Permissions::from_mode(facts.mode()))?;
    let times = FileTimes::new().set_modified(facts.modified()?).set_accessed(facts.accessed()?);
    fs::File::options().append(true).open(path)?.set_times(times)?;
    Ok(())
}

/// Checks that a restarted daemon starts nothing from the layer, and names the damaged file.
async fn refused(world: &mut World, snapshot: &str, saved_state: &Path, faults: &mut Vec<Fault>) -> Result<()> {
    world.restart(WarmContainers::None)?;
    faults.extend(world.settle().await?);
    let answer = world.daemon.try_ask(Method::POST, "/sandboxes", Some(json!({ "snapshot": snapshot }))).await?;
    let said = answer.body.to_string();
    let id = saved_state.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if answer.status < 400 {
        faults.push((Kind::DataLost, format!("a sandbox was started from a damaged layer: {said}")));
        world.daemon.act(&word(&answer.body, "id"), "terminate").await?;
    } else if !said.contains(&id) {
        faults.push((Kind::WrongAnswer, format!("the refusal does not name saved state {id}: {said}")));
    }
    Ok(())
}
