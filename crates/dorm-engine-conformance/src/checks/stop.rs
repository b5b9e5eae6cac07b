//! Ends of runs, including runs that were never completely started.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use dorm_agent_client::Offsets;
use dorm_engine::EngineError;
use dorm_lifecycle::RunCondition;
use futures_util::StreamExt as _;

use crate::scenario::{Scenario, guest_path};

pub(super) async fn stopping_twice_is_idempotent_and_leaves_nothing(scenario: &Scenario) {
    let guest = scenario.start().await;
    guest.write("/root/note", "gone soon").await;
    scenario.counting(&guest, "gone").await;
    for _ in 0..2 {
        scenario.engine().stop(guest.run()).await.expect("stop");
        scenario.nothing_is_left().await;
    }
    guest.agent.closed().await;
    assert!(guest.agent.stat(&guest_path("/root/note")).await.is_err());
}

pub(super) async fn every_stream_of_a_run_ends_with_it(scenario: &Scenario) {
    let guest = scenario.start().await;
    let silent = scenario.counting(&guest, "gone").await.process;
    let follow = || async { guest.agent.output(silent, Offsets::NOW).await.expect("follow a process") };
    let followed = tokio::spawn(follow().await.for_each(|_| async {}));
    // A call that is cancelled makes the host the last to use the link.
    drop(follow().await);
    tokio::task::yield_now().await;
    scenario.engine().stop(guest.run()).await.expect("stop");
    followed.await.expect("the reader");
    guest.agent.closed().await;
}

pub(super) async fn stopping_a_paused_run_leaves_nothing(scenario: &Scenario) {
    let guest = scenario.start().await;
    scenario.ticking(&guest).await;
    scenario.save(&guest).await;
    scenario.stop(guest).await;
    scenario.nothing_is_left().await;
}

pub(super) async fn stopping_a_parked_run_leaves_nothing(scenario: &Scenario) {
    let guest = scenario.start().await;
    scenario.ticking(&guest).await;
    scenario.save(&guest).await;
    scenario.engine().park(guest.run()).await.expect("park");
    scenario.stop(guest).await;
    scenario.nothing_is_left().await;
}

pub(super) async fn unknown_runs_are_named_as_such(scenario: &Scenario) {
    let (engine, unknown) = (scenario.engine(), scenario.spec().run);
    let directory = scenario.directory();
    let answers = [
        ("save", engine.save(&unknown, &directory, &[]).await.err()),
        ("park", engine.park(&unknown).await.err()),
        ("resume", engine.resume(&unknown).await.err()),
        ("agent", engine.agent(&unknown).await.err()),
        ("connect", engine.connect(&unknown, 80).await.err()),
        ("usage", engine.usage(&unknown).await.err()),
        ("relieve", engine.relieve_memory_pressure(&unknown, None).await.err()),
    ];
    for (operation, error) in answers {
        assert!(matches!(&error, Some(EngineError::NoRun(run)) if *run == unknown), "{operation}: {error:?}");
    }
    engine.stop(&unknown).await.expect("stopping a run that is not there");
}

/// Polls a future at most `polls` times, then drops it. Returns its output if it completed.
async fn dropped_after<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = 0;
    std::future::poll_fn(|context| {
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if polled >= polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The numbers of polls after which a call is dropped; the last is more than any call needs.
const POLLS: [u32; 6] = [1, 2, 3, 5, 9, 1000];

pub(super) async fn a_start_dropped_anywhere_leaves_nothing_after_stop(scenario: &Scenario) {
    for polls in POLLS {
        let spec = scenario.spec();
        dropped_after(polls, scenario.engine().start(&spec)).await;
        scenario.engine().stop(&spec.run).await.expect("stop");
        scenario.nothing_is_left().await;
    }
}

pub(super) async fn a_start_dropped_anywhere_leaves_nothing_after_a_sweep(scenario: &Scenario) {
    for polls in POLLS {
        let spec = scenario.spec();
        dropped_after(polls, scenario.engine().start(&spec)).await;
        scenario.engine().sweep(&[]).await.expect("sweep");
        scenario.nothing_is_left().await;
    }
}

pub(super) async fn a_restore_dropped_anywhere_leaves_nothing_after_stop(scenario: &Scenario) {
    let source = scenario.start().await;
    let mut counter = scenario.counting(&source, "kept").await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    let image = scenario.save(&source).await;
    scenario.stop(source).await;
    for polls in POLLS {
        let spec = scenario.spec();
        dropped_after(polls, scenario.engine().restore(&spec, &image.directory)).await;
        scenario.engine().stop(&spec.run).await.expect("stop");
        scenario.nothing_is_left().await;
    }
    let restored = scenario.restore_as(&image, scenario.spec()).await;
    assert_eq!(restored.ask(&mut counter).await, "kept 2");
}

pub(super) async fn a_save_dropped_anywhere_keeps_the_source(scenario: &Scenario) {
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    for (round, polls) in POLLS.into_iter().enumerate() {
        guest.agent.quiesce().await.expect("quiesce");
        let directory = scenario.directory();
        dropped_after(polls, scenario.engine().save(guest.run(), &directory, &[])).await;
        let condition = scenario.condition(guest.run()).await;
        assert!(matches!(condition, Some(RunCondition::Running | RunCondition::Paused)), "{condition:?}");
        scenario.resume(&guest).await;
        assert_eq!(guest.ask(&mut counter).await, format!("kept {}", round + 1));
    }
}
