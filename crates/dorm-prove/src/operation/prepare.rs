//! The preparation of each operation.

use anyhow::{Result, bail};
use serde_json::json;

use super::{Operation, Scene, images, layers, merge, release, transfer, volumes};
use crate::diary::Diary;
use crate::host::word;
use crate::probe::Probe;
use crate::steps::Step;
use crate::world::{Stage, World};

/// The steps at which the daemon dies, for operations that prove the start of the next daemon.
const IN_SUSPEND: &str = "storage: saved state renamed";
const IN_CREATE: &str = "gvisor: guest begun";

/// Prepares the state from which `operation` begins.
pub(crate) async fn prepare(world: &mut World, operation: Operation) -> Result<Scene> {
    world.diary = Diary::default();
    let label = format!("cycle-{}", world.number());
    let subject = subject(world, operation).await?;
    let mut scene = Scene { label, subject, snapshot: None, past: None, before: Vec::new() };
    match operation {
        Operation::CreateFromSnapshot | Operation::ExportSnapshot | Operation::FilesOfSnapshot => {
            scene.snapshot = Some(world.origin().await?.0);
        }
        Operation::ImportSnapshot => drop(transfer::file(world).await?),
        Operation::CreateFromFiles => scene.snapshot = Some(world.files_origin().await?.0),
        Operation::MergeLayers => scene.subject = Some(merge::prepare(world, &scene.label).await?),
        Operation::UseVolume | Operation::CreateWithVolume | Operation::AttachVolume | Operation::SleepWithVolume => {
            volumes::prepare(world, operation, &mut scene).await?
        }
        Operation::DeleteSnapshot => {
            let Some(subject) = &scene.subject else { bail!("no sandbox to take a snapshot of") };
            scene.snapshot = Some(word(&world.daemon.checkpoint(&subject.id, "memory").await?, "id"));
        }
        Operation::RewindRunning | Operation::RewindSuspended => {
            let Some(subject) = &mut scene.subject else { bail!("no sandbox to rewind") };
            scene.snapshot = Some(word(&world.daemon.checkpoint(&subject.id, "memory").await?, "id"));
            scene.past = Some(subject.clone());
            let stage = if operation == Operation::RewindRunning { Stage::Running } else { Stage::Parked };
            world.bring(subject, stage).await.map_err(crate::world::said)?;
        }
        Operation::Promote => {
            let Some(subject) = &scene.subject else { bail!("no sandbox whose place is taken") };
            let asked =
                json!({ "children": [{ "labels": { "prove": scene.label } }], "on_partial_failure": "roll_back" });
            let forked = world.daemon.post(&format!("/sandboxes/{}/fork", subject.id), asked).await?;
            let mut child = subject.of(&word(&forked["children"][0]["sandbox"], "id"));
            child.note(&world.daemon).await?;
            scene.past = Some(child);
            // The background work of the fork must not count as the promotion's.
            world.settle().await?;
        }
        Operation::ReleaseParked => release::prepare(&world.daemon, &mut scene).await?,
        Operation::StartAfterSuspend => {
            let Some(subject) = &scene.subject else { bail!("no sandbox to suspend") };
            world.watcher.begin(Some((Step::first(IN_SUSPEND), world.blow())));
            let answer = world.daemon.act(&subject.id, "suspend").await;
            killed(world, IN_SUSPEND, &answer)?;
        }
        Operation::StartAfterCreate => {
            world.watcher.begin(Some((Step::first(IN_CREATE), world.blow())));
            let asked = json!({ "name": scene.label, "image": world.image });
            let answer = world.daemon.create(asked).await;
            killed(world, IN_CREATE, &answer)?;
        }
        Operation::MakeWarmContainers => {
            world.daemon.stop()?;
        }
        Operation::ImportImage => images::is_gone(world).await?,
        Operation::RemoveImage => drop(images::is_there(world).await?),
        Operation::ImportLayers | Operation::PullImage | Operation::RemoveLayers => {
            layers::make(world)?;
            images::is_gone(world).await?;
            if operation == Operation::RemoveLayers {
                layers::perform(world, Operation::ImportLayers).await?;
            }
        }
        _ => {}
    }
    if !matches!(operation, Operation::StartAfterSuspend | Operation::StartAfterCreate | Operation::MakeWarmContainers)
    {
        scene.before = world.records().await?.snapshots.iter().map(|snapshot| word(snapshot, "id")).collect();
    }
    Ok(scene)
}

fn killed<T: std::fmt::Debug>(world: &mut World, step: &str, answer: &Result<T>) -> Result<()> {
    let (_, hit) = world.watcher.end();
    if !hit {
        bail!("the daemon was to die at the step '{step}', which did not come: {answer:?}");
    }
    world.daemon.kill()
}

async fn subject(world: &mut World, operation: Operation) -> Result<Option<Probe>> {
    let stage = match operation {
        Operation::CreateNamed
        | Operation::CreateEphemeral
        | Operation::CreateFromSnapshot
        | Operation::CreateFromFiles
        | Operation::MergeLayers
        | Operation::ExportSnapshot
        | Operation::ImportSnapshot
        | Operation::FilesOfSnapshot
        | Operation::UseVolume
        | Operation::CreateWithVolume
        | Operation::AttachVolume
        | Operation::SleepWithVolume
        | Operation::StartAfterCreate
        | Operation::UsePool
        | Operation::MakeWarmContainers
        | Operation::BuildTemplate
        | Operation::Ensure
        | Operation::ImportImage
        | Operation::RemoveImage
        | Operation::ImportLayers
        | Operation::PullImage
        | Operation::RemoveLayers => return Ok(None),
        Operation::TerminateRunning => return doomed(world, Stage::Running).await.map(Some),
        Operation::TerminateParked => return doomed(world, Stage::Parked).await.map(Some),
        Operation::TerminateEvicted => return doomed(world, Stage::Evicted).await.map(Some),
        Operation::SuspendWoken => {
            let mut woken = world.sleeper(Stage::Evicted).await?;
            world.bring(&mut woken, Stage::Running).await.map_err(crate::world::said)?;
            return Ok(Some(woken));
        }
        Operation::ResumeFiles => {
            let probe = world.sleeper(Stage::Running).await?;
            super::files_only::suspend(&world.daemon, &probe.id).await?;
            return Ok(Some(probe));
        }
        Operation::TimeoutTerminates => return ephemeral(world).await.map(Some),
        Operation::Suspend
        | Operation::CheckpointRunning
        | Operation::FilesRunning
        | Operation::Clone
        | Operation::Fork
        | Operation::RewindRunning
        | Operation::RewindSuspended
        | Operation::Promote
        | Operation::SetTimeouts
        | Operation::SetEgress
        | Operation::SuspendFiles
        | Operation::Resize
        | Operation::TimeoutSuspends
        | Operation::ReleaseParked
        | Operation::StartAfterSuspend => Stage::Running,
        Operation::ResumeParked
        | Operation::Evict
        | Operation::CheckpointSuspended
        | Operation::FilesSuspended
        | Operation::DeleteSnapshot
        | Operation::SetEgressParked => Stage::Parked,
        Operation::ResumeEvicted => Stage::Evicted,
    };
    world.sleeper(stage).await.map(Some)
}

/// The sandbox to end; one that survived the last time is used again.
async fn doomed(world: &mut World, stage: Stage) -> Result<Probe> {
    let mut probe = match world.doomed.take() {
        Some(probe) => probe,
        None => {
            let name = format!("doomed-{}", world.number());
            world.create(json!({ "name": name })).await?
        }
    };
    world.bring(&mut probe, stage).await.map_err(crate::world::said)?;
    Ok(probe)
}

async fn ephemeral(world: &mut World) -> Result<Probe> {
    world.create(json!({})).await
}
