//! Every state with every condition of its run: no acknowledged state is lost.

use super::*;
use crate::table::{image, sandboxes};

const CONDITIONS: [Option<RunCondition>; 6] = [
    None,
    Some(RunCondition::Running),
    Some(RunCondition::Paused),
    Some(RunCondition::Parked),
    Some(RunCondition::Silent),
    Some(RunCondition::Broken),
];

fn found(sandbox: &Sandbox, condition: Option<RunCondition>) -> Vec<(RunId, RunCondition)> {
    condition.into_iter().map(|condition| (sandbox.run_id(), condition)).collect()
}

#[test]
fn a_run_that_can_continue_is_never_stopped_while_its_guest_is_the_newest() {
    for (_, sandbox) in sandboxes(true) {
        for condition in CONDITIONS {
            let newest =
                matches!(sandbox.state, State::Running { .. } | State::Snapshotting { .. } | State::Suspending { .. });
            let alive = !matches!(condition, Some(RunCondition::Broken) | None);
            let plan = recover(&sandbox, &found(&sandbox, condition));
            if newest && alive {
                assert!(
                    matches!(
                        plan,
                        Recovery::Adopt(_)
                            | Recovery::AdoptThen { .. }
                            | Recovery::AdoptRedo { .. }
                            | Recovery::Continue { .. }
                    ),
                    "{sandbox:?} {plan:?}"
                );
            }
        }
    }
}

#[test]
fn a_parked_run_is_kept_only_while_it_stood_still() {
    let suspended = sandboxes(true)
        .into_iter()
        .map(|(_, sandbox)| sandbox)
        .find(|sandbox| matches!(sandbox.state, State::Suspended { .. }))
        .expect("a suspended one");
    assert_eq!(recover(&suspended, &found(&suspended, Some(RunCondition::Parked))), Recovery::Nothing);
    let stop = Recovery::Stop(vec![suspended.run_id()]);
    assert_eq!(recover(&suspended, &found(&suspended, Some(RunCondition::Running))), stop);
    assert_eq!(recover(&suspended, &[]), Recovery::Nothing);
}

#[test]
fn a_transitional_state_is_always_continued_or_undone() {
    for (name, sandbox) in sandboxes(true) {
        for condition in CONDITIONS {
            if sandbox.state.operation().is_some() {
                let plan = recover(&sandbox, &found(&sandbox, condition));
                assert!(!matches!(plan, Recovery::Nothing | Recovery::Stop(_)), "{name} {condition:?} {plan:?}");
            }
        }
    }
}

#[test]
fn an_interrupted_wake_begins_again_from_its_image() {
    let resuming = sandboxes(true)
        .into_iter()
        .map(|(_, sandbox)| sandbox)
        .find(|sandbox| matches!(sandbox.state, State::Resuming { rewind: None, .. }))
        .expect("a resuming one");
    match recover(&resuming, &found(&resuming, Some(RunCondition::Running))) {
        Recovery::Redo { stop, effect: Effect::Wake { image: from, .. } } => {
            assert_eq!((stop, from), (vec![resuming.run_id()], image()));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_over_leaves_no_run() {
    for (_, sandbox) in sandboxes(false) {
        if let State::Terminated { .. } = sandbox.state {
            assert_eq!(
                recover(&sandbox, &found(&sandbox, Some(RunCondition::Running))),
                Recovery::Stop(vec![sandbox.run_id()])
            );
        }
    }
}

#[test]
fn an_interrupted_rewind_is_undone_until_the_present_is_saved_and_done_again_after_that() {
    for (name, sandbox) in sandboxes(false) {
        let plan = recover(&sandbox, &found(&sandbox, Some(RunCondition::Paused)));
        match &sandbox.state {
            State::Suspending { .. } => assert!(matches!(plan, Recovery::Continue { .. }), "{name}: {plan:?}"),
            State::Resuming { rewind: Some(_), .. } => match plan {
                Recovery::Redo { stop, effect: Effect::Rewind { present: parked, .. } } => {
                    assert_eq!((stop, parked), (vec![sandbox.run_id()], sandbox.run_id()), "never two runs of one");
                }
                other => panic!("{name}: {other:?}"),
            },
            _ => {}
        }
    }
}

#[test]
fn an_interrupted_background_operation_is_given_up_and_its_sandbox_stays_where_it_was() {
    let mut seen = 0;
    for (name, sandbox) in sandboxes(true) {
        let Some(background) = sandbox.state.background() else { continue };
        if matches!(
            background.work,
            BackgroundWork::Egress { .. } | BackgroundWork::Resize { .. } | BackgroundWork::SaveHeld(_)
        ) {
            continue;
        }
        seen += 1;
        let condition = match &sandbox.state {
            State::Running { .. } => RunCondition::Running,
            _ => RunCondition::Parked,
        };
        let report = match recover(&sandbox, &found(&sandbox, Some(condition))) {
            Recovery::AdoptThen { run, report } => {
                assert_eq!((condition, run), (RunCondition::Running, sandbox.run_id()), "{name}");
                report
            }
            Recovery::Report { stop, report } => {
                assert_eq!((condition, stop), (RunCondition::Parked, Vec::new()), "{name}: a parked run is kept");
                report
            }
            other => panic!("{name}: {other:?}"),
        };
        let after = crate::step(&sandbox, &crate::Input::Observation(report), &crate::table::context()).expect("step");
        assert_eq!(after.next.state, sandbox.state.with_background(None), "{name}");
        assert_eq!((after.next.spec, after.effect), (sandbox.spec.clone(), None), "{name}: {background:?}");
    }
    assert_eq!(seen, 5);
}

#[test]
fn an_interrupted_change_of_egress_is_completed() {
    let mut seen = 0;
    for (name, sandbox) in sandboxes(true) {
        let Some(BackgroundWork::Egress { after }) = sandbox.state.background().map(|background| &background.work)
        else {
            continue;
        };
        seen += 1;
        let wanted = crate::step::egress_effect(&sandbox, after);
        match &sandbox.state {
            State::Running { .. } => {
                let plan = recover(&sandbox, &found(&sandbox, Some(RunCondition::Running)));
                assert_eq!(plan, Recovery::AdoptRedo { run: sandbox.run_id(), effect: wanted }, "{name}");
            }
            _ => {
                for condition in [Some(RunCondition::Parked), None] {
                    let plan = recover(&sandbox, &found(&sandbox, condition));
                    assert_eq!(plan, Recovery::Redo { stop: Vec::new(), effect: wanted.clone() }, "{name}");
                }
            }
        }
    }
    assert_eq!(seen, 2);
}

#[test]
fn a_run_whose_memory_was_not_kept_is_stopped_in_any_condition() {
    let of_files = sandboxes(true).into_iter().filter(|(name, _)| name.ends_with("with files only"));
    for (name, sandbox) in of_files {
        for condition in [RunCondition::Running, RunCondition::Paused, RunCondition::Parked] {
            let stopped = match recover(&sandbox, &found(&sandbox, Some(condition))) {
                Recovery::Stop(stop) | Recovery::Redo { stop, .. } => stop == [sandbox.run_id()],
                Recovery::Adopt(_) | Recovery::Continue { .. } => sandbox.state.has_run(),
                _ => false,
            };
            assert!(stopped, "{name}, {condition:?}");
        }
    }
}

#[test]
fn a_resize_is_repeated() {
    for (name, sandbox) in sandboxes(true).into_iter().filter(|(name, _)| name.ends_with("to resize")) {
        let condition = if sandbox.state.has_run() { RunCondition::Running } else { RunCondition::Parked };
        match recover(&sandbox, &found(&sandbox, Some(condition))) {
            Recovery::AdoptRedo { effect: Effect::Resize { .. }, .. } => assert!(sandbox.state.has_run(), "{name}"),
            Recovery::Redo { effect: Effect::Resize { .. }, stop } => assert!(stop.is_empty(), "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn the_run_that_a_rewind_has_left_is_saved_whatever_became_of_its_own() {
    for (name, sandbox) in sandboxes(true) {
        let Some(held) = sandbox.held_run() else { continue };
        let mut sandbox = sandbox.clone();
        sandbox.generation = 7;
        let stray = RunId { generation: 7, ..held.clone() };
        let newer = RunId { generation: 8, ..held.clone() };
        for own in CONDITIONS {
            let mut found = found(&sandbox, own);
            found.extend([(held.clone(), RunCondition::Paused), (stray.clone(), RunCondition::Running)]);
            found.push((newer.clone(), RunCondition::Running));
            let (stopped, effect) = match recover(&sandbox, &found) {
                Recovery::AdoptRedo { effect, .. } => (leftovers(&sandbox, &found), effect),
                Recovery::Redo { stop, effect } => (stop, effect),
                other => panic!("{name} {own:?} {other:?}"),
            };
            assert_eq!(effect, Effect::SaveHeld { run: held.clone() });
            assert_eq!(stopped, std::slice::from_ref(&stray), "{name} {own:?}");
        }
        let alone = found(&sandbox, Some(RunCondition::Running));
        let lost = Recovery::AdoptThen { run: sandbox.run_id(), report: Observation::HeldLost(GONE.to_owned()) };
        assert_eq!(recover(&sandbox, &alone), lost);
    }
}

#[test]
fn what_an_interrupted_rewind_has_started_is_stopped_before_the_held_run_continues() {
    let (_, holding) =
        sandboxes(true).into_iter().find(|(name, _)| name == "suspending to rewind, held").expect("a held one");
    let fresh = RunId { generation: 2, ..holding.run_id() };
    let found = [(holding.run_id(), RunCondition::Paused), (fresh.clone(), RunCondition::Running)];
    assert_eq!(preferred_run(&holding, &found, |_| false), None);
    assert_eq!(leftovers(&holding, &found), [fresh]);
    assert!(matches!(recover(&holding, &found), Recovery::Continue { run, .. } if run == holding.run_id()));
}
