//! Rewinds: how they begin, how the present state becomes an abandoned future, and what happens on
//! failure.

use super::commands::{over, resuming, suspending};
use super::{Context, Effect, Outcome, Step, background};
use crate::denied::Denied;
use crate::event::EventKind;
use crate::ids::{OperationId, RunId};
use crate::rewind::{Abandoned, Rewind, RewindFrom, Rewinding, Rewound};
use crate::sandbox::{Restored, Sandbox};
use crate::saved::{Keep, SleepImage};
use crate::state::State;

/// The saved state of a memory snapshot is copied for the sandbox first.
pub(super) fn begin(sandbox: &Sandbox, wanted: &Rewind, context: &Context) -> Result<Step, Denied> {
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

/// A running sandbox is saved first, even if it is not suspendable, since it does not stay
/// suspended. A suspended one is saved already.
pub(super) fn leave_present(sandbox: &Sandbox, wanted: &Rewind, context: &Context) -> Option<Step> {
    match &sandbox.state {
        State::Running { since, image, background: _ } => {
            let mut step =
                suspending(sandbox, *since, image.as_ref(), Keep::Memory, context).event(EventKind::Suspending);
            if let State::Suspending { rewind, .. } = &mut step.next.state {
                *rewind = Some(Box::new(wanted.clone()));
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
    let effect = effect(sandbox, sandbox.generation + 1, &rewinding.rewind);
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

/// Returns the effect of a rewind of `sandbox` that starts its generation `generation`.
pub(crate) fn effect(sandbox: &Sandbox, generation: u64, rewind: &Rewind) -> Effect {
    Effect::Rewind {
        parked: sandbox.run_id(),
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
    // A sandbox that is not suspendable has no image to fall back to, as before.
    let image = rewind.target.clone().filter(|_| sandbox.spec.suspendable);
    let kept = match (&rewind.future, &present.files) {
        (Some(future), _) => format!("its previous state is now snapshot {}", future.snapshot),
        (None, Some(files)) => format!("its previous files are those of snapshot {files}"),
        (None, None) => "its previous state is not kept".to_owned(),
    };
    let detail = format!("from generation {} to snapshot {}; {kept}", present.generation, rewind.to);
    let mut step = Step::to(sandbox, State::Running { since: context.now, image, background: None })
        .active(context.now)
        .event_because(EventKind::Rewound, detail);
    step.next.run = run;
    step.next.started = Some(context.now);
    step.next.restored = restored;
    step.next.rewound = Some(Rewound { to: rewind.to.clone(), generation: sandbox.generation });
    step.next.spec.resources = rewind.resources;
    step.next.spec.layer.clone_from(&rewind.layer);
    step.next.older.clear();
    step.abandoned =
        rewind.future.clone().map(|future| Abandoned { future, image: present.clone(), rewound_to: rewind.to.clone() });
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
