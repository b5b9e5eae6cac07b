use std::time::Duration;

use super::*;
use crate::ids::HoldId;
use crate::sandbox::Hold;
use crate::spec::Timeouts;
use crate::state::StateName;
use crate::table::{now, sandboxes};

fn facts(events: &[(EventKind, Initiator, &str)]) -> Facts {
    let events = events.iter().zip(1u64..).map(|((kind, initiator, detail), at)| PastEvent {
        at: Timestamp::from_millis(at * 1000),
        kind: *kind,
        initiator: *initiator,
        caller: None,
        detail: (!detail.is_empty()).then(|| (*detail).to_owned()),
    });
    Facts {
        now: now(),
        parked: false,
        open: Vec::new(),
        last_use: None,
        events: events.collect(),
        snapshots: Vec::new(),
        waits_for_disk: None,
        damaged: Vec::new(),
        max_unreachable: None,
    }
}

fn in_state(named: bool, wanted: StateName) -> Sandbox {
    let all = sandboxes(named);
    all.into_iter().map(|(_, sandbox)| sandbox).rfind(|sandbox| sandbox.state.name() == wanted).expect("state")
}

fn says(reasons: &[Reason]) -> Vec<(&str, &str)> {
    reasons.iter().map(|reason| (reason.signal, reason.says.as_str())).collect()
}

#[test]
fn every_state_has_a_summary_and_a_next_step_but_the_last() {
    for named in [true, false] {
        for (_, sandbox) in sandboxes(named) {
            let why = why(&sandbox, &facts(&[]));
            let over = sandbox.state.name() == StateName::Terminated;
            assert!(!why.summary.is_empty());
            assert_eq!(why.next.is_empty(), over, "{:?}", sandbox.state);
            assert!(why.next.iter().all(|next| next.at.is_some() || !sandbox.state.name().is_transitional()));
            let at_work = why.next.first().is_some_and(|next| next.signal == "operation" && next.at.is_some());
            assert_eq!(at_work, sandbox.state.operation().is_some(), "{:?}", sandbox.state);
        }
    }
}

#[test]
fn what_keeps_it_awake_is_told_with_what_ends_it() {
    let mut sandbox = in_state(true, StateName::Running);
    sandbox.spec.timeouts = Timeouts { idle: Some(Duration::from_secs(3600)), ..Timeouts::default() };
    sandbox.last_active = Timestamp::from_millis(900_000);
    let until = Timestamp::from_millis(9_000_000);
    sandbox.holds = vec![Hold { id: HoldId::from_random([1; 20]), reason: "the model thinks".into(), until }];
    let told =
        why(&sandbox, &Facts { last_use: Some("exec"), ..facts(&[(EventKind::Resumed, Initiator::Traffic, "")]) });
    assert_eq!(
        says(&told.because),
        [
            ("event", "it was resumed, by traffic to one of its ports"),
            ("use", "it was last used 100 s ago (exec)"),
            ("hold", "it is held awake: the model thinks"),
        ]
    );
    assert_eq!(says(&told.next), [("limit", "it is suspended when its idle_timeout passes, which a hold postpones")]);
    assert_eq!(told.next[0].at, Some(until));
    let open = why(&sandbox, &Facts { open: vec![("terminal", 2), ("exec", 1)], ..facts(&[]) });
    assert_eq!(open.because[0].says, "it is in use now: 2 terminal, 1 exec");
}

#[test]
fn a_deadline_that_put_it_to_sleep_is_named() {
    let events = [
        (EventKind::DeadlinePassed, Initiator::Timer, "its idle_timeout has passed"),
        (EventKind::Suspending, Initiator::Timer, ""),
        (EventKind::Suspended, Initiator::Timer, ""),
        (EventKind::Evicted, Initiator::Host, ""),
    ];
    let told = why(&in_state(true, StateName::Suspended), &facts(&events));
    assert_eq!(says(&told.because), [("event", "it was suspended, by a deadline: its idle_timeout has passed")]);
    assert_eq!(told.on_disk.len(), 1);
    assert!(told.refused.is_none());
}

#[test]
fn a_refusal_is_told_until_the_same_has_worked() {
    let failed = (EventKind::ResumeFailed, Initiator::User, "pages.img has other content than was written");
    let told = why(&in_state(true, StateName::Suspended), &facts(&[failed]));
    let refused = told.refused.expect("refused");
    assert_eq!(refused.says, "resume failed: pages.img has other content than was written");
    let since = [failed, (EventKind::Resumed, Initiator::User, "")];
    assert!(why(&in_state(true, StateName::Running), &facts(&since)).refused.is_none());
}

#[test]
fn each_image_on_disk_is_told_with_its_reason() {
    let mut sandbox = in_state(true, StateName::Suspended);
    let image = sandbox.state.image().expect("image").clone();
    sandbox.generation = 9;
    let of = |generation, seed| SleepImage {
        generation,
        saved_state: crate::SavedStateId::from_random([seed; 20]),
        ..image.clone()
    };
    sandbox.state = State::Suspended { image: of(5, 20), background: None };
    sandbox.older = vec![of(6, 21), of(4, 22)];
    let told = why(&sandbox, &Facts { snapshots: vec![(crate::table::snapshot(), 7)], ..facts(&[]) });
    let said: Vec<_> = told.on_disk.iter().map(|kept| kept.says.split(": ").nth(1).expect("why")).collect();
    assert_eq!(
        said,
        [
            "it wakes from this one",
            "it could not be restored; it is kept until a newer one is saved",
            "a fallback, kept because of keep_generations",
            "kept until it is deleted",
        ]
    );
}
