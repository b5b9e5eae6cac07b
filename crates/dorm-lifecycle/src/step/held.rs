//! The paused run that a rewind has left: it is saved as a snapshot while the sandbox runs, and
//! ended after that.

use super::{Context, Effect, Outcome, Step};
use crate::background::{Background, BackgroundWork};
use crate::event::EventKind;
use crate::rewind::{Abandoned, Held};
use crate::sandbox::Sandbox;
use crate::saved::SleepImage;

/// Adds to `step`, after which the sandbox runs, that `held` is saved.
pub(super) fn begin(mut step: Step, held: Held, context: &Context) -> Step {
    let deadline = context.now.after(context.limits.suspend_with(&held.resources));
    let work = BackgroundWork::SaveHeld(held);
    let background = Background { operation: context.operation.clone(), deadline, work };
    step.next.state = step.next.state.with_background(Some(background));
    step.effect = effect(&step.next);
    step
}

/// Returns the effect that saves the held run of `sandbox`, if it has one.
pub(crate) fn effect(sandbox: &Sandbox) -> Option<Effect> {
    sandbox.held_run().map(|run| Effect::SaveHeld { run })
}

/// It is saved, if it was to be.
pub(super) fn saved(sandbox: &Sandbox, image: Option<&SleepImage>) -> Step {
    let Some(held) = sandbox.state.held() else { return late(sandbox) };
    let step = over(sandbox);
    match (&held.future, image) {
        (Some(future), Some(_)) => step.event_because(EventKind::SnapshotTaken, future.snapshot.as_str()),
        (Some(_), None) | (None, _) => step,
    }
}

/// It could not be saved, and is still held. Saving it is tried again until it succeeds, and only
/// the first failure is told.
pub(super) fn not_saved(sandbox: &Sandbox, reason: &str, context: &Context) -> Step {
    let (Some(held), Some(background)) = (sandbox.state.held(), sandbox.state.background()) else {
        return late(sandbox);
    };
    let again = Context { operation: background.operation.clone(), ..context.clone() };
    let failed = Held { failures: held.failures.saturating_add(1), ..held.clone() };
    let step = begin(Step::to(sandbox, sandbox.state.clone()), failed, &again);
    match &held.future {
        Some(future) if held.failures == 0 => {
            let detail =
                format!("{}: {reason}; the state is held in memory, and saving it is tried again", future.snapshot);
            step.event_because(EventKind::SnapshotFailed, detail)
        }
        Some(_) | None => step,
    }
}

/// Nothing is left of it.
pub(super) fn lost(sandbox: &Sandbox, reason: &str) -> Step {
    match sandbox.state.held() {
        Some(held) => left(over(sandbox), held, reason),
        None => late(sandbox),
    }
}

/// Adds to `step` what is left of a held run that is lost: its last image, if it has one, becomes
/// the snapshot.
pub(super) fn left(mut step: Step, held: &Held, reason: &str) -> Step {
    let Some(future) = &held.future else { return step };
    let snapshot = &future.snapshot;
    let Some(image) = &held.image else {
        let detail = format!("{snapshot}: {reason}; the state that the rewind has left was never saved, and is lost");
        return step.event_because(EventKind::SnapshotFailed, detail);
    };
    let gone = held.since.since(image.taken).as_secs();
    let detail = format!(
        "{snapshot}: {reason}; it is the sleep image of generation {}, and the {gone} s after that are lost",
        image.generation
    );
    step.abandoned =
        Some(Abandoned { future: future.clone(), image: image.clone(), rewound_to: held.rewound_to.clone() });
    step.event_because(EventKind::SnapshotTaken, detail)
}

fn over(sandbox: &Sandbox) -> Step {
    Step::to(sandbox, sandbox.state.with_background(None))
}

fn late(sandbox: &Sandbox) -> Step {
    Step::stays(sandbox, Outcome::Already)
}
