//! Planned faults have the effect they describe, and leave the host in the state they describe.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dorm_engine::{Engine, EngineError, Notice, RunSpec, Saved};
use dorm_engine_fake::{FakeEngine, FakeHost, Fault, Moment, Operation};
use dorm_lifecycle::{Egress, Resources, RunCondition, RunId, SandboxId};
use tokio::time::Instant;

fn spec(number: u8) -> RunSpec {
    RunSpec {
        run: RunId { sandbox: SandboxId::from_random([number; 20]), generation: 1 },
        image: "0".repeat(64).parse().unwrap(),
        rootfs: PathBuf::from("/nowhere"),
        layers: Vec::new(),
        resources: Resources::default(),
        egress: Egress::Public,
        mounts: Vec::new(),
        build: None,
    }
}

fn engine() -> (FakeHost, Arc<FakeEngine>) {
    let host = FakeHost::new();
    let engine = host.open();
    (host, engine)
}

#[tokio::test]
async fn the_nth_call_fails_before_or_after_its_effect() {
    let (host, engine) = engine();
    host.faults().plan(Operation::Start, 2, Moment::Before, Fault::Fail);
    host.faults().plan(Operation::Start, 3, Moment::After, Fault::NoRoom);
    engine.start(&spec(1)).await.unwrap();
    assert!(matches!(engine.start(&spec(2)).await, Err(EngineError::Failed { .. })));
    assert!(matches!(engine.start(&spec(3)).await, Err(EngineError::NoRoom { .. })));
    engine.start(&spec(4)).await.unwrap();
    let there: Vec<_> = host.runs().into_iter().map(|(run, _)| run).collect();
    assert_eq!(there, [spec(1).run, spec(3).run, spec(4).run]);
    assert_eq!((host.faults().calls(Operation::Start), host.faults().struck(Operation::Start)), (4, 2));
}

#[tokio::test(start_paused = true)]
async fn a_call_hangs_until_it_is_released_and_a_delayed_one_takes_its_time() {
    let (host, engine) = engine();
    engine.start(&spec(1)).await.unwrap();
    host.faults().next(Operation::Stop, Moment::Before, Fault::Hang);
    let stopping = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.stop(&spec(1).run).await }
    });
    host.faults().wait_until_struck(Operation::Stop, 1).await;
    assert!(!stopping.is_finished());
    assert_eq!(host.runs(), [(spec(1).run, RunCondition::Running)]);
    host.faults().release();
    stopping.await.unwrap().unwrap();
    assert_eq!(host.runs(), []);
    host.faults().next(Operation::Start, Moment::After, Fault::Delay(Duration::from_secs(60)));
    let before = Instant::now();
    engine.start(&spec(2)).await.unwrap();
    assert!(before.elapsed() >= Duration::from_secs(60));
}

#[tokio::test]
async fn a_run_may_die_or_be_lost_in_the_middle_of_a_call() {
    let (host, engine) = engine();
    let mut notices = engine.notices();
    let directory = tempfile::tempdir().unwrap();
    for number in 1..=3 {
        engine.start(&spec(number)).await.unwrap();
    }
    host.faults().next(Operation::Save, Moment::Before, Fault::Die);
    assert!(matches!(engine.save(&spec(1).run, directory.path(), &[]).await, Err(EngineError::Ended { .. })));
    assert!(matches!(notices.recv().await, Some(Notice::Ended { run, .. }) if run == spec(1).run));
    host.faults().next(Operation::Save, Moment::Before, Fault::Lose);
    assert!(matches!(engine.save(&spec(2).run, directory.path(), &[]).await, Err(EngineError::NoRun(_))));
    assert_eq!(host.runs(), [(spec(1).run, RunCondition::Broken), (spec(3).run, RunCondition::Running)]);
    host.die_silently(&spec(3).run);
    assert!(notices.try_recv().is_err());
    assert!(matches!(engine.agent(&spec(3).run).await, Err(EngineError::Ended { .. })));
}

#[tokio::test]
async fn a_save_that_writes_short_is_found_out_by_its_lengths_and_at_restore() {
    let (host, engine) = engine();
    engine.start(&spec(1)).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    host.faults().next(Operation::Save, Moment::After, Fault::WriteShort);
    let is_told_right = |saved: Saved| {
        saved.files.iter().all(|file| {
            let found = std::fs::metadata(directory.path().join(&file.name));
            found.is_ok_and(|found| found.len() == file.bytes)
        })
    };
    assert!(!is_told_right(engine.save(&spec(1).run, directory.path(), &[]).await.unwrap()));
    assert!(engine.restore(&spec(2), directory.path()).await.is_err());
    assert!(is_told_right(engine.save(&spec(1).run, directory.path(), &[]).await.unwrap()));
    engine.restore(&spec(2), directory.path()).await.unwrap();
}

#[tokio::test]
async fn a_save_on_a_full_disk_keeps_the_source_paused() {
    let (host, engine) = engine();
    engine.start(&spec(1)).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    host.faults().always(Operation::Save, Moment::After, Fault::NoRoom);
    for _ in 0..2 {
        let full = engine.save(&spec(1).run, directory.path(), &[]).await;
        assert!(matches!(full, Err(EngineError::NoRoom { .. })), "{full:?}");
        assert_eq!(host.runs(), [(spec(1).run, RunCondition::Paused)]);
    }
    host.faults().clear();
    engine.save(&spec(1).run, directory.path(), &[]).await.unwrap();
    engine.resume(&spec(1).run).await.unwrap();
}

#[tokio::test]
async fn an_engine_whose_daemon_is_dead_does_nothing_more() {
    let (host, dead) = engine();
    dead.start(&spec(1)).await.unwrap();
    let mut of_the_dead = dead.notices();
    let living = host.open();
    assert!(dead.stop(&spec(1).run).await.is_err());
    assert!(dead.start(&spec(2)).await.is_err());
    assert_eq!(living.inventory().await.unwrap().len(), 1);
    host.kill(&spec(1).run, "by a test");
    assert!(of_the_dead.recv().await.is_none());
    host.reboot();
    assert!(living.inventory().await.is_err());
    assert_eq!(host.open().inventory().await.unwrap(), []);
}
