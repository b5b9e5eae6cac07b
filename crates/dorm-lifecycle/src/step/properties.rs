//! The invariants hold for every sequence of inputs.

use proptest::prelude::*;

use super::{Command, Context, Input, Observation, Outcome, create, step};
use crate::event::EventKind;
use crate::invariants::check;
use crate::lease::leases;
use crate::pool::PoolMember;
use crate::rewind::{Rewind, Rewound};
use crate::sandbox::{DeadlineKind, Hold, Origin, Restored, Sandbox};
use crate::saved::{Keep, SleepImage};
use crate::spec::{SandboxSpec, SleepRetention, Timeouts};
use crate::state::{Cause, State, StateName};
use crate::table::{context, image, inputs, rewind};
use crate::time::Timestamp;
use crate::volume::{Access, Attachment, SubPath};
use crate::{HoldId, OperationId, PoolId, ProjectId, SandboxId, SavedStateId, VolumeId};

fn fresh(named: bool) -> Sandbox {
    let mut spec =
        SandboxSpec::new("0".repeat(64).parse().expect("digest"), named.then(|| "web".parse().expect("name")));
    spec.timeouts = Timeouts { total: Some(std::time::Duration::from_secs(5)), ..Timeouts::default() };
    create(SandboxId::from_random([1; 20]), ProjectId::local(), spec, Origin::Image, &context()).expect("create").next
}

fn fresh_saved_state(now: u64, last: u8) -> SavedStateId {
    let bytes = [(now % 251) as u8, (now / 251 % 251) as u8, last].repeat(7);
    SavedStateId::from_random(bytes[..20].try_into().expect("20"))
}

fn at(now: u64) -> Context {
    Context { now: Timestamp::from_millis(now), operation: OperationId::from_random([7; 20]), ..context() }
}

proptest! {
    #[test]
    fn no_sequence_of_inputs_breaks_an_invariant(
        named: bool,
        may_hold: bool,
        sequence in prop::collection::vec((0..inputs().len(), 0u64..4000), 0..80),
    ) {
        let mut sandbox = fresh(named);
        let mut now = 1_000_000;
        for (input, later) in sequence {
            now += later;
            let input = match &inputs()[input].0 {
                Input::Observation(Observation::Saved(_)) => Input::Observation(Observation::Saved(SleepImage {
                    generation: sandbox.generation,
                    saved_state: fresh_saved_state(now, 7),
                    ..image()
                })),
                Input::Command(Command::Rewind(_)) => Input::Command(Command::Rewind(Box::new(Rewind {
                    target: Some(SleepImage { saved_state: fresh_saved_state(now, 8), ..image() }),
                    may_hold,
                    ..rewind()
                }))),
                Input::Observation(Observation::Woken { restored, .. }) => Input::Observation(Observation::Woken {
                    run: sandbox.generation,
                    restored: *restored,
                    because: None,
                }),
                other => other.clone(),
            };
            let Ok(made) = step(&sandbox, &input, &at(now)) else { continue };
            prop_assert!(check(&made.next).is_ok(), "{:?} after {input:?}", made.next);
            if made.outcome != Outcome::Changed {
                prop_assert_eq!(&made.next, &sandbox);
                prop_assert!(made.effect.is_none() && made.events.is_empty());
            }
            if let State::Terminated { .. } = sandbox.state {
                prop_assert_eq!(&made.next.state, &sandbox.state, "a terminated sandbox never changes");
            }
            let over = matches!(made.next.state, State::Terminating { .. } | State::Terminated { .. });
            let saved = matches!(input, Input::Observation(Observation::Saved(_)));
            // A held run needs its image until it is saved.
            let left = made.next.state.held().is_some() != sandbox.state.held().is_some();
            for saved_state in sandbox.saved_states() {
                let kept = made.next.saved_states().any(|other| other == saved_state);
                let rewound = sandbox.state.rewind().is_some_and(|rewind| made.abandoned.is_some() || rewind.target.as_ref().is_some_and(|target| target.saved_state == *saved_state));
                prop_assert!(kept || over || saved || rewound || left, "an image is lost by {input:?}");
            }
            if let Some(abandoned) = &made.abandoned {
                let held = sandbox.state.held().and_then(|held| held.image.as_ref());
                let present = held.or(sandbox.state.image());
                prop_assert_eq!(Some(&abandoned.image), present, "the present becomes the snapshot");
            }
            prop_assert!(!saved || made.outcome != Outcome::Changed || made.next.saved_states().count() <= 3);
            // Each transitional state has one operation, and an effect for its owner.
            let began = made.next.state.operation().is_some() && sandbox.state.operation().is_none();
            if began || (made.next.state.name().is_transitional() && made.next.state.name() != sandbox.state.name()) {
                prop_assert!(made.effect.is_some());
            }
            prop_assert!(made.next.generation >= sandbox.generation);
            sandbox = made.next;
        }
    }
}

#[test]
fn a_deadline_suspends_the_named_and_ends_the_ephemeral() {
    for (named, suspended) in [(true, true), (false, false)] {
        let running =
            step(&fresh(named), &Input::Observation(Observation::Started), &at(1_000_000)).expect("started").next;
        let early = step(&running, &Input::Command(Command::Expire), &at(1_004_999)).expect("early");
        assert_eq!(early.outcome, Outcome::Already);
        let due = step(&running, &Input::Command(Command::Expire), &at(1_005_000)).expect("due");
        match due.next.state {
            State::Suspending { .. } => assert!(suspended),
            State::Terminating { cause: Cause::Timeout, .. } => assert!(!suspended),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn activity_moves_an_idle_deadline_and_not_a_total_one() {
    let mut sandbox =
        step(&fresh(true), &Input::Observation(Observation::Started), &at(1_000_000)).expect("started").next;
    sandbox.spec.timeouts = Timeouts { idle: Some(std::time::Duration::from_secs(2)), ..Timeouts::default() };
    assert_eq!(sandbox.expires(), Some(Timestamp::from_millis(1_002_000)));
    let touched = step(&sandbox, &Input::Command(Command::Touch), &at(1_001_500)).expect("touch").next;
    assert_eq!(touched.expires(), Some(Timestamp::from_millis(1_003_500)));
    let mut total = touched;
    total.spec.timeouts.total = Some(std::time::Duration::from_secs(3));
    assert_eq!(total.expires(), Some(Timestamp::from_millis(1_003_000)));
}

fn limited(timeouts: Timeouts) -> Sandbox {
    let mut sandbox =
        step(&fresh(true), &Input::Observation(Observation::Started), &at(1_000_000)).expect("started").next;
    sandbox.spec.timeouts = timeouts;
    sandbox
}

fn hold(seed: u8, until: u64) -> Hold {
    Hold { id: HoldId::from_random([seed; 20]), reason: "a build".into(), until: Timestamp::from_millis(until) }
}

fn given(sandbox: &Sandbox, command: Command, now: u64) -> Sandbox {
    step(sandbox, &Input::Command(command), &at(now)).expect("given").next
}

#[test]
fn a_hold_moves_a_deadline_and_never_shortens_it() {
    let second = std::time::Duration::from_secs(1);
    let sandbox = limited(Timeouts { total: Some(5 * second), ..Timeouts::default() });
    let held = given(&sandbox, Command::Hold(hold(1, 1_009_000)), 1_001_000);
    let deadline = held.deadline().expect("deadline");
    assert_eq!((deadline.at.as_millis(), deadline.kind), (1_009_000, DeadlineKind::Total));
    assert_eq!(deadline.held, Some(hold(1, 0).id));
    let shorter = given(&held, Command::Hold(hold(2, 1_002_000)), 1_001_000);
    assert_eq!(shorter.expires(), held.expires());
    let released = given(&shorter, Command::Release(hold(1, 0).id), 1_001_500);
    assert_eq!(released.expires(), sandbox.expires());
    assert_eq!(released.holds, [hold(2, 1_002_000)]);
    let renewed = given(&released, Command::Hold(hold(2, 1_020_000)), 1_003_000);
    assert_eq!(renewed.holds, [hold(2, 1_020_000)]);
}

#[test]
fn nothing_moves_the_end_of_the_longest_run() {
    let second = std::time::Duration::from_secs(1);
    let sandbox = limited(Timeouts {
        total: Some(5 * second),
        idle: Some(2 * second),
        max_run: Some(10 * second),
        ..Timeouts::default()
    });
    let held = given(&sandbox, Command::Hold(hold(1, 9_000_000)), 1_001_000);
    let extended = given(&held, Command::SetTimeouts(held.spec.timeouts), 1_009_000);
    let deadline = extended.deadline().expect("deadline");
    assert_eq!((deadline.at.as_millis(), deadline.kind), (1_010_000, DeadlineKind::MaxRun));
    let due = step(&extended, &Input::Command(Command::Expire), &at(1_010_000)).expect("due");
    assert!(matches!(due.next.state, State::Suspending { .. }));
    assert_eq!(due.events[0].1.as_deref(), Some("its max_run has passed"));
}

#[test]
fn moments_that_are_replaced_move_every_limit_with_them() {
    let second = std::time::Duration::from_secs(1);
    let sandbox = limited(Timeouts {
        total: Some(5 * second),
        idle: Some(2 * second),
        max_run: Some(10 * second),
        ..Timeouts::default()
    });
    let held = given(&sandbox, Command::Hold(hold(1, 1_004_000)), 1_001_000);
    for millis in [3_600_000, -500_000] {
        let moved = held.with_moments(|moment| moment.shifted(millis));
        let before = held.deadline().expect("deadline");
        let after = moved.deadline().expect("deadline");
        assert_eq!((after.at, after.kind), (before.at.shifted(millis), before.kind));
        assert_eq!(moved.with_moments(|moment| moment.shifted(-millis)), held);
    }
}

/// Suspends and resumes it; returns the running sandbox.
fn slept(sandbox: &Sandbox, seed: u8, restored: Restored, because: Option<&str>) -> Sandbox {
    let suspending = given(sandbox, Command::Suspend(Keep::Memory), 1_000_000);
    let saved_state = SavedStateId::from_random([seed; 20]);
    let saved = Observation::Saved(SleepImage { generation: sandbox.generation, saved_state, ..image() });
    let suspended = step(&suspending, &Input::Observation(saved), &at(1_000_000)).expect("saved").next;
    let resuming = given(&suspended, Command::Resume { total: None }, 1_000_000);
    let woken = Observation::Woken { run: resuming.generation, restored, because: because.map(str::to_owned) };
    step(&resuming, &Input::Observation(woken), &at(1_000_000)).expect("woken").next
}

fn generations(sandbox: &Sandbox) -> (Option<u64>, Vec<u64>) {
    let now = sandbox.state.image().map(|image| image.generation);
    (now, sandbox.older.iter().map(|image| image.generation).collect())
}

#[test]
fn as_many_images_are_kept_as_asked_and_one_that_failed_until_a_newer_is_saved() {
    let mut sandbox = limited(Timeouts::default());
    sandbox.spec.retention = SleepRetention { generations: 3, ..SleepRetention::default() };
    let newest = |sandbox: &Sandbox| Restored::Memory { generation: Some(sandbox.generation) };
    for seed in 1..=5 {
        sandbox = slept(&sandbox, seed, newest(&sandbox), None);
    }
    assert_eq!(generations(&sandbox), (Some(5), vec![4, 3]));
    let older = slept(&sandbox, 6, Restored::Memory { generation: Some(5) }, Some("6 is damaged"));
    assert_eq!(generations(&older), (Some(5), vec![6, 4]));
    assert_eq!(older.restored, Restored::Memory { generation: Some(5) });
    let fresh = slept(&sandbox, 6, Restored::Nothing, Some("none can be restored"));
    assert_eq!(generations(&fresh), (None, vec![6, 5, 4]));
    let lost = step(&fresh, &Input::Observation(Observation::RunLost("gone".into())), &at(1_000_000)).expect("lost");
    assert_eq!(generations(&lost.next), (Some(6), vec![5, 4]));
    assert!(check(&lost.next).is_ok());
    let again = slept(&fresh, 7, Restored::Memory { generation: Some(7) }, None);
    assert_eq!(generations(&again), (Some(7), vec![6, 5]));
}

fn seen(sandbox: &Sandbox, observation: Observation) -> super::Step {
    step(sandbox, &Input::Observation(observation), &at(1_000_000)).expect("seen")
}

fn came_from_snapshot(sandbox: &Sandbox) -> Observation {
    let restored = Restored::Memory { generation: None };
    Observation::Woken { run: sandbox.generation, restored, because: None }
}

#[test]
fn a_rewind_keeps_the_present_until_the_past_runs() {
    for named in [true, false] {
        let running = seen(&fresh(named), Observation::Started).next;
        let preparing = given(&running, Command::Rewind(Box::new(rewind())), 1_000_000);
        assert_eq!((preparing.state.name(), preparing.saved_states().count()), (StateName::Running, 1), "it continues");
        let suspending = seen(&preparing, Observation::RewindPrepared).next;
        assert!(check(&suspending).is_ok(), "also one that may not be suspended");
        let present = SleepImage { generation: 1, saved_state: SavedStateId::from_random([9; 20]), ..image() };
        let resuming = seen(&suspending, Observation::Saved(present.clone())).next;
        assert_eq!(suspending.state.operation(), preparing.state.operation(), "it is one operation");
        assert_eq!(resuming.state.operation(), preparing.state.operation(), "it is one operation");
        assert_eq!(resuming.saved_states().count(), 2);
        let arrived = seen(&resuming, came_from_snapshot(&resuming));
        let abandoned = arrived.abandoned.expect("the future is kept");
        assert_eq!((&abandoned.image, Some(abandoned.future)), (&present, rewind().future));
        let back = arrived.next;
        assert_eq!(back.state.image().cloned(), rewind().target.filter(|_| named), "an ephemeral one keeps no image");
        assert_eq!(back.rewound, Some(Rewound { to: rewind().to, generation: 2 }));
        assert_eq!((back.generation, back.run, back.parent()), (2, 2, Some(&rewind().to)));
        assert!(check(&back).is_ok());
    }
}

#[test]
fn a_member_is_terminated_only_if_the_wake_of_its_claim_fails() {
    let image = |last| SleepImage { generation: 1, saved_state: SavedStateId::from_random([last; 20]), ..image() };
    let failed = |resuming: &Sandbox| seen(resuming, Observation::WakeFailed("damaged".into()));
    let mut member = seen(&fresh(true), Observation::Started).next;
    member.pool = Some(PoolMember { pool: PoolId::from_random([3; 20]), is_claimed: false });
    let waiting = seen(&given(&member, Command::Suspend(Keep::Memory), 1_000_000), Observation::Saved(image(9))).next;
    let claimed = given(&waiting, Command::Claim(Box::default()), 1_000_000);
    let step = failed(&claimed);
    let cause = Cause::Failed { reason: "damaged".to_owned() };
    assert!(matches!(&step.next.state, State::Terminating { cause: why, .. } if *why == cause), "{:?}", step.next);
    assert_eq!(step.effect, Some(super::Effect::Stop { run: claimed.run_id() }));
    let woken = Observation::Woken { run: 2, restored: Restored::Memory { generation: Some(1) }, because: None };
    let used = seen(&claimed, woken).next;
    let later = seen(&given(&used, Command::Suspend(Keep::Memory), 1_000_000), Observation::Saved(image(8))).next;
    let step = failed(&given(&later, Command::Resume { total: None }, 1_000_000));
    assert_eq!((step.next.state, step.effect), (later.state, None));
}

#[test]
fn a_rewind_that_fails_leads_back_to_the_present() {
    let running = seen(&fresh(true), Observation::Started).next;
    let present = SleepImage { generation: 1, saved_state: SavedStateId::from_random([9; 20]), ..image() };
    let asked = || Command::Rewind(Box::new(rewind()));
    let preparing = given(&running, asked(), 1_000_000);
    let not_prepared = seen(&preparing, Observation::RewindNotPrepared("full".into()));
    assert_eq!((&not_prepared.next.state, &not_prepared.effect), (&running.state, &None));
    let suspending = seen(&preparing, Observation::RewindPrepared).next;
    let continued = seen(&suspending, Observation::SaveFailed("full".into())).next;
    assert_eq!(continued.state, running.state);
    let resuming = seen(&suspending, Observation::Saved(present.clone())).next;
    let failed = seen(&resuming, Observation::WakeFailed("damaged".into()));
    assert!(matches!(&failed.effect, Some(super::Effect::Wake { image, .. }) if *image == present), "it wakes again");
    assert_eq!(failed.next.saved_states().collect::<Vec<_>>(), [&present.saved_state]);
    assert_ne!(failed.next.state.operation(), None);
    let suspended = given(&given(&running, Command::Suspend(Keep::Memory), 1_000_000), Command::Touch, 1_000_000);
    let suspended = seen(&suspended, Observation::Saved(present.clone())).next;
    let resuming = seen(&given(&suspended, asked(), 1_000_000), Observation::RewindPrepared).next;
    let failed = seen(&resuming, Observation::WakeFailed("damaged".into()));
    assert_eq!(
        (failed.next.state, failed.effect),
        (State::Suspended { image: present, background: None }, None),
        "it sleeps on"
    );
}

/// Returns a sandbox that is being rewound while its run is held.
fn holding(named: bool) -> Sandbox {
    let running = seen(&fresh(named), Observation::Started).next;
    let asked = Command::Rewind(Box::new(Rewind { may_hold: true, ..rewind() }));
    seen(&given(&running, asked, 1_000_000), Observation::RewindPrepared).next
}

#[test]
fn a_rewind_shows_the_past_before_the_held_present_is_saved() {
    for named in [true, false] {
        let holding = holding(named);
        assert_eq!((holding.state.name(), holding.generation, holding.run), (StateName::Suspending, 2, 1));
        let arrived = seen(&holding, came_from_snapshot(&holding));
        assert_eq!(arrived.abandoned, None, "it is not saved yet");
        let past = arrived.next;
        assert!(check(&past).is_ok());
        assert_eq!(
            (past.state.name(), past.run, past.held_run().map(|run| run.generation)),
            (StateName::Running, 2, Some(1))
        );
        assert_eq!(arrived.effect, super::save_held_effect(&past));
        let again = seen(&past, Observation::HeldNotSaved("full".into()));
        assert_eq!((again.next.held_run(), again.effect.is_some()), (past.held_run(), true), "it is tried again");
        assert_eq!(again.next.state.operation(), past.state.operation());
        assert!(seen(&again.next, Observation::HeldNotSaved("full".into())).events.is_empty(), "and told once");
        let over = seen(&past, Observation::HeldSaved(Some(image())));
        assert_eq!((over.next.held_run(), over.next.state.background()), (None, None));
        assert_eq!(over.events.first().map(|(kind, _)| *kind), Some(EventKind::SnapshotTaken));
    }
}

#[test]
fn a_rewind_that_fails_lets_the_held_present_continue() {
    let running = seen(&fresh(true), Observation::Started).next;
    let failed = seen(&holding(true), Observation::SaveFailed("damaged".into()));
    assert_eq!((failed.next.state, failed.next.run, failed.effect), (running.state, 1, None));
}

#[test]
fn a_held_present_that_is_lost_becomes_the_snapshot_of_its_last_image() {
    let mut before = holding(true);
    let kept = SleepImage { saved_state: SavedStateId::from_random([11; 20]), ..image() };
    let State::Suspending { image, .. } = &mut before.state else { panic!("{before:?}") };
    *image = Some(kept.clone());
    let past = seen(&before, came_from_snapshot(&before)).next;
    assert!(past.saved_states().any(|saved_state| *saved_state == kept.saved_state), "it is still needed");
    for observation in [Observation::HeldLost("killed".into()), Observation::RunLost("killed".into())] {
        let lost = seen(&past, observation);
        assert_eq!(lost.abandoned.map(|abandoned| abandoned.image), Some(kept.clone()));
        assert_eq!(lost.next.held_run(), None);
    }
    let nothing =
        seen(&seen(&holding(true), came_from_snapshot(&holding(true))).next, Observation::HeldLost("killed".into()));
    assert_eq!(nothing.events.first().map(|(kind, _)| *kind), Some(EventKind::SnapshotFailed));
}

#[test]
fn a_present_with_volumes_is_saved_before_the_past_runs() {
    let mut running = seen(&fresh(true), Observation::Started).next;
    running.spec.attachments = vec![volume(1)];
    let asked = Command::Rewind(Box::new(Rewind { may_hold: true, ..rewind() }));
    let leaving = seen(&given(&running, asked, 1_000_000), Observation::RewindPrepared);
    assert!(matches!(leaving.effect, Some(super::Effect::Save { .. })), "{:?}", leaving.effect);
}

#[test]
fn the_end_of_a_sandbox_leaves_the_names_of_its_secrets_alone() {
    let mut running = seen(&fresh(true), Observation::Started).next;
    running.spec.secrets.0.insert("TOKEN".into(), "hunter2".into());
    let asleep = given(&running, Command::Suspend(Keep::Memory), 1_000_000);
    assert_eq!(asleep.spec.secrets, running.spec.secrets, "it wakes with them");
    let ended = seen(&given(&running, Command::Terminate, 1_000_000), Observation::Stopped).next;
    assert!(matches!(ended.state, State::Terminated { .. }));
    assert_eq!(ended.spec.secrets.0, [("TOKEN".to_owned(), String::new())].into());
}

fn volume(seed: u8) -> Attachment {
    let path = format!("/data{seed}").parse().expect("path");
    let volume = VolumeId::from_random([seed; 20]);
    Attachment { volume, path, access: Access::Write, subpath: SubPath::default(), slot: seed }
}

#[test]
fn a_running_sandbox_has_what_it_had_and_leases_of_both_until_its_volumes_are_changed() {
    let second = std::time::Duration::from_secs(1);
    let mut running = limited(Timeouts { total: Some(5 * second), ..Timeouts::default() });
    running.spec.attachments = vec![volume(1)];
    let attaching = given(&running, Command::SetAttachments(vec![volume(2)]), 1_000_000);
    assert_eq!((attaching.state.name(), attaching.expires()), (StateName::Running, None), "its time waits for it");
    assert_eq!(attaching.spec, running.spec);
    assert_eq!(attaching.attachments().collect::<Vec<_>>(), [&volume(1), &volume(2)]);
    assert_eq!(leases(&attaching).len(), 2);
    for command in [Command::Suspend(Keep::Memory), Command::Terminate, Command::SetAttachments(Vec::new())] {
        let made = step(&attaching, &Input::Command(command), &at(1_000_000)).expect("asked");
        assert_eq!(made.outcome, Outcome::Wait);
    }
    let failed = seen(&attaching, Observation::AttachFailed("it hangs".into())).next;
    assert_eq!((&failed.state, &failed.spec), (&running.state, &running.spec));
    let done = seen(&attaching, Observation::Attached);
    assert_eq!((&done.next.state, done.next.spec.attachments), (&running.state, vec![volume(2)]));
    let kinds: Vec<_> = done.events.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [EventKind::Detached, EventKind::Attached]);
    let lost = seen(&attaching, Observation::RunLost("gone".into()));
    assert_eq!(lost.events[0].0, EventKind::AttachFailed);
    assert_eq!((lost.next.spec.attachments, lost.next.state.operation()), (vec![volume(1)], None));
}
