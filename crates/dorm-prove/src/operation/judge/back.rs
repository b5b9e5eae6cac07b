//! The checks of a sandbox that is rewound, or whose place is taken: it is in the present with all
//! its data, or in the past with all data of that time, and then the present is a snapshot.

use anyhow::Result;
use serde_json::Value;

use super::super::lost::is_lost;
use super::super::{Heard, Scene};
use super::{becomes, from};
use crate::host::word;
use crate::report::Kind;
use crate::world::{Fault, World, fault};

pub(super) async fn judge(world: &mut World, scene: Scene, heard: &Heard, faults: &mut Vec<Fault>) -> Result<()> {
    let (Some(mut present), Some(past)) = (scene.subject, scene.past) else { return Ok(()) };
    // A daemon that restarted may still be completing or rolling back the operation.
    faults.extend(world.settle().await?);
    let is_child = past.id != present.id;
    let view = world.daemon.describe(&present.id).await?;
    let to = view["rewound_to"].as_str().unwrap_or_default().to_owned();
    let records = world.records().await?;
    let of = |snapshot: &Value| word(snapshot, "id");
    let new = |snapshot: &&Value| !scene.before.contains(&of(snapshot));
    let future = records.snapshots.iter().filter(new).find(|snapshot| snapshot["labels"]["rewound"] == to.as_str());
    let future = future.map(of);
    let is_back = future.is_some();
    if heard.is_some() && !is_back {
        faults.push((Kind::WrongAnswer, format!("sandbox {} is not rewound, though that was answered", present.id)));
    }
    if is_child {
        if is_back {
            // The next daemon completes the promotion.
            becomes(world, &past.id, "terminated").await?;
        }
        let child = world.daemon.describe(&past.id).await?;
        let is_lost = world.lost_power && is_lost(&child);
        if !is_lost && (child["state"] == "terminated") != is_back {
            let whose = if is_back { "the child's" } else { "its own" };
            let what = format!("child {} is {} while {} has {whose} memory", past.id, child["state"], present.id);
            faults.push((Kind::SandboxLost, what));
        }
        if !is_back && !is_lost {
            let mut child = past.clone();
            faults.extend(child.is_whole(&world.daemon).await.err().map(fault));
            world.daemon.act(&past.id, "terminate").await?;
        }
    }
    if let Some(future) = &future {
        // It is exactly the present, or exactly its last image if the run was lost before it was
        // saved, and then an event says so.
        let left = match is_last_image(world, &present.id, future).await? {
            true => present.at_image().unwrap_or_else(|| present.clone()),
            false => present.clone(),
        };
        from(world, future, &left, faults).await?;
        present = past.of(&present.id);
        // The target of the rewind is also its sleep image.
        present.has_slept();
    }
    if let Some(snapshot) = &scene.snapshot {
        world.forget(snapshot).await?;
    }
    world.daemon.act(&present.id, "resume").await?;
    match present.is_whole(&world.daemon).await {
        Ok(()) => world.sleeper = Some(present),
        Err(loss) => faults.push(fault(loss)),
    }
    Ok(())
}

/// Whether an event says that the power was cut before the state that the rewind left was saved, so
/// that its snapshot is the last image of that state.
async fn is_last_image(world: &World, id: &str, snapshot: &str) -> Result<bool> {
    if !world.lost_power {
        return Ok(false);
    }
    let says = |event: &Value| {
        let detail = event["detail"].as_str().unwrap_or_default();
        event["kind"] == "snapshot_taken" && detail.starts_with(snapshot) && detail.contains("it is the sleep image of")
    };
    Ok(world.events(id).await?.iter().any(says))
}
