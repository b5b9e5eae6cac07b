//! The checks after an operation, and the clean-up for the next one.

mod back;

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::lost::{Seen, after_cut, count_lost, is_lost};
use super::perform::{CHILDREN, LIMITS};
use super::{
    Heard, Operation, Scene, builds, egress, environments, files_only, images, layers, merge, pools, release, resize,
    transfer, volumes,
};
use crate::host::word;
use crate::probe::{PATIENCE, Probe};
use crate::report::Kind;
use crate::world::{Fault, World, fault};

/// Checks that everything that must hold after `operation` holds; `heard` is the answer its caller
/// got.
pub(crate) async fn judge(
    world: &mut World,
    operation: Operation,
    mut scene: Scene,
    heard: &Heard,
) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    let is_over = world.lost_power && after_cut(world, operation, &mut scene, heard, &mut faults).await? == Seen::Ended;
    if is_over && operation != Operation::MergeLayers && !operation.has_volume() {
        return Ok(faults);
    }
    match operation {
        Operation::CreateNamed
        | Operation::CreateEphemeral
        | Operation::CreateFromSnapshot
        | Operation::CreateFromFiles => {
            created(world, operation, &scene, heard, &mut faults).await?;
        }
        Operation::ExportSnapshot | Operation::ImportSnapshot | Operation::FilesOfSnapshot => {
            transfer::judge(world, operation, &scene, heard, &mut faults).await?;
        }
        Operation::UseVolume | Operation::CreateWithVolume | Operation::AttachVolume | Operation::SleepWithVolume => {
            volumes::judge(world, operation, scene, heard, &mut faults).await?
        }
        Operation::StartAfterCreate => named(world, &scene.label, None, &mut faults).await?,
        Operation::MakeWarmContainers => {}
        Operation::BuildTemplate => builds::judge(world, &scene, heard, &mut faults).await?,
        Operation::Ensure => environments::judge(world, &scene, heard, &mut faults).await?,
        Operation::ImportImage | Operation::RemoveImage => {
            images::judge(world, operation, heard.is_some(), &mut faults).await?;
        }
        Operation::ImportLayers | Operation::PullImage | Operation::RemoveLayers => {
            layers::judge(world, operation, heard, &mut faults).await?;
        }
        Operation::TerminateRunning
        | Operation::TerminateParked
        | Operation::TerminateEvicted
        | Operation::TimeoutTerminates => ended(world, operation, scene, heard.is_some(), &mut faults).await?,
        Operation::SuspendFiles | Operation::ResumeFiles => {
            files_only::judge(world, operation, scene, heard, &mut faults).await?;
        }
        Operation::UsePool => pools::judge(world, &scene, heard, &mut faults).await?,
        Operation::MergeLayers => merge::judge(world, scene, heard, &mut faults).await?,
        Operation::RewindRunning | Operation::RewindSuspended | Operation::Promote => {
            back::judge(world, scene, heard, &mut faults).await?;
        }
        Operation::Suspend
        | Operation::SuspendWoken
        | Operation::ResumeParked
        | Operation::ResumeEvicted
        | Operation::Evict
        | Operation::ReleaseParked
        | Operation::CheckpointRunning
        | Operation::CheckpointSuspended
        | Operation::FilesRunning
        | Operation::FilesSuspended
        | Operation::Clone
        | Operation::Fork
        | Operation::DeleteSnapshot
        | Operation::SetTimeouts
        | Operation::SetEgress
        | Operation::SetEgressParked
        | Operation::Resize
        | Operation::TimeoutSuspends
        | Operation::StartAfterSuspend => slept(world, operation, scene, heard, &mut faults).await?,
    }
    Ok(faults)
}

/// The states and residences that the sandbox may have.
fn allowed(operation: Operation, is_done: bool) -> &'static [&'static str] {
    match (operation, is_done) {
        (Operation::Suspend | Operation::SuspendWoken | Operation::TimeoutSuspends, true) => &["suspended"],
        (Operation::ResumeParked | Operation::ResumeEvicted, true) => &["running"],
        (Operation::Evict, true) => &["evicted"],
        (
            Operation::Evict
            | Operation::ReleaseParked
            | Operation::CheckpointSuspended
            | Operation::FilesSuspended
            | Operation::DeleteSnapshot
            | Operation::SetEgressParked,
            _,
        ) => &["suspended"],
        (
            Operation::CheckpointRunning
            | Operation::FilesRunning
            | Operation::Clone
            | Operation::Fork
            | Operation::SetTimeouts
            | Operation::SetEgress
            | Operation::Resize,
            _,
        ) => &["running"],
        _ => &["running", "suspended"],
    }
}

async fn slept(
    world: &mut World,
    operation: Operation,
    scene: Scene,
    heard: &Heard,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    let Some(mut subject) = scene.subject.clone() else { return Ok(()) };
    let allowed = allowed(operation, heard.is_some());
    if operation == Operation::TimeoutSuspends && is_limited(world, &subject.id, heard.is_some()).await? {
        becomes(world, &subject.id, "suspended").await?;
    }
    let view = world.daemon.describe(&subject.id).await?;
    let is = [word(&view, "state"), word(&view, "residence")];
    if !is.iter().any(|word| allowed.contains(&word.as_str())) {
        let what = format!("sandbox {} is {} and {}, not {}", subject.id, is[0], is[1], allowed.join(" or "));
        faults.push((Kind::SandboxLost, what));
    }
    if matches!(operation, Operation::SetTimeouts | Operation::TimeoutSuspends) {
        limits(operation, &subject, &view, heard, faults);
        // A sleeping sandbox has no deadlines; after a resume one would pass before the check is
        // done.
        world.daemon.post(&format!("/sandboxes/{}/timeouts", subject.id), json!({})).await?;
    }
    if is[0] == "suspended" && !subject.has_lost_power() {
        subject.has_slept();
    }
    if operation == Operation::Fork {
        children(world, &scene, &subject, heard, faults).await?;
    }
    snapshots(world, operation, &scene, &subject, heard, faults).await?;
    world.daemon.act(&subject.id, "resume").await?;
    if matches!(operation, Operation::SetEgress | Operation::SetEgressParked) {
        egress::judge(&world.daemon, &subject.id, &view, heard.is_some(), faults).await?;
    }
    if operation == Operation::ReleaseParked {
        release::judge(&world.daemon, &subject.id, faults).await?;
    }
    if operation == Operation::Resize {
        resize::judge(&world.daemon, &subject.id, &view, heard.is_some(), faults).await?;
    }
    match subject.is_whole(&world.daemon).await {
        Ok(()) => world.sleeper = Some(subject),
        Err(loss) => faults.push(fault(loss)),
    }
    Ok(())
}

fn limits(operation: Operation, subject: &Probe, view: &Value, heard: &Heard, faults: &mut Vec<Fault>) {
    let has = [view["timeout_secs"].as_f64(), view["idle_timeout_secs"].as_f64()];
    let set = match operation {
        Operation::SetTimeouts => LIMITS.map(|limit| Some(limit as f64)),
        _ => [has[0], None],
    };
    if has != set && (heard.is_some() || has != [None, None]) {
        faults.push((Kind::DataLost, format!("time limits of sandbox {} are {has:?}, not {set:?}", subject.id)));
    }
}

/// Checks that either all children are there or none is; then ends them.
async fn children(world: &World, scene: &Scene, subject: &Probe, heard: &Heard, faults: &mut Vec<Fault>) -> Result<()> {
    // As long as its snapshot exists, the fork is still being completed or rolled back.
    let end = Instant::now() + PATIENCE;
    while world.records().await?.snapshots.iter().any(|snapshot| snapshot["goes_when_free"] == true) {
        if Instant::now() > end {
            faults.push((Kind::LeftOver, format!("the snapshot of the fork of {} stays", subject.id)));
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut found = world.daemon.get(&format!("/sandboxes?label=prove={}", scene.label)).await?;
    let lost = count_lost(world, &found);
    if let Some(sandboxes) = found["sandboxes"].as_array_mut() {
        sandboxes.retain(|sandbox| sandbox["state"] != "terminated");
    }
    let count = found["sandboxes"].as_array().map_or(0, Vec::len);
    let is_whole = count == CHILDREN || (heard.is_some() && count + lost == CHILDREN);
    if !is_whole && (heard.is_some() || count != 0) {
        let what = format!("{count} of {CHILDREN} children of {} are there, {lost} lost their runs", subject.id);
        faults.push((Kind::SandboxLost, what));
    }
    works(world, found, Some(subject), faults).await
}

/// Checks that new snapshots are whole and that sandboxes can be created from them; then deletes
/// them.
async fn snapshots(
    world: &mut World,
    operation: Operation,
    scene: &Scene,
    subject: &Probe,
    heard: &Heard,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    let records = world.records().await?;
    let of = |snapshot: &Value| word(snapshot, "id");
    if operation == Operation::DeleteSnapshot {
        let deleted = scene.snapshot.clone().unwrap_or_default();
        let is_there = records.snapshots.iter().any(|snapshot| of(snapshot) == deleted);
        if is_there && heard.is_some() {
            faults.push((Kind::WrongAnswer, format!("snapshot {deleted} is there, though it was deleted")));
        }
        return if is_there { from(world, &deleted, subject, faults).await } else { Ok(()) };
    }
    let takes = matches!(
        operation,
        Operation::CheckpointRunning
            | Operation::CheckpointSuspended
            | Operation::FilesRunning
            | Operation::FilesSuspended
            | Operation::Clone
    );
    if !takes {
        return Ok(());
    }
    let new: Vec<&Value> = records.snapshots.iter().filter(|snapshot| !scene.before.contains(&of(snapshot))).collect();
    let told = heard.as_ref().map(|answer| match operation {
        Operation::Clone => word(&answer["snapshot"], "id"),
        _ => word(answer, "id"),
    });
    if let Some(told) = told
        && !new.iter().any(|snapshot| of(snapshot) == told && snapshot["status"] == "completed")
    {
        faults.push((Kind::DataLost, format!("snapshot {told} is not there, though it was acknowledged")));
    }
    if operation == Operation::Clone {
        named(world, &scene.label, Some(subject), faults).await?;
    }
    for snapshot in new {
        if snapshot["status"] == "completed" && operation != Operation::Clone {
            let held = match snapshot["kind"].as_str() {
                Some("filesystem") => subject.files(),
                _ => subject.clone(),
            };
            from(world, &of(snapshot), &held, faults).await?;
        } else {
            world.forget(&of(snapshot)).await?;
        }
    }
    Ok(())
}

/// Checks that a sandbox can be created from the snapshot and has its memory; then deletes both.
async fn from(world: &World, snapshot: &str, held: &Probe, faults: &mut Vec<Fault>) -> Result<()> {
    match world.daemon.create(json!({ "snapshot": snapshot })).await {
        Ok(id) => {
            faults.extend(held.of(&id).is_whole(&world.daemon).await.err().map(fault));
            world.daemon.act(&id, "terminate").await?;
        }
        Err(error) => faults.push((Kind::DataLost, format!("snapshot {snapshot} cannot be used: {error:#}"))),
    }
    world.forget(snapshot).await
}

/// Checks that the sandbox of that name, if there is one, works and has the memory it began with;
/// then ends it.
async fn named(world: &World, name: &str, held: Option<&Probe>, faults: &mut Vec<Fault>) -> Result<()> {
    let found = world.daemon.get(&format!("/sandboxes?name={name}")).await?;
    works(world, found, held, faults).await
}

pub(super) async fn works(world: &World, found: Value, held: Option<&Probe>, faults: &mut Vec<Fault>) -> Result<()> {
    for sandbox in found["sandboxes"].as_array().into_iter().flatten() {
        let (id, state) = (word(sandbox, "id"), word(sandbox, "state"));
        if world.lost_power && is_lost(sandbox) {
            continue;
        }
        if state != "running" {
            faults.push((Kind::SandboxLost, format!("sandbox {id} is {state}, not running: {}", sandbox["cause"])));
            continue;
        }
        match held {
            Some(held) => faults.extend(held.of(&id).is_whole(&world.daemon).await.err().map(fault)),
            None => {
                if let Err(error) = Probe::begin(&world.daemon, &id).await {
                    faults.push((Kind::SandboxLost, format!("sandbox {id} does not work: {error:#}")));
                }
            }
        }
        world.daemon.act(&id, "terminate").await?;
    }
    Ok(())
}

async fn created(
    world: &mut World,
    operation: Operation,
    scene: &Scene,
    heard: &Heard,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    let found = world.daemon.get(&format!("/sandboxes?label=prove={}", scene.label)).await?;
    let ids: Vec<String> =
        found["sandboxes"].as_array().into_iter().flatten().map(|sandbox| word(sandbox, "id")).collect();
    let told = heard.as_ref().map(|view| word(view, "id"));
    if ids.len() > 1 || told.as_ref().is_some_and(|told| ids != [told.clone()]) {
        faults.push((Kind::SandboxLost, format!("sandboxes {ids:?} were created, and {told:?} was answered")));
    }
    let held = match operation {
        Operation::CreateFromSnapshot => Some(world.origin().await?.1),
        Operation::CreateFromFiles => Some(world.files_origin().await?.1),
        _ => None,
    };
    works(world, found, held.as_ref(), faults).await
}

async fn ended(
    world: &mut World,
    operation: Operation,
    scene: Scene,
    is_done: bool,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    let Some(mut subject) = scene.subject else { return Ok(()) };
    if operation == Operation::TimeoutTerminates && is_limited(world, &subject.id, is_done).await? {
        becomes(world, &subject.id, "terminated").await?;
    }
    let view = world.daemon.describe(&subject.id).await?;
    let cause = match operation {
        Operation::TimeoutTerminates => "timeout",
        _ => "requested",
    };
    if view["state"] == "terminated" {
        if view["cause"]["kind"] != cause {
            faults.push((Kind::WrongAnswer, format!("sandbox {} is over for {}", subject.id, view["cause"])));
        }
        return Ok(());
    }
    if is_done {
        faults.push((Kind::WrongAnswer, format!("sandbox {} is {}, not over", subject.id, view["state"])));
        return Ok(());
    }
    world.daemon.act(&subject.id, "resume").await?;
    faults.extend(subject.is_whole(&world.daemon).await.err().map(fault));
    match operation {
        Operation::TimeoutTerminates => drop(world.daemon.act(&subject.id, "terminate").await?),
        _ => world.doomed = Some(subject),
    }
    Ok(())
}

/// Whether its deadline was set, acknowledged or not: if it was, the next daemon applies it too, if
/// not at once.
async fn is_limited(world: &World, id: &str, is_done: bool) -> Result<bool> {
    Ok(is_done || !world.daemon.describe(id).await?["timeout_secs"].is_null())
}

/// Waits until a sandbox is in that state. If it never is, the next check reports it.
async fn becomes(world: &World, id: &str, state: &str) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while world.daemon.describe(id).await?["state"] != state && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
