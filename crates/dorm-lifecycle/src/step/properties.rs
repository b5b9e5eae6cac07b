//! Whatever comes in whatever order, the invariants hold.

use proptest::prelude::*;

use super::{Command, Context, Input, Observation, Outcome, create, step};
use crate::invariants::check;
use crate::sandbox::{Cause, Origin, Sandbox, SleepImage, State};
use crate::spec::{SandboxSpec, Timeouts};
use crate::table::{context, image, inputs};
use crate::time::Timestamp;
use crate::{OperationId, ProjectId, SandboxId};

fn fresh(named: bool) -> Sandbox {
    let mut spec =
        SandboxSpec::new("0".repeat(64).parse().expect("digest"), named.then(|| "web".parse().expect("name")));
    spec.timeouts = Timeouts { total: Some(std::time::Duration::from_secs(5)), idle: None };
    create(SandboxId::from_random([1; 20]), ProjectId::local(), spec, Origin::Image, &context()).expect("create").next
}

fn at(now: u64) -> Context {
    Context { now: Timestamp::from_millis(now), operation: OperationId::from_random([7; 20]), ..context() }
}

proptest! {
    #[test]
    fn no_sequence_of_inputs_breaks_an_invariant(
        named: bool,
        sequence in prop::collection::vec((0..inputs().len(), 0u64..4000), 0..80),
    ) {
        let mut sandbox = fresh(named);
        let mut now = 1_000_000;
        for (input, later) in sequence {
            now += later;
            let input = match &inputs()[input].0 {
                Input::Observation(Observation::Saved(_)) => Input::Observation(Observation::Saved(SleepImage {
                    generation: sandbox.generation,
                    ..image()
                })),
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
            let (before, after) = (sandbox.state.image(), made.next.state.image());
            let over = matches!(made.next.state, State::Terminating { .. } | State::Terminated { .. });
            prop_assert!(before.is_none() || after.is_some() || over, "an image is lost by {input:?}");
            // One operation in each transitional state, and an effect for whoever owns it.
            if made.next.state.name().is_transitional() && made.next.state.name() != sandbox.state.name() {
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
    sandbox.spec.timeouts = Timeouts { total: None, idle: Some(std::time::Duration::from_secs(2)) };
    assert_eq!(sandbox.expires(), Some(Timestamp::from_millis(1_002_000)));
    let touched = step(&sandbox, &Input::Command(Command::Touch), &at(1_001_500)).expect("touch").next;
    assert_eq!(touched.expires(), Some(Timestamp::from_millis(1_003_500)));
    let mut total = touched;
    total.spec.timeouts.total = Some(std::time::Duration::from_secs(3));
    assert_eq!(total.expires(), Some(Timestamp::from_millis(1_003_000)));
}
