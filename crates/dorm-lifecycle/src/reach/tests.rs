//! A run that does not answer is kept, and a failed suspend is retried with growing delays.

use super::*;
use crate::event::{EventKind, Initiator};
use crate::sandbox::Sandbox;
use crate::saved::Keep;
use crate::spec::{OnSuspendFailure, Timeouts};
use crate::state::{Cause, State, StateName};
use crate::step::{Command, Context, Input, Observation, Outcome, Step, step};
use crate::table::{context, image, now, sandboxes};
use crate::why::{Facts, PastEvent, why};

fn failures(reasons: &[&str]) -> Vec<(SuspendFailures, bool)> {
    let mut at = now();
    let mut list: Vec<(SuspendFailures, bool)> = Vec::new();
    for reason in reasons {
        let before = list.last().map(|(before, _)| before.clone());
        let next = SuspendFailures::another(before.as_ref(), reason, at);
        let told = next.is_told(before.as_ref());
        at = next.next;
        list.push((next, told));
    }
    list
}

#[test]
fn the_time_between_two_attempts_doubles_up_to_ten_minutes() {
    let mut at = now();
    let mut waits = Vec::new();
    for (failed, _) in failures(&["no room"; 14]) {
        waits.push(failed.next.since(at).as_secs());
        at = failed.next;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600, 600]);
}

#[test]
fn equal_failures_are_reported_at_powers_of_two_and_other_ones_at_once() {
    let told = |reasons: &[&str]| failures(reasons).into_iter().map(|(_, told)| told).collect::<Vec<_>>();
    let equal = ["3 bytes are missing", "4 bytes are missing", "5 bytes are missing", "5 bytes are missing"];
    assert_eq!(told(&equal), [true, true, false, true]);
    assert_eq!(told(&["a", "a", "b", "a", "a", "a"]), [true, true, true, true, false, false]);
}

fn running() -> Sandbox {
    let named = sandboxes(true).into_iter().map(|(_, sandbox)| sandbox);
    let mut sandbox = named.into_iter().find(|sandbox| sandbox.state.name() == StateName::Running).expect("running");
    sandbox.spec.timeouts = Timeouts { total: Some(Duration::from_secs(60)), ..Timeouts::default() };
    sandbox
}

fn at(at: Timestamp) -> Context {
    Context { now: at, ..context() }
}

fn command(sandbox: &Sandbox, command: Command, now: Timestamp) -> Step {
    step(sandbox, &Input::Command(command), &at(now)).expect("not denied")
}

fn seen(sandbox: &Sandbox, observation: Observation, now: Timestamp) -> Step {
    step(sandbox, &Input::Observation(observation), &at(now)).expect("never denied")
}

fn kinds(step: &Step) -> Vec<EventKind> {
    step.events.iter().map(|(kind, _)| *kind).collect()
}

/// Lets the deadline pass and the suspend fail until `times` have failed. Also returns the recorded
/// events.
fn failed(mut sandbox: Sandbox, times: u32) -> (Sandbox, Vec<EventKind>) {
    let mut events = Vec::new();
    for _ in 0..times {
        let due = sandbox.expires().expect("a deadline").max(now());
        let early = command(&sandbox, Command::Expire, Timestamp::from_millis(due.as_millis() - 1));
        assert!(early.outcome == Outcome::Already || due == now(), "not before its time");
        let began = command(&sandbox, Command::Expire, due);
        let over = seen(&began.next, Observation::SaveFailed("no room".to_owned()), due);
        events.extend(kinds(&began).into_iter().chain(kinds(&over)));
        sandbox = over.next;
    }
    (sandbox, events)
}

#[test]
fn a_deadline_that_cannot_suspend_waits_longer_each_time_and_fills_no_log() {
    let (sandbox, events) = failed(running(), 100);
    let count = |kind| events.iter().filter(|event| **event == kind).count();
    assert_eq!(count(EventKind::DeadlinePassed), 1);
    assert_eq!(count(EventKind::Suspending), 1);
    assert_eq!(count(EventKind::SuspendFailed), 7, "the 1st, 2nd, 4th, 8th, 16th, 32nd and 64th");
    let failed = sandbox.suspend_failures.clone().expect("failures");
    assert_eq!((failed.count, sandbox.expires()), (100, Some(failed.next)));
}

#[test]
fn success_and_new_timeouts_begin_anew() {
    let (sandbox, _) = failed(running(), 5);
    let due = sandbox.expires().expect("a deadline");
    let saving = command(&sandbox, Command::Expire, due).next;
    let asleep = seen(&saving, Observation::Saved(image()), due);
    assert_eq!((asleep.next.suspend_failures, asleep.events[0].0), (None, EventKind::Suspended));
    let set = command(&sandbox, Command::SetTimeouts(sandbox.spec.timeouts), due).next;
    assert_eq!(set.suspend_failures, None);
    assert_eq!(set.expires(), Some(due.after(Duration::from_secs(60))));
}

#[test]
fn an_idle_deadline_waits_as_well_and_a_caller_never_does() {
    let mut sandbox = running();
    sandbox.spec.timeouts = Timeouts { idle: Some(Duration::from_secs(60)), ..Timeouts::default() };
    let (sandbox, _) = failed(sandbox, 6);
    assert_eq!(sandbox.expires(), sandbox.suspend_failures.as_ref().map(|failed| failed.next));
    let asked = command(&sandbox, Command::Suspend(Keep::Memory), now());
    assert_eq!(kinds(&asked), [EventKind::Suspending]);
    let refused = seen(&asked.next, Observation::SaveFailed("no room".to_owned()), now());
    assert_eq!(kinds(&refused), [EventKind::SuspendFailed]);
}

#[test]
fn what_cannot_be_suspended_is_kept_unless_its_spec_says_otherwise() {
    let (kept, _) = failed(running(), SUSPEND_FAILURES_MAX + 5);
    assert_eq!(kept.state.name(), StateName::Running);
    let mut sandbox = running();
    sandbox.spec.on_suspend_failure = OnSuspendFailure::Terminate;
    let (sandbox, _) = failed(sandbox, SUSPEND_FAILURES_MAX);
    let due = sandbox.expires().expect("a deadline");
    let over = command(&sandbox, Command::Expire, due);
    assert_eq!(kinds(&over), [EventKind::DeadlinePassed, EventKind::Terminating]);
    let State::Terminating { cause: Cause::Failed { reason }, .. } = &over.next.state else { panic!("{over:?}") };
    assert_eq!(reason, "its timeout has passed and it could not be suspended: no room (11 attempts have failed)");
}

#[test]
fn a_run_that_does_not_answer_stays_and_is_told_of_once() {
    for (name, sandbox) in sandboxes(true) {
        let silent = seen(&sandbox, Observation::Unreachable("no answer".to_owned()), now());
        if !sandbox.state.has_run() {
            assert_eq!(silent.outcome, Outcome::Already, "{name}");
            continue;
        }
        assert_eq!((&silent.next.state, kinds(&silent)), (&sandbox.state, vec![EventKind::Unreachable]), "{name}");
        let later = now().after(Duration::from_secs(90));
        let again = seen(&silent.next, Observation::Unreachable("still none".to_owned()), later);
        assert_eq!((again.outcome, &again.next), (Outcome::Already, &silent.next), "{name}");
        let back = seen(&silent.next, Observation::Reachable, later);
        assert_eq!(back.events, [(EventKind::Reachable, Some("after 90 s".to_owned()))]);
        assert_eq!(back.next, sandbox);
    }
}

#[test]
fn what_was_saved_without_being_quiesced_says_so() {
    let (_, saving) = sandboxes(true).into_iter().find(|(name, _)| name == "suspending").expect("suspending");
    let silent = seen(&saving, Observation::Unreachable("no answer in 10 s".to_owned()), now()).next;
    let asleep = seen(&silent, Observation::Saved(image()), now());
    let detail = "it was saved without being quiesced, because its agent does not answer: no answer in 10 s";
    assert_eq!(asleep.events, [(EventKind::Suspended, Some(detail.to_owned()))]);
    assert_eq!(asleep.next.unreachable, None, "it is a fact of a run");
}

#[test]
fn why_says_that_it_does_not_answer_and_when_it_is_suspended_again() {
    let (sandbox, _) = failed(running(), 3);
    let silent = seen(&sandbox, Observation::Unreachable("no answer".to_owned()), now()).next;
    let event =
        PastEvent { at: now(), kind: EventKind::Started, initiator: Initiator::User, caller: None, detail: None };
    let mut facts = Facts {
        now: now(),
        parked: false,
        open: Vec::new(),
        last_use: None,
        events: vec![event],
        snapshots: Vec::new(),
        waits_for_disk: None,
        damaged: Vec::new(),
        max_unreachable: None,
    };
    let told = why(&silent, &facts);
    assert_eq!(told.because[0].says, "its run is alive but does not answer: no answer");
    assert_eq!(told.refused.expect("what failed").says, "suspending it failed 3 times in a row: no room");
    let next: Vec<_> = told.next.iter().map(|next| (next.says.as_str(), next.at)).collect();
    assert_eq!(
        next,
        [
            ("the daemon retries until it answers; the run is not ended for being silent", None),
            ("its deadline has passed; attempt 4 to suspend it starts then", silent.expires()),
        ]
    );
    facts.max_unreachable = Some(Duration::from_secs(3600));
    assert_eq!(why(&silent, &facts).next[0].at, Some(now().after(Duration::from_secs(3600))));
}
