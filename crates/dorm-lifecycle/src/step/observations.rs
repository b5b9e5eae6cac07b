//! The result of each observation in each state. One that does not fit the state is late or a
//! duplicate and changes nothing.

use super::{Context, Observation, Outcome, Step, background, held, rewind, terminating};
use crate::event::EventKind;
use crate::ids::SnapshotId;
use crate::reach::{SuspendFailures, Unreachable};
use crate::rewind::Rewind;
use crate::sandbox::{Restored, Sandbox};
use crate::saved::{Keep, SleepImage};
use crate::state::{Cause, State};
use crate::time::Timestamp;

pub(super) fn decide(sandbox: &Sandbox, observation: &Observation, context: &Context) -> Step {
    match observation {
        Observation::Started => started(sandbox, context),
        Observation::StartFailed(reason) => start_failed(sandbox, reason, context),
        Observation::Saved(image) => saved(sandbox, image, context),
        Observation::SaveFailed(reason) => continues(sandbox, Over::Save(reason), context),
        Observation::SnapshotTaken => continues(sandbox, Over::Snapshot(Ok(())), context),
        Observation::SnapshotFailed(reason) => continues(sandbox, Over::Snapshot(Err(reason)), context),
        Observation::Attached => background::attached(sandbox),
        Observation::AttachFailed(reason) => background::not_attached(sandbox, reason),
        Observation::EgressSet => background::egress_set(sandbox),
        Observation::EgressFailed(reason) => background::egress_not_set(sandbox, reason),
        Observation::Resized => background::resized(sandbox),
        Observation::ResizeFailed(reason) => background::not_resized(sandbox, reason),
        Observation::RewindPrepared => background::rewind_prepared(sandbox, context),
        Observation::RewindNotPrepared(reason) => background::rewind_not_prepared(sandbox, reason),
        Observation::HeldSaved(image) => held::saved(sandbox, image.as_ref()),
        Observation::HeldNotSaved(reason) => held::not_saved(sandbox, reason, context),
        Observation::HeldLost(reason) => held::lost(sandbox, reason),
        Observation::Woken { run, restored, because } => woken(sandbox, *run, *restored, because.as_deref(), context),
        Observation::WakeFailed(reason) => wake_failed(sandbox, reason, context),
        Observation::RunLost(reason) => run_lost(sandbox, reason, context),
        Observation::Unreachable(reason) => unreachable(sandbox, reason, context),
        Observation::Reachable => reachable(sandbox, context),
        Observation::Stopped => stopped(sandbox, context),
    }
}

fn late(sandbox: &Sandbox) -> Step {
    Step::stays(sandbox, Outcome::Already)
}

fn started(sandbox: &Sandbox, context: &Context) -> Step {
    match &sandbox.state {
        State::Pending { .. } => {
            let mut step = Step::to(sandbox, State::Running { since: context.now, image: None, background: None })
                .event(EventKind::Started)
                .active(context.now);
            step.next.started = Some(context.now);
            step
        }
        State::Running { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Suspended { .. }
        | State::Resuming { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => late(sandbox),
    }
}

fn failed(sandbox: &Sandbox, kind: EventKind, reason: &str, context: &Context) -> Step {
    let state = State::Terminated { cause: Cause::Failed { reason: reason.to_owned() }, at: context.now };
    Step::to(sandbox, state).event_because(kind, reason).event_because(EventKind::Terminated, reason)
}

fn start_failed(sandbox: &Sandbox, reason: &str, context: &Context) -> Step {
    match &sandbox.state {
        State::Pending { .. } => failed(sandbox, EventKind::StartFailed, reason, context),
        State::Running { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Suspended { .. }
        | State::Resuming { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => late(sandbox),
    }
}

fn saved(sandbox: &Sandbox, image: &SleepImage, context: &Context) -> Step {
    match &sandbox.state {
        State::Suspending { files: Some(files), .. } => saved_files(sandbox, image, files),
        // Its run is held.
        State::Suspending { rewind: Some(rewind), .. } if rewind.may_hold => late(sandbox),
        State::Suspending { operation, image: before, rewind, files: None, .. } => {
            let mut step = match rewind {
                None => {
                    let step = Step::to(sandbox, State::Suspended { image: image.clone(), background: None });
                    match &sandbox.unreachable {
                        None => step.event(EventKind::Suspended),
                        Some(silent) => step.event_because(EventKind::Suspended, unquiesced("saved", silent)),
                    }
                }
                Some(rewind) => rewind::saved(sandbox, operation, image, rewind, context),
            };
            let older = before.iter().chain(&sandbox.older).cloned();
            // The newest image counts as one of those to keep.
            step.next.older = older.take(sandbox.spec.retention.generations.saturating_sub(1) as usize).collect();
            step
        }
        State::Pending { .. }
        | State::Running { .. }
        | State::Snapshotting { .. }
        | State::Suspended { .. }
        | State::Resuming { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => late(sandbox),
    }
}

/// The files are the layer that the sandbox is based on from now on. Older images are given up:
/// they are based on the layer before.
fn saved_files(sandbox: &Sandbox, image: &SleepImage, files: &SnapshotId) -> Step {
    let image = SleepImage { files: Some(files.clone()), ..image.clone() };
    let kept = "only its files are kept: it boots from them";
    let detail = match &sandbox.unreachable {
        None => kept.to_owned(),
        Some(silent) => format!("{kept}; {}", unquiesced("saved", silent)),
    };
    let layer = image.saved_state.clone();
    let mut step =
        Step::to(sandbox, State::Suspended { image, background: None }).event_because(EventKind::Suspended, detail);
    step.next.spec.layer = Some(layer);
    step.next.older.clear();
    step
}

/// An operation on a running guest that ended while the guest continues.
#[derive(Clone, Copy)]
enum Over<'a> {
    Save(&'a str),
    Snapshot(Result<(), &'a String>),
}

/// Returns the detail of an event about a guest that could not be asked to quiesce before it was
/// paused.
fn unquiesced(done: &str, silent: &Unreachable) -> String {
    format!("it was {done} without being quiesced, because its agent does not answer: {}", silent.reason)
}

fn continues(sandbox: &Sandbox, over: Over<'_>, context: &Context) -> Step {
    let running = |since: &Timestamp, image: &Option<SleepImage>| {
        Step::to(sandbox, State::Running { since: *since, image: image.clone(), background: None })
    };
    match (&sandbox.state, over) {
        (State::Suspending { since, image, rewind: Some(_), .. }, Over::Save(reason)) => {
            running(since, image).event_because(EventKind::RewindFailed, reason)
        }
        (State::Suspending { since, image, rewind: None, .. }, Over::Save(reason)) => {
            let before = sandbox.suspend_failures.as_ref();
            let failed = SuspendFailures::another(before, reason, context.now);
            let mut step = running(since, image);
            if failed.is_told(before) {
                step = step.event_because(EventKind::SuspendFailed, failed.detail());
            }
            step.next.suspend_failures = Some(failed);
            step
        }
        (State::Snapshotting { since, image, snapshot, .. }, Over::Snapshot(Ok(()))) => {
            let detail = match &sandbox.unreachable {
                None => snapshot.to_string(),
                Some(silent) => format!("{snapshot}: {}", unquiesced("taken", silent)),
            };
            running(since, image).event_because(EventKind::SnapshotTaken, detail)
        }
        (State::Snapshotting { since, image, snapshot, .. }, Over::Snapshot(Err(reason))) => {
            running(since, image).event_because(EventKind::SnapshotFailed, format!("{snapshot}: {reason}"))
        }
        (State::Suspended { .. }, Over::Snapshot(result)) => {
            background::snapshot_over(sandbox, result.map_err(String::as_str))
        }
        (
            State::Pending { .. }
            | State::Running { .. }
            | State::Snapshotting { .. }
            | State::Suspending { .. }
            | State::Suspended { .. }
            | State::Resuming { .. }
            | State::Terminating { .. }
            | State::Terminated { .. },
            Over::Save(_) | Over::Snapshot(_),
        ) => late(sandbox),
    }
}

/// Returns the kind of event for a guest that could not be saved.
fn not_saved(rewind: Option<&Rewind>) -> EventKind {
    if rewind.is_some() { EventKind::RewindFailed } else { EventKind::SuspendFailed }
}

fn woken(sandbox: &Sandbox, run: u64, restored: Restored, because: Option<&str>, context: &Context) -> Step {
    match &sandbox.state {
        State::Resuming { image, rewind: Some(rewinding), .. } => {
            rewind::arrived(sandbox, image, &rewinding.rewind, run, restored, context)
        }
        State::Suspending { rewind: Some(rewind), .. } if rewind.may_hold => {
            rewind::arrived_beside(sandbox, rewind, run, restored, context)
        }
        State::Resuming { image, rewind: None, .. } => {
            let (now, older) = left(image, &sandbox.older, restored);
            let mut step = Step::to(sandbox, State::Running { since: context.now, image: now, background: None })
                .active(context.now);
            if let Some(because) = because {
                step = step.event_because(EventKind::Degraded, because);
            }
            step = match restored {
                Restored::Files { generation } => step
                    .event_because(EventKind::Resumed, format!("it booted from its files of generation {generation}")),
                Restored::Nothing | Restored::Filesystem | Restored::Memory { .. } => step.event(EventKind::Resumed),
            };
            step.next.run = run;
            step.next.started = Some(context.now);
            step.next.restored = restored;
            step.next.older = older;
            step
        }
        State::Pending { .. }
        | State::Running { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Suspended { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => late(sandbox),
    }
}

/// Returns the image that a woken sandbox now falls back to, and the other images that it keeps. An
/// image that could not be restored is kept until a newer one is saved: it may be the only copy of
/// its content.
fn left(image: &SleepImage, older: &[SleepImage], restored: Restored) -> (Option<SleepImage>, Vec<SleepImage>) {
    let all: Vec<_> = std::iter::once(image).chain(older).cloned().collect();
    let used = match restored {
        Restored::Nothing | Restored::Filesystem => return (None, all),
        Restored::Files { generation } => all.iter().position(|image| image.generation == generation).unwrap_or(0),
        Restored::Memory { generation } => {
            generation.and_then(|generation| all.iter().position(|image| image.generation == generation)).unwrap_or(0)
        }
    };
    let (mut before, mut after) = (all.clone(), Vec::new());
    if used < before.len() {
        after = before.split_off(used + 1);
    }
    let used = before.pop();
    before.append(&mut after);
    (used, before)
}

fn wake_failed(sandbox: &Sandbox, reason: &str, context: &Context) -> Step {
    match &sandbox.state {
        State::Resuming { image, rewind: Some(rewinding), .. } => {
            rewind::failed(sandbox, image, rewinding.from, reason, context)
        }
        // Suspended, it would keep the name and the place of a sandbox that its claimer did not
        // get.
        State::Resuming { rewind: None, .. } if sandbox.is_being_claimed() => {
            terminating(sandbox, Cause::Failed { reason: reason.to_owned() }, context)
                .first_event_because(EventKind::ResumeFailed, reason)
        }
        State::Resuming { image, rewind: None, .. } => {
            Step::to(sandbox, State::Suspended { image: image.clone(), background: None })
                .event_because(EventKind::ResumeFailed, reason)
        }
        State::Pending { .. }
        | State::Running { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Suspended { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => late(sandbox),
    }
}

fn run_lost(sandbox: &Sandbox, reason: &str, context: &Context) -> Step {
    match &sandbox.state {
        State::Running { since, image, background } => {
            let mut step = lost(sandbox, *since, image.as_ref(), reason, context);
            let also = background.as_ref().and_then(|background| background::failed_with_run(background, reason));
            step.events.splice(0..0, also);
            match sandbox.state.held() {
                Some(held) => held::left(step, held, reason),
                None => step,
            }
        }
        State::Snapshotting { since, image, snapshot, .. } => {
            let mut step = lost(sandbox, *since, image.as_ref(), reason, context);
            step.events.insert(0, (EventKind::SnapshotFailed, Some(format!("{snapshot}: {reason}"))));
            step
        }
        State::Suspending { since, image, rewind, .. } => {
            let mut step = lost(sandbox, *since, image.as_ref(), reason, context);
            step.events.insert(0, (not_saved(rewind.as_deref()), Some(reason.to_owned())));
            step
        }
        // The parked run was only a cache of the image.
        State::Suspended { .. } => Step::to(sandbox, sandbox.state.clone()).event_because(EventKind::Evicted, reason),
        // The operation that starts, wakes or stops the run reports its end.
        State::Pending { .. } | State::Resuming { .. } | State::Terminating { .. } | State::Terminated { .. } => {
            late(sandbox)
        }
    }
}

fn lost(sandbox: &Sandbox, since: Timestamp, image: Option<&SleepImage>, reason: &str, context: &Context) -> Step {
    match image.or(sandbox.older.first()) {
        Some(image) => {
            let gone = context.now.since(image.taken).as_secs();
            let back = match image.keeps() {
                Keep::Memory => "its sleep image",
                Keep::Files => "its files",
            };
            let detail = format!(
                "{reason}; it is back at {back} of generation {}, and the {gone} s since then are lost",
                image.generation
            );
            let mut step = Step::to(sandbox, State::Suspended { image: image.clone(), background: None })
                .event_because(EventKind::RunLost, detail);
            step.next.older.retain(|older| older.saved_state != image.saved_state);
            step
        }
        None => {
            let ran = context.now.since(since).as_secs();
            let reason = format!("{reason}; it ran for {ran} s and had no sleep image to return to");
            failed(sandbox, EventKind::RunLost, &reason, context)
        }
    }
}

fn unreachable(sandbox: &Sandbox, reason: &str, context: &Context) -> Step {
    if !sandbox.state.has_run() || sandbox.unreachable.is_some() {
        return late(sandbox);
    }
    let mut step = Step::to(sandbox, sandbox.state.clone()).event_because(EventKind::Unreachable, reason);
    step.next.unreachable = Some(Unreachable { since: context.now, reason: reason.to_owned() });
    step
}

fn reachable(sandbox: &Sandbox, context: &Context) -> Step {
    let Some(silent) = &sandbox.unreachable else { return late(sandbox) };
    let detail = format!("after {} s", context.now.since(silent.since).as_secs());
    let mut step = Step::to(sandbox, sandbox.state.clone()).event_because(EventKind::Reachable, detail);
    step.next.unreachable = None;
    step
}

fn stopped(sandbox: &Sandbox, context: &Context) -> Step {
    match &sandbox.state {
        State::Terminating { cause, .. } => {
            Step::to(sandbox, State::Terminated { cause: cause.clone(), at: context.now })
                .event_because(EventKind::Terminated, cause.to_string())
        }
        State::Pending { .. }
        | State::Running { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Suspended { .. }
        | State::Resuming { .. }
        | State::Terminated { .. } => late(sandbox),
    }
}
