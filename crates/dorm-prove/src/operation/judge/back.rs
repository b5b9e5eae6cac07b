//! What must hold of a sandbox that was to be taken back, or whose place was to be taken: it is in the present with all it
//! had, or in the past with all that had been there, and then the present is a snapshot.

use anyhow::Result;
use serde_json::Value;

use super::super::{Heard, Scene};
use super::{becomes, from};
use crate::host::word;
use crate::power::is_lost;
use crate::report::Kind;
use crate::world::{Fault, World, fault};

pub(super) async fn judge(world: &mut World, scene: Scene, heard: &Heard, faults: &mut Vec<Fault>) -> Result<()> {
    let (Some(mut present), Some(past)) = (scene.subject, scene.past) else { return Ok(()) };
    // A daemon that died may still be finishing or giving up what it found.
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
        faults.push((Kind::WrongAnswer, format!("sandbox {} is not taken back, though that was answered", present.id)));
    }
    if is_child {
        if is_back {
            // Whoever comes next finishes it.
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
        // It was saved before anything else, so it is just what it was.
        from(world, future, &present.of(&present.id), faults).await?;
        present = past.of(&present.id);
        // What it was taken back to is its image too.
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
