//! The effect that a power cut may have on a sandbox. One that ran is back at the image of its last
//! acknowledged sleep, or has ended with that cause if it had none. One that slept still sleeps.

use anyhow::Result;
use serde_json::Value;

use super::{Heard, Operation, Scene};
use crate::host::word;
use crate::report::Kind;
use crate::world::{Fault, World};

/// The state of the subject of an operation after a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// It can be judged as after a kill.
    Alive,
    /// It has ended with its run, as it had no image.
    Ended,
}

/// Whether a sandbox has ended because its run was lost.
pub(super) fn is_lost(view: &Value) -> bool {
    view["state"] == "terminated" && view["cause"]["kind"] == "failed"
}

/// Whether the power was cut and a sandbox has ended because its run was lost.
pub(super) async fn ended_with_its_run(world: &World, id: &str) -> Result<bool> {
    Ok(world.lost_power && is_lost(&world.daemon.describe(id).await?))
}

/// The number of those sandboxes that have ended because their runs were lost.
pub(super) fn count_lost(world: &World, found: &Value) -> usize {
    let found = found["sandboxes"].as_array().into_iter().flatten();
    if world.lost_power { found.filter(|view| is_lost(view)).count() } else { 0 }
}

/// Checks the subject of `operation` after a power cut, and resumes it where the operation leaves
/// it running. A subject that ended is forgotten if its volume is checked without it.
pub(super) async fn after_cut(
    world: &mut World,
    operation: Operation,
    scene: &mut Scene,
    heard: &Heard,
    faults: &mut Vec<Fault>,
) -> Result<Seen> {
    let slept = world.diary.has_slept;
    let Some(subject) = &mut scene.subject else { return Ok(Seen::Alive) };
    if slept || is_asleep(operation, heard) {
        subject.has_slept();
    }
    let view = world.daemon.describe(&subject.id).await?;
    if is_lost(&view) {
        let was_seen = heard.as_ref().is_some_and(|answer| answer["seen"] == true);
        if was_seen && operation == Operation::TimeoutTerminates {
            let what = format!("sandbox {} was over for its timeout, and is for {}", subject.id, view["cause"]);
            faults.push((Kind::WrongAnswer, what));
        }
        if subject.has_image() {
            let what = format!("sandbox {} ended with its run, though it had slept: {}", subject.id, view["cause"]);
            faults.push((Kind::SandboxLost, what));
        }
        if operation.has_volume() {
            scene.subject = None;
        }
        return Ok(Seen::Ended);
    }
    subject.lost_power();
    let state = word(&view, "state");
    if operation.leaves_running(heard.is_some()) && state == "suspended" {
        if !has_told(world, &subject.id).await? {
            let what = format!("sandbox {} sleeps, and `why` does not say that its run was lost", subject.id);
            faults.push((Kind::WrongAnswer, what));
        }
        world.daemon.act(&subject.id, "resume").await?;
    }
    Ok(Seen::Alive)
}

/// Whether the caller got the answer that it sleeps with all its data.
fn is_asleep(operation: Operation, heard: &Heard) -> bool {
    match operation {
        Operation::Suspend | Operation::SuspendWoken => heard.is_some(),
        // Its files are kept, from before the power was cut if it was not answered.
        Operation::ResumeFiles => true,
        Operation::SuspendFiles => heard.is_some(),
        Operation::TimeoutSuspends => heard.as_ref().is_some_and(|answer| answer["seen"] == true),
        _ => false,
    }
}

/// Whether `why` reports that it is back at its sleep image, and the loss.
async fn has_told(world: &World, id: &str) -> Result<bool> {
    let why = world.daemon.get(&format!("/sandboxes/{id}/why")).await?;
    let reasons = why["because"].as_array().into_iter().flatten();
    Ok(reasons.into_iter().any(|reason| word(reason, "says").contains("back at its sleep image")))
}
