//! Runs that are alive although the record of their sandbox does not expect them: the record is
//! older than the run, or the sleep image it names is gone.
//!
//! Both have an external cause: a database restored from a backup, or lost files. Such a run holds
//! state that exists nowhere else, so it takes precedence over the record.

use super::RunCondition;
use crate::event::EventKind;
use crate::ids::{RunId, SavedStateId};
use crate::sandbox::Sandbox;
use crate::saved::SleepImage;
use crate::state::State;
use crate::step::Step;
use crate::time::Timestamp;

/// Returns the live run that takes precedence over the record of `sandbox`, whose runs on this host
/// are `found`. `is_gone` returns whether the files of a saved state are gone.
pub fn preferred_run(
    sandbox: &Sandbox,
    found: &[(RunId, RunCondition)],
    is_gone: impl Fn(&SavedStateId) -> bool,
) -> Option<RunId> {
    let alive = |(_, condition): &&(RunId, RunCondition)| match condition {
        RunCondition::Running | RunCondition::Silent | RunCondition::Paused | RunCondition::Parked => true,
        RunCondition::Broken => false,
    };
    // A generation is recorded before its run starts, so a later run means that its record is
    // missing.
    let newest = found.iter().filter(alive).max_by_key(|(run, _)| run.generation);
    let newer = newest.filter(|(run, _)| run.generation > sandbox.generation).map(|(run, _)| run.clone());
    let own = sandbox.run_id();
    let condition = found.iter().filter(alive).find(|(run, _)| *run == own).map(|(_, condition)| *condition);
    match (&sandbox.state, condition) {
        // Termination was requested, and that is final.
        (State::Terminating { .. } | State::Terminated { .. }, _) => None,
        _ if newer.is_some() => newer,
        (State::Suspended { image, .. } | State::Resuming { image, rewind: None, .. }, Some(_))
            if is_gone(&image.saved_state) =>
        {
            Some(own)
        }
        // No wake was recorded since the image was saved, so the later record of a wake is missing.
        (State::Suspended { image, .. }, Some(RunCondition::Running)) if image.generation == sandbox.generation => {
            Some(own)
        }
        (
            State::Pending { .. }
            | State::Running { .. }
            | State::Snapshotting { .. }
            | State::Suspending { .. }
            | State::Suspended { .. }
            | State::Resuming { .. },
            _,
        ) => None,
    }
}

/// Returns the change that makes `sandbox` continue with `run`. Saved states whose files are gone
/// are dropped.
pub fn prefer_run(sandbox: &Sandbox, run: &RunId, is_gone: impl Fn(&SavedStateId) -> bool, now: Timestamp) -> Step {
    let mut images: Vec<SleepImage> = sandbox.images().filter(|image| !is_gone(&image.saved_state)).cloned().collect();
    let image = if images.is_empty() { None } else { Some(images.remove(0)) };
    let detail = format!(
        "its record says that it is {}, but run {run} is alive; it continues with that run. The database may be older than the run",
        sandbox.state.name()
    );
    let next = Sandbox {
        state: State::Running { since: now, image, background: None },
        older: images,
        run: run.generation,
        // The next generation must differ from any that the run was told.
        generation: sandbox.generation.max(run.generation) + 1,
        ..sandbox.clone()
    };
    let mut step = Step::silent(next);
    step.events = vec![(EventKind::Recovered, Some(detail)), (EventKind::Resumed, None)];
    step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::check;
    use crate::table::sandboxes;

    fn run(sandbox: &Sandbox, generation: u64) -> RunId {
        RunId { sandbox: sandbox.id.clone(), generation }
    }

    #[test]
    fn a_living_run_that_is_newer_than_the_record_is_preferred_in_every_state_but_the_last_two() {
        for (_, sandbox) in sandboxes(true) {
            let newer = run(&sandbox, sandbox.generation + 3);
            for condition in [RunCondition::Running, RunCondition::Paused, RunCondition::Parked] {
                let preferred = preferred_run(&sandbox, &[(newer.clone(), condition)], |_| false);
                let is_over = matches!(sandbox.state, State::Terminating { .. } | State::Terminated { .. });
                assert_eq!(preferred, (!is_over).then(|| newer.clone()), "{sandbox:?}");
                let next = prefer_run(&sandbox, &newer, |_| false, Timestamp::from_millis(1)).next;
                check(&next).unwrap();
                assert_eq!((next.run_id(), next.state.name().as_str()), (newer.clone(), "running"));
            }
            assert_eq!(preferred_run(&sandbox, &[(newer, RunCondition::Broken)], |_| false), None);
        }
    }

    #[test]
    fn a_parked_run_is_preferred_to_an_image_that_is_gone_and_to_no_other() {
        for (_, sandbox) in sandboxes(true) {
            let (State::Suspended { image, .. } | State::Resuming { image, rewind: None, .. }) = &sandbox.state else {
                continue;
            };
            let parked = [(sandbox.run_id(), RunCondition::Parked)];
            assert_eq!(preferred_run(&sandbox, &parked, |_| false), None);
            assert_eq!(preferred_run(&sandbox, &parked, |gone| *gone == image.saved_state), Some(sandbox.run_id()));
            let next =
                prefer_run(&sandbox, &sandbox.run_id(), |gone| *gone == image.saved_state, Timestamp::from_millis(1));
            assert!(next.next.saved_states().all(|kept| *kept != image.saved_state));
        }
    }

    #[test]
    fn what_is_left_of_a_wake_that_failed_is_not_preferred() {
        for (_, mut sandbox) in sandboxes(true) {
            let State::Suspended { image, background: None } = &sandbox.state else { continue };
            sandbox.generation = image.generation + 1;
            let stray = [(run(&sandbox, sandbox.generation), RunCondition::Running)];
            assert_eq!(preferred_run(&sandbox, &stray, |_| false), None);
            let thawed = [(sandbox.run_id(), RunCondition::Running)];
            assert_eq!(preferred_run(&sandbox, &thawed, |_| false), None);
        }
    }
}
