//! The result of each command in each state.

use std::time::Duration;

use super::{Command, Context, Effect, Outcome, Step, background, rewind, terminating};
use crate::checkpoints::Checkpoints;
use crate::denied::Denied;
use crate::egress::Egress;
use crate::event::EventKind;
use crate::ids::{HoldId, RunId, SnapshotId};
use crate::pool::{Claim, PoolMember};
use crate::ports::PortRules;
use crate::reach::{SUSPEND_FAILURES_MAX, SuspendFailures};
use crate::resources::Resize;
use crate::sandbox::{Hold, Sandbox};
use crate::saved::{Keep, SleepImage, SnapshotKind};
use crate::spec::{OnSuspendFailure, OnTimeout, SleepRetention, Timeouts};
use crate::state::{Cause, State};
use crate::time::Timestamp;
use crate::update::Update;
use crate::volume::Attachment;

pub(super) fn decide(sandbox: &Sandbox, command: &Command, context: &Context) -> Result<Step, Denied> {
    match command {
        Command::Suspend(keep) => suspend(sandbox, *keep, context),
        Command::Resume { total } => resume(sandbox, *total, context),
        Command::Wake => wake(sandbox, context),
        Command::Snapshot(snapshot, kind) => take_snapshot(sandbox, snapshot, *kind, context),
        Command::Rewind(wanted) => rewind::begin(sandbox, wanted, context),
        Command::SetTimeouts(timeouts) => set_timeouts(sandbox, *timeouts, context),
        Command::Extend(by) => extend(sandbox, *by, context),
        Command::Update(update) => change(sandbox, update),
        Command::SetRetention(retention) => set_retention(sandbox, *retention),
        Command::SetCheckpoints(checkpoints) => set_checkpoints(sandbox, checkpoints.as_ref()),
        Command::SetAttachments(attachments) => set_attachments(sandbox, attachments, context),
        Command::SetEgress(egress) => set_egress(sandbox, egress, context),
        Command::Resize(wanted) => resize(sandbox, *wanted, context),
        Command::Claim(claim) => take(sandbox, claim, context),
        Command::Discard => discard(sandbox, context),
        Command::Hold(hold) => hold_awake(sandbox, hold, context),
        Command::Release(hold) => release(sandbox, hold, context),
        Command::Touch => touch(sandbox, context),
        Command::Expire => Ok(expire(sandbox, context)),
        Command::Terminate => Ok(terminate(sandbox, context)),
    }
}

pub(super) fn over(cause: &Cause) -> Denied {
    Denied::Terminated(cause.clone())
}

/// A sandbox that is not suspendable may still be suspended with its files only: the next run
/// boots, so no memory has to outlive a run.
fn suspend(sandbox: &Sandbox, keep: Keep, context: &Context) -> Result<Step, Denied> {
    match &sandbox.state {
        State::Terminated { cause, .. } | State::Terminating { cause, .. } => Err(over(cause)),
        _ if !sandbox.spec.suspendable && keep == Keep::Memory => Err(Denied::NotSuspendable),
        State::Running { since, image, background: None } => {
            let mut step = suspending(sandbox, *since, image.as_ref(), keep, context).event(EventKind::Suspending);
            // An explicit request reports its first failure, whatever failed before.
            step.next.suspend_failures = None;
            Ok(step)
        }
        State::Suspended { .. } => Ok(Step::stays(sandbox, Outcome::Already)),
        State::Running { background: Some(_), .. }
        | State::Pending { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Resuming { .. } => Ok(Step::stays(sandbox, Outcome::Wait)),
    }
}

pub(super) fn suspending(
    sandbox: &Sandbox,
    since: Timestamp,
    image: Option<&SleepImage>,
    keep: Keep,
    context: &Context,
) -> Step {
    let state = State::Suspending {
        operation: context.operation.clone(),
        deadline: context.now.after(context.limits.suspend_of(sandbox)),
        since,
        image: image.cloned(),
        rewind: None,
        files: (keep == Keep::Files).then(|| context.files.clone()),
    };
    Step::to(sandbox, state).effect(Effect::Save { run: sandbox.run_id(), keep })
}

fn resume(sandbox: &Sandbox, total: Option<Duration>, context: &Context) -> Result<Step, Denied> {
    match &sandbox.state {
        State::Suspended { image, background: None } => {
            let mut step = resuming(sandbox, image, context);
            step.next.spec.timeouts.total = total.or(sandbox.spec.timeouts.total);
            Ok(step)
        }
        State::Running { .. } | State::Snapshotting { .. } => match total {
            Some(total) => extend(sandbox, total, context),
            None => Ok(Step::stays(sandbox, Outcome::Already)),
        },
        State::Suspended { background: Some(_), .. }
        | State::Pending { .. }
        | State::Suspending { .. }
        | State::Resuming { .. } => Ok(Step::stays(sandbox, Outcome::Wait)),
        State::Terminating { cause, .. } | State::Terminated { cause, .. } => Err(over(cause)),
    }
}

/// The limit of the woken run is recorded in the commit that begins the wake.
fn wake(sandbox: &Sandbox, context: &Context) -> Result<Step, Denied> {
    let mut step = resume(sandbox, None, context)?;
    step.next.woken |= step.outcome == Outcome::Changed;
    Ok(step)
}

pub(super) fn resuming(sandbox: &Sandbox, image: &SleepImage, context: &Context) -> Step {
    let generation = sandbox.generation + 1;
    let fresh = RunId { sandbox: sandbox.id.clone(), generation };
    let state = State::Resuming {
        operation: context.operation.clone(),
        deadline: context.now.after(context.limits.resume_of(sandbox)),
        image: image.clone(),
        rewind: None,
    };
    let effect = Effect::Wake { parked: sandbox.run_id(), fresh, image: image.clone() };
    let mut step = Step::to(sandbox, state).event(EventKind::Resuming).effect(effect);
    step.next.generation = generation;
    step.next.woken = false;
    step
}

fn take_snapshot(
    sandbox: &Sandbox,
    snapshot: &SnapshotId,
    kind: SnapshotKind,
    context: &Context,
) -> Result<Step, Denied> {
    match &sandbox.state {
        State::Running { since, image, background: None } => {
            let state = State::Snapshotting {
                operation: context.operation.clone(),
                deadline: context.now.after(context.limits.snapshot_of(sandbox)),
                snapshot: snapshot.clone(),
                since: *since,
                image: image.clone(),
            };
            let effect = Effect::Snapshot { run: sandbox.run_id(), snapshot: snapshot.clone() };
            Ok(Step::to(sandbox, state).event_because(EventKind::Snapshotting, snapshot.as_str()).effect(effect))
        }
        State::Suspended { image, .. } if image.keeps() == Keep::Files && kind == SnapshotKind::Memory => {
            Err(Denied::NoMemory)
        }
        // A suspended sandbox is unchanged: its snapshot is taken from the sleep image, without any
        // run.
        State::Suspended { background: None, .. } => Ok(background::snapshot(sandbox, snapshot, context)),
        State::Running { background: Some(_), .. }
        | State::Suspended { background: Some(_), .. }
        | State::Pending { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Resuming { .. } => Ok(Step::stays(sandbox, Outcome::Wait)),
        State::Terminating { cause, .. } | State::Terminated { cause, .. } => Err(over(cause)),
    }
}

fn set_timeouts(sandbox: &Sandbox, timeouts: Timeouts, context: &Context) -> Result<Step, Denied> {
    if let State::Terminating { cause, .. } | State::Terminated { cause, .. } = &sandbox.state {
        return Err(over(cause));
    }
    let mut step = Step::to(sandbox, sandbox.state.clone()).event(EventKind::TimeoutsSet);
    step.next.spec.timeouts = timeouts;
    step.next.woken = false;
    // The new limits count from now, as a caller who extends them expects.
    step.next.timeouts_set = context.now;
    step.next.suspend_failures = None;
    Ok(step.active(context.now))
}

/// Returns the time from which the `total` limit of the present run counts; `None` if that is not
/// known before its next run.
fn counts_from(sandbox: &Sandbox) -> Option<Timestamp> {
    match &sandbox.state {
        State::Running { since, .. } | State::Snapshotting { since, .. } | State::Suspending { since, .. } => {
            Some(*since.max(&sandbox.timeouts_set))
        }
        State::Pending { .. }
        | State::Suspended { .. }
        | State::Resuming { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => None,
    }
}

/// Never shortens the limit, neither for the present run nor for the next one.
fn extend(sandbox: &Sandbox, by: Duration, context: &Context) -> Result<Step, Denied> {
    if let State::Terminating { cause, .. } | State::Terminated { cause, .. } = &sandbox.state {
        return Err(over(cause));
    }
    // Without a limit, there is no deadline to postpone.
    let Some(total) = sandbox.total() else { return Ok(Step::stays(sandbox, Outcome::Already)) };
    let wanted = context.now.after(by);
    let ends = counts_from(sandbox).map(|from| from.after(total));
    if ends.map_or(total >= by, |ends| ends >= wanted) {
        return Ok(Step::stays(sandbox, Outcome::Already));
    }
    let mut step = Step::to(sandbox, sandbox.state.clone()).event(EventKind::TimeoutsSet);
    // A limit that a wake has set is left: the ordinary one, if it is longer, holds from now on.
    let total = sandbox.spec.timeouts.total.map_or(by, |ordinary| ordinary.max(by));
    step.next.spec.timeouts.total = Some(total);
    step.next.woken = false;
    if ends.is_some() {
        step.next.timeouts_set = context.now.before(total.saturating_sub(by));
    }
    step.next.suspend_failures = None;
    Ok(step.active(context.now))
}

fn change(sandbox: &Sandbox, update: &Update) -> Result<Step, Denied> {
    if let State::Terminating { cause, .. } | State::Terminated { cause, .. } = &sandbox.state {
        return Err(over(cause));
    }
    let (spec, changed) = update.apply(&sandbox.spec);
    if changed.is_empty() {
        return Ok(Step::stays(sandbox, Outcome::Already));
    }
    if spec.on_timeout == OnTimeout::Suspend && !spec.suspendable {
        return Err(Denied::NotSuspendable);
    }
    let rules = spec.port_rules.0.len();
    if rules > PortRules::MAX {
        return Err(Denied::TooManyPortRules(rules));
    }
    spec.annotations.check()?;
    let mut step = Step::to(sandbox, sandbox.state.clone()).event_because(EventKind::Updated, changed.join(", "));
    step.next.spec = spec;
    Ok(step)
}

/// Refuses a sandbox that does not wait in a pool.
fn waits_in_pool(sandbox: &Sandbox) -> Result<PoolMember, Denied> {
    if let State::Terminating { cause, .. } | State::Terminated { cause, .. } = &sandbox.state {
        return Err(over(cause));
    }
    sandbox.pool.clone().filter(|member| !member.is_claimed).ok_or(Denied::NotInPool)
}

/// It is claimed in the commit that begins its wake, so that it is never claimed twice, and a
/// daemon that dies midway wakes it for the one who claimed it. If the wake fails, it is
/// terminated.
fn take(sandbox: &Sandbox, claim: &Claim, context: &Context) -> Result<Step, Denied> {
    let member = waits_in_pool(sandbox)?;
    let State::Suspended { image, background: None } = &sandbox.state else { return Err(Denied::NotInPool) };
    let mut step = resuming(sandbox, image, context).event_because(EventKind::Claimed, member.pool.as_str());
    step.next.spec = claim.apply(&sandbox.spec);
    step.next.pool = Some(PoolMember { is_claimed: true, ..member });
    step.next.timeouts_set = context.now;
    Ok(step.active(context.now))
}

fn discard(sandbox: &Sandbox, context: &Context) -> Result<Step, Denied> {
    waits_in_pool(sandbox)?;
    Ok(terminate(sandbox, context))
}

fn set_retention(sandbox: &Sandbox, retention: SleepRetention) -> Result<Step, Denied> {
    if let State::Terminating { cause, .. } | State::Terminated { cause, .. } = &sandbox.state {
        return Err(over(cause));
    }
    if sandbox.spec.retention == retention {
        return Ok(Step::stays(sandbox, Outcome::Already));
    }
    let mut step = Step::to(sandbox, sandbox.state.clone()).event(EventKind::RetentionSet);
    step.next.spec.retention = retention;
    Ok(step)
}

fn set_checkpoints(sandbox: &Sandbox, checkpoints: Option<&Checkpoints>) -> Result<Step, Denied> {
    if let State::Terminating { cause, .. } | State::Terminated { cause, .. } = &sandbox.state {
        return Err(over(cause));
    }
    if sandbox.spec.checkpoints.as_ref() == checkpoints {
        return Ok(Step::stays(sandbox, Outcome::Already));
    }
    let mut step = Step::to(sandbox, sandbox.state.clone()).event(EventKind::CheckpointsSet);
    step.next.spec.checkpoints = checkpoints.cloned();
    Ok(step)
}

/// Returns whether a change of a sandbox that is running or suspended can begin now; `false` while
/// another operation is in progress.
fn is_free(sandbox: &Sandbox) -> Result<bool, Denied> {
    match &sandbox.state {
        State::Running { background: None, .. } | State::Suspended { background: None, .. } => Ok(true),
        State::Running { background: Some(_), .. }
        | State::Suspended { background: Some(_), .. }
        | State::Pending { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Resuming { .. } => Ok(false),
        State::Terminating { cause, .. } | State::Terminated { cause, .. } => Err(over(cause)),
    }
}

/// Waits for an operation in progress, which may mount or save the attached volumes.
fn set_attachments(sandbox: &Sandbox, attachments: &[Attachment], context: &Context) -> Result<Step, Denied> {
    if !is_free(sandbox)? {
        return Ok(Step::stays(sandbox, Outcome::Wait));
    }
    if sandbox.spec.attachments == attachments {
        return Ok(Step::stays(sandbox, Outcome::Already));
    }
    Ok(background::attach(sandbox, attachments, context))
}

/// Waits for an operation in progress, which may start or save a run with the present policy.
fn set_egress(sandbox: &Sandbox, egress: &Egress, context: &Context) -> Result<Step, Denied> {
    let is_free = is_free(sandbox)?;
    if sandbox.spec.egress == *egress && sandbox.state.background().is_none() {
        return Ok(Step::stays(sandbox, Outcome::Already));
    }
    if !sandbox.spec.egress.has_device() {
        return Err(Denied::NoNetworkDevice);
    }
    if !egress.has_device() {
        return Err(Denied::NetworkDeviceStays);
    }
    if !is_free {
        return Ok(Step::stays(sandbox, Outcome::Wait));
    }
    Ok(background::egress(sandbox, egress, context))
}

/// Waits for an operation in progress, which may start or save a run with the present limits.
fn resize(sandbox: &Sandbox, wanted: Resize, context: &Context) -> Result<Step, Denied> {
    let resources = wanted.apply(sandbox.spec.resources);
    let is_free = is_free(sandbox)?;
    resources.check()?;
    if sandbox.spec.resources == resources && sandbox.state.background().is_none() {
        return Ok(Step::stays(sandbox, Outcome::Already));
    }
    if !is_free {
        return Ok(Step::stays(sandbox, Outcome::Wait));
    }
    Ok(background::resize(sandbox, resources, context))
}

/// The maximum number of holds on one sandbox.
const HOLDS: usize = 64;

fn hold_awake(sandbox: &Sandbox, hold: &Hold, context: &Context) -> Result<Step, Denied> {
    if let State::Terminating { cause, .. } | State::Terminated { cause, .. } = &sandbox.state {
        return Err(over(cause));
    }
    let mut step = Step::to(sandbox, sandbox.state.clone()).event_because(EventKind::Held, hold.reason.as_str());
    step.next.holds.retain(|other| other.until > context.now && other.id != hold.id);
    if step.next.holds.len() >= HOLDS {
        return Err(Denied::TooManyHolds(HOLDS));
    }
    step.next.holds.push(hold.clone());
    Ok(step)
}

fn release(sandbox: &Sandbox, id: &HoldId, context: &Context) -> Result<Step, Denied> {
    if let State::Terminating { cause, .. } | State::Terminated { cause, .. } = &sandbox.state {
        return Err(over(cause));
    }
    let Some(hold) = sandbox.holds.iter().find(|hold| hold.id == *id) else {
        return Ok(Step::stays(sandbox, Outcome::Already));
    };
    let mut step = Step::to(sandbox, sandbox.state.clone()).event_because(EventKind::Released, hold.reason.as_str());
    step.next.holds.retain(|hold| hold.id != *id && hold.until > context.now);
    Ok(step)
}

fn touch(sandbox: &Sandbox, context: &Context) -> Result<Step, Denied> {
    match &sandbox.state {
        State::Terminating { cause, .. } | State::Terminated { cause, .. } => Err(over(cause)),
        State::Pending { .. }
        | State::Running { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Suspended { .. }
        | State::Resuming { .. } => Ok(Step::to(sandbox, sandbox.state.clone()).active(context.now)),
    }
}

fn expire(sandbox: &Sandbox, context: &Context) -> Step {
    let Some(deadline) = sandbox.deadline().filter(|deadline| deadline.at <= context.now) else {
        return Step::stays(sandbox, Outcome::Already);
    };
    let State::Running { since, image, background: None } = &sandbox.state else {
        return Step::stays(sandbox, Outcome::Already);
    };
    let passed = format!("its {} has passed", deadline.kind.as_str());
    let (step, passed) = match (sandbox.spec.on_timeout.keeps(), &sandbox.suspend_failures) {
        (None, _) => (terminating(sandbox, Cause::Timeout, context), passed),
        (Some(_), Some(failed)) if gives_up(sandbox, failed) => {
            let reason = format!("{passed} and it could not be suspended: {}", failed.detail());
            (terminating(sandbox, Cause::Failed { reason: reason.clone() }, context), reason)
        }
        // The events of the first attempt also cover the attempts that follow it.
        (Some(keep), Some(_)) => return suspending(sandbox, *since, image.as_ref(), keep, context),
        (Some(keep), None) => {
            (suspending(sandbox, *since, image.as_ref(), keep, context).event(EventKind::Suspending), passed)
        }
    };
    step.first_event_because(EventKind::DeadlinePassed, passed)
}

fn gives_up(sandbox: &Sandbox, failed: &SuspendFailures) -> bool {
    match sandbox.spec.on_suspend_failure {
        OnSuspendFailure::Keep => false,
        OnSuspendFailure::Terminate => failed.count >= SUSPEND_FAILURES_MAX,
    }
}

fn terminate(sandbox: &Sandbox, context: &Context) -> Step {
    match &sandbox.state {
        State::Running { background: None, .. } | State::Suspended { background: None, .. } => {
            terminating(sandbox, Cause::Requested, context)
        }
        State::Running { background: Some(_), .. }
        | State::Suspended { background: Some(_), .. }
        | State::Pending { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Resuming { .. }
        | State::Terminating { .. } => Step::stays(sandbox, Outcome::Wait),
        State::Terminated { .. } => Step::stays(sandbox, Outcome::Already),
    }
}
