//! Saves, pauses, and the continuation after them.

use std::time::Duration;

use dorm_lifecycle::RunCondition;
use tokio::time::timeout;

use crate::scenario::{Answering, Guest, Image, Scenario};

/// The number of ticks of another guest after which a guest that runs would have been noticed.
const WHILE: u64 = 20;

/// Starts a second guest that ticks, so that a check can let time pass.
async fn witness(scenario: &Scenario) -> (Guest, Answering) {
    let guest = scenario.start().await;
    let ticking = scenario.ticking(&guest).await;
    (guest, ticking)
}

pub(super) async fn saving_keeps_the_source_paused(scenario: &Scenario) {
    let (witness, mut clock) = witness(scenario).await;
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    scenario.save(&guest).await;
    assert_eq!(scenario.condition(guest.run()).await, Some(RunCondition::Paused));
    let asked = guest.agent.unquiesce();
    tokio::select! {
        biased;
        answer = asked => panic!("a paused guest answers: {answer:?}"),
        () = witness.ticks(&mut clock, WHILE) => {}
    }
    assert_eq!(scenario.condition(guest.run()).await, Some(RunCondition::Paused));
    scenario.resume(&guest).await;
    assert_eq!(guest.ask(&mut counter).await, "kept 2");
}

pub(super) async fn a_save_tells_the_length_of_each_of_its_files(scenario: &Scenario) {
    let guest = scenario.start().await;
    for _ in 0..2 {
        let image = scenario.save(&guest).await;
        let mut told: Vec<_> = image.files.iter().map(|file| (image.directory.join(&file.name), file.bytes)).collect();
        told.sort();
        let found: Vec<_> = image.contents().into_iter().map(|(path, content)| (path, content.len() as u64)).collect();
        assert_eq!(told, found);
        scenario.resume(&guest).await;
        guest.write("/root/more", &"more".repeat(10_000)).await;
    }
}

pub(super) async fn a_paused_run_can_be_saved_again(scenario: &Scenario) {
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    scenario.save(&guest).await;
    let directory = scenario.directory();
    let saved = scenario.engine().save(guest.run(), &directory, &[]).await.expect("save again");
    assert_eq!(scenario.condition(guest.run()).await, Some(RunCondition::Paused));
    let second = Image { directory, files: saved.files };
    let restored = scenario.restore(&second, &guest).await;
    assert_eq!(restored.ask(&mut counter.clone()).await, "kept 2");
    scenario.resume(&guest).await;
    assert_eq!(guest.ask(&mut counter).await, "kept 2");
}

pub(super) async fn a_run_is_paused_without_being_saved_and_continues_exactly(scenario: &Scenario) {
    let (witness, mut clock) = witness(scenario).await;
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    for _ in 0..2 {
        scenario.engine().pause(guest.run()).await.expect("pause");
        assert_eq!(scenario.condition(guest.run()).await, Some(RunCondition::Paused));
    }
    let asked = guest.agent.unquiesce();
    tokio::select! {
        biased;
        answer = asked => panic!("a paused guest answers: {answer:?}"),
        () = witness.ticks(&mut clock, WHILE) => {}
    }
    scenario.engine().resume(guest.run()).await.expect("resume");
    assert_eq!(guest.ask(&mut counter).await, "kept 2");
}

pub(super) async fn a_paused_run_is_saved_and_ended_while_the_next_one_of_its_sandbox_runs(scenario: &Scenario) {
    let guest = scenario.start().await;
    let past = scenario.counting(&guest, "kept").await;
    guest.write("/root/note", "old").await;
    let old = scenario.save(&guest).await;
    scenario.resume(&guest).await;
    let mut present = past;
    assert_eq!(guest.ask(&mut present).await, "kept 1");
    guest.write("/root/note", "new").await;
    guest.agent.quiesce().await.expect("quiesce");
    scenario.engine().pause(guest.run()).await.expect("pause");
    let next = scenario.restore(&old, &guest).await;
    let mut of_next = past;
    assert_eq!(next.ask(&mut of_next).await, "kept 1");
    let new = scenario.write_image(&guest).await;
    assert_eq!(next.ask(&mut of_next).await, "kept 2");
    let mut spec = next.spec.clone();
    spec.run.generation += 1;
    scenario.stop(guest).await;
    assert_eq!(next.ask(&mut of_next).await, "kept 3");
    assert_eq!(next.read("/root/note").await.expect("the note"), "old");
    let again = scenario.restore_as(&new, spec).await;
    assert_eq!(again.ask(&mut present).await, "kept 2");
    assert_eq!(again.read("/root/note").await.expect("the note"), "new");
}

pub(super) async fn a_failed_save_keeps_the_source(scenario: &Scenario) {
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    guest.agent.quiesce().await.expect("quiesce");
    let missing = scenario.directory().join("not-there");
    assert!(scenario.engine().save(guest.run(), &missing, &[]).await.is_err());
    assert_eq!(scenario.condition(guest.run()).await, Some(RunCondition::Paused));
    scenario.resume(&guest).await;
    assert_eq!(guest.ask(&mut counter).await, "kept 2");
    scenario.save(&guest).await;
    scenario.resume(&guest).await;
    assert_eq!(guest.ask(&mut counter).await, "kept 3");
}

pub(super) async fn resuming_continues_exactly(scenario: &Scenario) {
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    for round in 0..3 {
        assert_eq!(guest.ask(&mut counter).await, format!("kept {}", 2 * round + 1));
        scenario.save(&guest).await;
        scenario.resume(&guest).await;
        assert_eq!(guest.ask(&mut counter).await, format!("kept {}", 2 * round + 2));
    }
}

pub(super) async fn resuming_after_parking_continues_exactly(scenario: &Scenario) {
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    for round in 0..3 {
        assert_eq!(guest.ask(&mut counter).await, format!("kept {}", 2 * round + 1));
        scenario.save(&guest).await;
        scenario.engine().park(guest.run()).await.expect("park");
        assert_eq!(scenario.condition(guest.run()).await, Some(RunCondition::Parked));
        scenario.resume(&guest).await;
        assert_eq!(scenario.condition(guest.run()).await, Some(RunCondition::Running));
        assert_eq!(guest.ask(&mut counter).await, format!("kept {}", 2 * round + 2));
    }
}

pub(super) async fn a_ticking_process_continues_without_a_gap(scenario: &Scenario) {
    let (witness, mut clock) = witness(scenario).await;
    let guest = scenario.start().await;
    let mut ticking = scenario.ticking(&guest).await;
    let began = ticking;
    let image = scenario.save(&guest).await;
    witness.ticks(&mut clock, WHILE).await;
    scenario.engine().park(guest.run()).await.expect("park");
    witness.ticks(&mut clock, WHILE).await;
    scenario.resume(&guest).await;
    ticks_from_two(&guest, &mut ticking).await;
    let restored = scenario.restore(&image, &guest).await;
    ticks_from_two(&restored, &mut { began }).await;
}

async fn ticks_from_two(guest: &Guest, ticking: &mut Answering) {
    for expected in 2..2 + WHILE {
        assert_eq!(guest.next_line(ticking).await, expected.to_string());
    }
}

pub(super) async fn parking_twice_is_idempotent(scenario: &Scenario) {
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    scenario.save(&guest).await;
    for _ in 0..2 {
        scenario.engine().park(guest.run()).await.expect("park");
        assert_eq!(scenario.condition(guest.run()).await, Some(RunCondition::Parked));
    }
    scenario.resume(&guest).await;
    assert_eq!(guest.ask(&mut counter).await, "kept 2");
}

pub(super) async fn resuming_a_running_run_changes_nothing(scenario: &Scenario) {
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    for _ in 0..2 {
        scenario.engine().resume(guest.run()).await.expect("resume");
        assert_eq!(scenario.condition(guest.run()).await, Some(RunCondition::Running));
    }
    assert_eq!(guest.ask(&mut counter).await, "kept 2");
}

pub(super) async fn a_parked_run_uses_no_cpu(scenario: &Scenario) {
    let (witness, mut clock) = witness(scenario).await;
    let guest = scenario.start().await;
    scenario.ticking(&guest).await;
    scenario.save(&guest).await;
    scenario.engine().park(guest.run()).await.expect("park");
    let before = scenario.engine().usage(guest.run()).await.expect("usage").cpu_micros;
    witness.ticks(&mut clock, 3 * WHILE).await;
    let used = scenario.engine().usage(guest.run()).await.expect("usage").cpu_micros - before;
    // The measurement may be rounded; a guest that is not frozen uses tens of milliseconds
    // meanwhile.
    assert!(used <= 5_000, "a parked run used {used} µs of CPU");
    // The caller of a frozen guest must not wait long either.
    timeout(Duration::from_secs(120), scenario.resume(&guest)).await.expect("a parked run resumes");
}
