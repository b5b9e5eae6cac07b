//! Operations in the background: how they begin and how they end.

use std::time::Duration;

use super::{Context, Effect, Outcome, Step, rewind};
use crate::amount::{ByteSize, CpuCount};
use crate::background::{Background, BackgroundWork};
use crate::egress::Egress;
use crate::event::EventKind;
use crate::ids::SnapshotId;
use crate::resources::Resources;
use crate::rewind::Rewind;
use crate::sandbox::Sandbox;
use crate::state::State;
use crate::volume::Attachment;

fn begun(sandbox: &Sandbox, work: BackgroundWork, limit: Duration, context: &Context) -> Step {
    let background = Background { operation: context.operation.clone(), deadline: context.now.after(limit), work };
    Step::to(sandbox, sandbox.state.with_background(Some(background)))
}

fn over(sandbox: &Sandbox) -> Step {
    Step::to(sandbox, sandbox.state.with_background(None))
}

fn work(sandbox: &Sandbox) -> Option<&BackgroundWork> {
    sandbox.state.background().map(|background| &background.work)
}

fn late(sandbox: &Sandbox) -> Step {
    Step::stays(sandbox, Outcome::Already)
}

/// Changes the attachments of a running sandbox. For a suspended sandbox, only a parked run has to
/// be stopped, because it has the previous volumes mounted.
pub(super) fn attach(sandbox: &Sandbox, after: &[Attachment], context: &Context) -> Step {
    let effect = match &sandbox.state {
        State::Suspended { .. } => Effect::Evict { run: sandbox.run_id() },
        State::Pending { .. }
        | State::Running { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Resuming { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => {
            Effect::Attach { run: sandbox.run_id(), before: sandbox.spec.attachments.clone(), after: after.to_vec() }
        }
    };
    begun(sandbox, BackgroundWork::Attach { after: after.to_vec() }, context.limits.attach, context).effect(effect)
}

pub(super) fn attached(sandbox: &Sandbox) -> Step {
    let Some(BackgroundWork::Attach { after }) = work(sandbox) else { return late(sandbox) };
    let before = &sandbox.spec.attachments;
    let mut step = over(sandbox);
    for gone in before.iter().filter(|one| !after.contains(one)) {
        step = step.event_because(EventKind::Detached, format!("volume {} from {}", gone.volume, gone.path));
    }
    for new in after.iter().filter(|one| !before.contains(one)) {
        step = step.event_because(EventKind::Attached, format!("volume {} at {}", new.volume, new.path));
    }
    step.next.spec.attachments.clone_from(after);
    step
}

pub(super) fn not_attached(sandbox: &Sandbox, reason: &str) -> Step {
    let Some(BackgroundWork::Attach { .. }) = work(sandbox) else { return late(sandbox) };
    over(sandbox).event_because(EventKind::AttachFailed, reason)
}

/// Changes the egress policy. A suspended sandbox may have a parked run, which gets it as well.
pub(super) fn egress(sandbox: &Sandbox, after: &Egress, context: &Context) -> Step {
    let work = BackgroundWork::Egress { after: after.clone() };
    begun(sandbox, work, context.limits.egress, context).effect(egress_effect(sandbox, after))
}

pub(crate) fn egress_effect(sandbox: &Sandbox, after: &Egress) -> Effect {
    Effect::Egress { run: sandbox.run_id(), before: sandbox.spec.egress.clone(), after: after.clone() }
}

pub(super) fn egress_set(sandbox: &Sandbox) -> Step {
    let Some(BackgroundWork::Egress { after }) = work(sandbox) else { return late(sandbox) };
    let mut step = over(sandbox).event_because(EventKind::EgressSet, after.summary());
    step.next.spec.egress = after.clone();
    step
}

pub(super) fn egress_not_set(sandbox: &Sandbox, reason: &str) -> Step {
    let Some(BackgroundWork::Egress { .. }) = work(sandbox) else { return late(sandbox) };
    over(sandbox).event_because(EventKind::EgressFailed, reason)
}

/// Changes the limits of CPU and memory. A suspended sandbox may have a parked run, which gets them
/// as well.
pub(super) fn resize(sandbox: &Sandbox, after: Resources, context: &Context) -> Step {
    let work = BackgroundWork::Resize { after };
    begun(sandbox, work, context.limits.egress, context).effect(resize_effect(sandbox, after))
}

pub(crate) fn resize_effect(sandbox: &Sandbox, after: Resources) -> Effect {
    Effect::Resize { run: sandbox.run_id(), before: sandbox.spec.resources, after }
}

pub(super) fn resized(sandbox: &Sandbox) -> Step {
    let Some(BackgroundWork::Resize { after }) = work(sandbox) else { return late(sandbox) };
    let detail = format!("to {} and {} of memory", CpuCount(after.cpu_millis.into()), ByteSize(after.memory_bytes));
    let mut step = over(sandbox).event_because(EventKind::Resized, detail);
    step.next.spec.resources = *after;
    step
}

pub(super) fn not_resized(sandbox: &Sandbox, reason: &str) -> Step {
    let Some(BackgroundWork::Resize { .. }) = work(sandbox) else { return late(sandbox) };
    over(sandbox).event_because(EventKind::ResizeFailed, reason)
}

/// Prepares a rewind to a memory snapshot. The sandbox is unchanged until its copy of the saved
/// state is made.
pub(super) fn prepare_rewind(sandbox: &Sandbox, wanted: &Rewind, context: &Context) -> Option<Step> {
    let target = wanted.target.as_ref()?.saved_state.clone();
    let work = BackgroundWork::PrepareRewind(wanted.clone());
    let effect = Effect::PrepareRewind { to: wanted.to.clone(), target };
    let limit = context.limits.copy_of(wanted.target.iter());
    Some(begun(sandbox, work, limit, context).effect(effect))
}

pub(super) fn rewind_prepared(sandbox: &Sandbox, context: &Context) -> Step {
    let Some(Background { operation, work: BackgroundWork::PrepareRewind(rewind), .. }) = sandbox.state.background()
    else {
        return late(sandbox);
    };
    // The rewind is one operation, from the command to the guest that answers from the snapshot.
    let context = Context { operation: operation.clone(), ..context.clone() };
    rewind::leave_present(sandbox, rewind, &context).unwrap_or_else(|| late(sandbox))
}

pub(super) fn rewind_not_prepared(sandbox: &Sandbox, reason: &str) -> Step {
    let Some(BackgroundWork::PrepareRewind(_)) = work(sandbox) else { return late(sandbox) };
    over(sandbox).event_because(EventKind::RewindFailed, reason)
}

/// Makes a snapshot from the sleep image of a suspended sandbox.
pub(super) fn snapshot(sandbox: &Sandbox, snapshot: &SnapshotId, context: &Context) -> Step {
    let limit = context.limits.copy_of(sandbox.state.image().into_iter());
    let step = begun(sandbox, BackgroundWork::Snapshot(snapshot.clone()), limit, context);
    match sandbox.state.image() {
        Some(image) => step.effect(Effect::SnapshotImage { image: image.clone(), snapshot: snapshot.clone() }),
        None => late(sandbox),
    }
}

pub(super) fn snapshot_over(sandbox: &Sandbox, result: Result<(), &str>) -> Step {
    let Some(BackgroundWork::Snapshot(snapshot)) = work(sandbox) else { return late(sandbox) };
    match result {
        Ok(()) => over(sandbox).event_because(EventKind::SnapshotTaken, snapshot.as_str()),
        Err(reason) => over(sandbox).event_because(EventKind::SnapshotFailed, format!("{snapshot}: {reason}")),
    }
}

/// Returns the event for a background operation that ends with its run.
pub(super) fn failed_with_run(background: &Background, reason: &str) -> Option<(EventKind, Option<String>)> {
    Some(match &background.work {
        BackgroundWork::Attach { .. } => (EventKind::AttachFailed, Some(reason.to_owned())),
        BackgroundWork::Egress { .. } => (EventKind::EgressFailed, Some(reason.to_owned())),
        BackgroundWork::Resize { .. } => (EventKind::ResizeFailed, Some(reason.to_owned())),
        BackgroundWork::PrepareRewind(_) => (EventKind::RewindFailed, Some(reason.to_owned())),
        BackgroundWork::Snapshot(snapshot) => (EventKind::SnapshotFailed, Some(format!("{snapshot}: {reason}"))),
        // Another run is saved.
        BackgroundWork::SaveHeld(_) => return None,
    })
}
