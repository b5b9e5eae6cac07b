//! A sandbox is suspended with its files only: whenever the daemon dies, it runs with everything or
//! has its files, and its record says which.

use anyhow::Result;
use dorm_testing::Daemon;
use serde_json::{Value, json};

use super::{Heard, Operation, Scene};
use crate::host::word;
use crate::report::Kind;
use crate::world::{Fault, World, fault};

pub(super) async fn suspend(daemon: &Daemon, id: &str) -> Result<Value> {
    daemon.post(&format!("/sandboxes/{id}/suspend"), json!({ "keep": "files" })).await
}

pub(super) async fn judge(
    world: &mut World,
    operation: Operation,
    scene: Scene,
    heard: &Heard,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    let Some(mut subject) = scene.subject else { return Ok(()) };
    let view = world.daemon.describe(&subject.id).await?;
    let (state, restored) = (word(&view, "state"), word(&view, "restored"));
    let has_files_only = view["sleep_image"]["keeps"] == "files";
    let wanted = if operation == Operation::SuspendFiles { "suspended" } else { "running" };
    if heard.is_some() && !world.lost_power && state != wanted {
        faults.push((Kind::SandboxLost, format!("sandbox {} is {state}, not {wanted}", subject.id)));
    }
    if state == "suspended" {
        world.daemon.act(&subject.id, "resume").await?;
    }
    let after = world.daemon.describe(&subject.id).await?;
    match has_files_only {
        true => {
            if after["restored"] != "files" {
                let what = format!("sandbox {} has its files only and says '{}'", subject.id, after["restored"]);
                faults.push((Kind::WrongAnswer, what));
            }
            faults.extend(subject.files().is_whole(&world.daemon).await.err().map(fault));
            // Its program is gone, as it must be.
            world.daemon.act(&subject.id, "terminate").await?;
        }
        // It was not suspended, or is back at an image with its memory.
        false if heard.is_some() && operation == Operation::SuspendFiles && !world.lost_power => {
            let what = format!("sandbox {} was suspended with its files, and came back with '{restored}'", subject.id);
            faults.push((Kind::WrongAnswer, what));
        }
        false => match subject.is_whole(&world.daemon).await {
            Ok(()) => world.sleeper = Some(subject),
            Err(loss) => faults.push(fault(loss)),
        },
    }
    faults.extend(world.settle().await?);
    Ok(())
}
