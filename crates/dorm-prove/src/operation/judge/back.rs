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
        // It was saved before anything else, so it is exactly the present.
        from(world, future, &present.of(&present.id), faults).await?;
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
