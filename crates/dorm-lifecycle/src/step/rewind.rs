//! Rewinds: how they begin, how the present state becomes an abandoned future, and what happens on
//! failure.

use super::commands::{over, resuming, suspending};
use super::{Context, Effect, Outcome, Step, background, held};
use crate::denied::Denied;
use crate::event::EventKind;
use crate::ids::{OperationId, RunId};
use crate::rewind::{Abandoned, Held, Rewind, RewindFrom, Rewinding, Rewound};
use crate::sandbox::{Restored, Sandbox};
use crate::saved::{Keep, SleepImage};
use crate::state::State;

/// The saved state of a memory snapshot is copied for the sandbox first.
pub(super) fn begin(sandbox: &Sandbox, wanted: &Rewind, context: &Context) -> Result<Step, Denied> {
    let may_hold = wanted.may_hold && can_hold(sandbox);
    let wanted = &Rewind { may_hold, ..wanted.clone() };
    let mut step = match &sandbox.state {
        // Two snapshots must not have one saved state.
        State::Suspended { image: SleepImage { files: Some(files), .. }, .. } if wanted.future.is_some() => {
            return Err(Denied::IsSnapshot(files.clone()));
        }
        State::Running { background: None, .. } | State::Suspended { background: None, .. } => {
            let prepared = background::prepare_rewind(sandbox, wanted, context);
            match prepared.or_else(|| leave_present(sandbox, wanted, context)) {
                Some(step) => step,
                None => return Ok(Step::stays(sandbox, Outcome::Already)),
            }
        }
        State::Running { background: Some(_), .. }
        | State::Suspended { background: Some(_), .. }
        | State::Pending { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Resuming { .. } => {
            return Ok(Step::stays(sandbox, Outcome::Wait));
        }
        State::Terminating { cause, .. } | State::Terminated { cause, .. } => return Err(over(cause)),
    };
    step.events.insert(0, (EventKind::Rewinding, Some(format!("to snapshot {}", wanted.to))));
    Ok(step)
}

/// A running sandbox is held if it may be, or else saved first, even if it is not suspendable,
/// since it does not stay suspended. A suspended one is saved already.
pub(super) fn leave_present(sandbox: &Sandbox, wanted: &Rewind, context: &Context) -> Option<Step> {
    match &sandbox.state {
        State::Running { since, image, background: _ } => {
            let mut step =
                suspending(sandbox, *since, image.as_ref(), Keep::Memory, context).event(EventKind::Suspending);
            if let State::Suspending { rewind, deadline, .. } = &mut step.next.state {
                if wanted.may_hold {
                    *deadline = context.now.after(context.limits.rewind_of(sandbox, wanted));
                }
                *rewind = Some(Box::new(wanted.clone()));
            }
            if wanted.may_hold {
                step.next.generation += 1;
                step.effect = Some(effect(sandbox, step.next.generation, wanted, true));
            }
            Some(step)
        }
        State::Suspended { image, background: _ } => {
            let rewinding = Rewinding { rewind: wanted.clone(), from: RewindFrom::Suspended };
            Some(restores_target(sandbox, &context.operation, image, rewinding, context))
        }
        State::Pending { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Resuming { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => None,
    }
}

/// The present state is saved, in the same operation.
pub(super) fn saved(
    sandbox: &Sandbox,
    operation: &OperationId,
    image: &SleepImage,
    rewind: &Rewind,
    context: &Context,
) -> Step {
    let rewinding = Rewinding { rewind: rewind.clone(), from: RewindFrom::Running };
    restores_target(sandbox, operation, image, rewinding, context)
}

fn restores_target(
    sandbox: &Sandbox,
    operation: &OperationId,
    image: &SleepImage,
    rewinding: Rewinding,
    context: &Context,
) -> Step {
    let effect = effect(sandbox, sandbox.generation + 1, &rewinding.rewind, false);
    let state = State::Resuming {
        operation: operation.clone(),
        deadline: context.now.after(context.limits.rewind_of(sandbox, &rewinding.rewind)),
        image: image.clone(),
        rewind: Some(Box::new(rewinding)),
    };
    let mut step = Step::to(sandbox, state).event(EventKind::Resuming).effect(effect);
    step.next.generation += 1;
    step
}

/// Returns whether `sandbox` has a run that can be saved after another one has started: not if the
/// other one writes to the same volumes. Files without memory are a snapshot already, so they
/// cannot become the one of a run that is lost.
fn can_hold(sandbox: &Sandbox) -> bool {
    matches!(sandbox.state, State::Running { .. })
        && sandbox.spec.attachments.is_empty()
        && sandbox.state.image().is_none_or(|image| image.files.is_none())
}

/// Returns the effect of a rewind of `sandbox` that starts its generation `generation`.
pub(crate) fn effect(sandbox: &Sandbox, generation: u64, rewind: &Rewind, holds_present: bool) -> Effect {
    Effect::Rewind {
        present: sandbox.run_id(),
        holds_present,
        fresh: RunId { sandbox: sandbox.id.clone(), generation },
        target: rewind.target.as_ref().map(|target| target.saved_state.clone()),
        layer: rewind.layer.clone(),
        resources: rewind.resources,
    }
}

/// A guest answers from the snapshot: the state before the rewind becomes the abandoned future.
pub(super) fn arrived(
    sandbox: &Sandbox,
    present: &SleepImage,
    rewind: &Rewind,
    run: u64,
    restored: Restored,
    context: &Context,
) -> Step {
    let kept = match (&rewind.future, &present.files) {
        (Some(future), _) => format!("its previous state is now snapshot {}", future.snapshot),
        (None, Some(files)) => format!("its previous files are those of snapshot {files}"),
        (None, None) => "its previous state is not kept".to_owned(),
    };
    let detail = format!("from generation {} to snapshot {}; {kept}", present.generation, rewind.to);
    let mut step = past(sandbox, rewind, run, restored, context).event_because(EventKind::Rewound, detail);
    step.abandoned =
        rewind.future.clone().map(|future| Abandoned { future, image: present.clone(), rewound_to: rewind.to.clone() });
    step
}

/// A guest answers from the snapshot while the present run is held: it is saved now, or only ended.
pub(super) fn arrived_beside(
    sandbox: &Sandbox,
    rewind: &Rewind,
    run: u64,
    restored: Restored,
    context: &Context,
) -> Step {
    let generation = sandbox.generation - 1;
    let held = Held {
        run: sandbox.run,
        generation,
        since: context.now,
        rewound_to: rewind.to.clone(),
        future: rewind.future.clone(),
        image: sandbox.state.image().or(sandbox.older.first()).cloned(),
        layer: sandbox.spec.layer.clone(),
        resources: sandbox.spec.resources,
        failures: 0,
    };
    let kept = match &rewind.future {
        Some(future) => format!("its previous state is being saved as snapshot {}", future.snapshot),
        None => "its previous state is not kept".to_owned(),
    };
    let detail = format!("from generation {generation} to snapshot {}; {kept}", rewind.to);
    let mut step = past(sandbox, rewind, run, restored, context).event_because(EventKind::Rewound, detail);
    // These are facts about the held run.
    step.next.unreachable = None;
    step.next.suspend_failures = None;
    held::begin(step, held, context)
}

/// The sandbox runs from the snapshot.
fn past(sandbox: &Sandbox, rewind: &Rewind, run: u64, restored: Restored, context: &Context) -> Step {
    // A sandbox that is not suspendable has no image to fall back to, as before.
    let image = rewind.target.clone().filter(|_| sandbox.spec.suspendable);
    let state = State::Running { since: context.now, image, background: None };
    let mut step = Step::to(sandbox, state).active(context.now);
    step.next.run = run;
    step.next.started = Some(context.now);
    step.next.restored = restored;
    step.next.rewound = Some(Rewound { to: rewind.to.clone(), generation: sandbox.generation });
    step.next.spec.resources = rewind.resources;
    step.next.spec.layer.clone_from(&rewind.layer);
    step.next.older.clear();
    step
}

/// The snapshot could not be restored: a sandbox that was running continues from the present state,
/// a suspended one stays suspended.
pub(super) fn failed(
    sandbox: &Sandbox,
    present: &SleepImage,
    from: RewindFrom,
    reason: &str,
    context: &Context,
) -> Step {
    let mut step = match from {
        RewindFrom::Running => resuming(sandbox, present, context),
        RewindFrom::Suspended => Step::to(sandbox, State::Suspended { image: present.clone(), background: None }),
    };
    step.events.insert(0, (EventKind::RewindFailed, Some(reason.to_owned())));
    step
}
