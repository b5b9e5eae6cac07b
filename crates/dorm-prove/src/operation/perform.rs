//! Asking for an operation, as any client does.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Operation, Scene, builds, egress, environments, files_only, images, layers, pools, release, resize, transfer,
    volumes,
};
use crate::world::{WarmContainers, World};

/// The limits that are set, in seconds.
pub(super) const LIMITS: [u64; 2] = [3600, 7200];
/// The number of children of a fork.
pub(super) const CHILDREN: usize = 2;
/// The number of warm containers that the daemon creates for one image.
const WARM_CONTAINERS: u32 = 3;
/// The delay until a deadline passes, in seconds.
const SOON: f64 = 0.05;

/// Carries out `operation` and returns the daemon's answer, if it was done.
pub(crate) async fn perform(world: &mut World, operation: Operation, scene: &Scene) -> Result<Value> {
    let id = scene.subject.as_ref().map(|subject| subject.id.clone()).unwrap_or_default();
    let snapshot = scene.snapshot.clone().unwrap_or_default();
    let labels = json!({ "prove": scene.label });
    let daemon = &world.daemon;
    match operation {
        Operation::CreateNamed => {
            let asked = json!({ "name": scene.label, "image": world.image, "labels": labels });
            daemon.post("/sandboxes", asked).await
        }
        Operation::CreateEphemeral => {
            daemon.post("/sandboxes", json!({ "image": world.image, "labels": labels })).await
        }
        Operation::CreateFromSnapshot | Operation::CreateFromFiles => {
            daemon.post("/sandboxes", json!({ "snapshot": snapshot, "labels": labels })).await
        }
        Operation::Suspend | Operation::SuspendWoken => daemon.act(&id, "suspend").await,
        Operation::SuspendFiles => files_only::suspend(daemon, &id).await,
        Operation::ResumeParked | Operation::ResumeEvicted | Operation::ResumeFiles => daemon.act(&id, "resume").await,
        Operation::Evict => daemon.act(&id, "evict").await,
        Operation::ReleaseParked => release::perform(world).await,
        Operation::CheckpointRunning | Operation::CheckpointSuspended => daemon.checkpoint(&id, "memory").await,
        Operation::FilesRunning | Operation::FilesSuspended | Operation::MergeLayers => {
            daemon.checkpoint(&id, "filesystem").await
        }
        Operation::Clone => daemon.post(&format!("/sandboxes/{id}/clone"), json!({ "name": scene.label })).await,
        Operation::Fork => {
            let children = vec![json!({ "labels": labels }); CHILDREN];
            let asked = json!({ "children": children, "on_partial_failure": "roll_back" });
            daemon.post(&format!("/sandboxes/{id}/fork"), asked).await
        }
        Operation::RewindRunning | Operation::RewindSuspended => {
            daemon.post(&format!("/sandboxes/{id}/rewind"), json!({ "to": snapshot })).await
        }
        Operation::Promote => {
            let child = scene.past.as_ref().map(|child| child.id.clone()).unwrap_or_default();
            daemon.post(&format!("/sandboxes/{child}/promote"), json!({})).await
        }
        Operation::ExportSnapshot | Operation::ImportSnapshot | Operation::FilesOfSnapshot => {
            transfer::perform(world, operation, &snapshot).await
        }
        Operation::UseVolume | Operation::CreateWithVolume | Operation::AttachVolume | Operation::SleepWithVolume => {
            volumes::perform(world, operation, scene).await
        }
        Operation::DeleteSnapshot => daemon.ask(Method::DELETE, &format!("/snapshots/{snapshot}"), None).await,
        Operation::TerminateRunning | Operation::TerminateParked | Operation::TerminateEvicted => {
            daemon.act(&id, "terminate").await
        }
        Operation::SetEgress | Operation::SetEgressParked => egress::close(daemon, &id).await,
        Operation::Resize => resize::enlarge(daemon, &id).await,
        Operation::UsePool => pools::perform(world, scene).await,
        Operation::SetTimeouts => {
            let limits = json!({ "timeout_secs": LIMITS[0], "idle_timeout_secs": LIMITS[1] });
            daemon.post(&format!("/sandboxes/{id}/timeouts"), limits).await
        }
        Operation::TimeoutSuspends => soon(world, &id, "suspended").await,
        Operation::TimeoutTerminates => soon(world, &id, "terminated").await,
        Operation::StartAfterSuspend | Operation::StartAfterCreate => {
            world.start_again(WarmContainers::None)?;
            Ok(Value::Null)
        }
        Operation::BuildTemplate => builds::perform(world, &scene.label).await,
        Operation::Ensure => environments::perform(world, &scene.label).await,
        Operation::ImportImage => images::import(world).await,
        Operation::RemoveImage => images::remove(world).await,
        Operation::ImportLayers | Operation::PullImage | Operation::RemoveLayers => {
            layers::perform(world, operation).await
        }
        Operation::MakeWarmContainers => {
            world.start_again(WarmContainers::Ready)?;
            while world.watcher.times("gvisor: warm container ready") < WARM_CONTAINERS {
                world.daemon.get("/info").await.context("while containers are made ready")?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(Value::Null)
        }
    }
}

/// Sets a deadline that passes at once, and waits until it has had its effect. Only the setting is
/// acknowledged.
async fn soon(world: &World, id: &str, state: &str) -> Result<Value> {
    let mut set = world.daemon.post(&format!("/sandboxes/{id}/timeouts"), json!({ "timeout_secs": SOON })).await?;
    let end = std::time::Instant::now() + crate::probe::PATIENCE;
    while let Ok(view) = world.daemon.describe(id).await {
        if view["state"] == state {
            set["seen"] = json!(true);
            break;
        }
        if std::time::Instant::now() > end {
            bail!("sandbox {id} is {} long after its deadline", view["state"]);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(set)
}
