//! A suspend that fails at its deadline is retried with growing delays, and few of its failures are
//! reported. The limit of an operation grows with its data.

use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Cause, EventKind, Initiator, Limits, OnSuspendFailure, State, StateName, Timeouts};
use dorm_service::CreateSpec;

use crate::world::{World, create, eventually, named, state};

fn total(seconds: u64) -> Timeouts {
    Timeouts { total: Some(Duration::from_secs(seconds)), ..Timeouts::default() }
}

#[tokio::test(start_paused = true)]
async fn a_suspend_that_fails_at_its_deadline_is_tried_seldom_and_works_when_it_can() {
    for timeouts in [total(10), Timeouts { idle: Some(Duration::from_secs(10)), ..Timeouts::default() }] {
        let world = World::new().await;
        let service = world.daemon().await;
        let id = create(&service, CreateSpec { timeouts, ..named("web") }).await;
        world.host.faults().always(Operation::Save, Moment::Before, Fault::NoRoom);
        tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
        let tries = world.host.faults().calls(Operation::Save);
        assert!((15..30).contains(&tries), "{tries} times in two hours");
        let events = world.events(&id).await;
        let failures = events.iter().filter(|kind| **kind == EventKind::SuspendFailed).count();
        assert!((3..=5).contains(&failures) && events.len() < 12, "{events:?}");
        let view = service.describe(&id).await.unwrap();
        let failed = view.sandbox.suspend_failures.clone().unwrap();
        assert_eq!((state(&view), view.expires), (StateName::Running, Some(failed.next)));
        let why = service.why(&id).await.unwrap();
        let refused = why.refused.unwrap();
        assert!(refused.says.contains(&format!("failed {} times in a row", failed.count)), "{refused:?}");
        assert_eq!(why.next[0].at, Some(failed.next));
        world.host.faults().clear();
        tokio::time::sleep(Duration::from_secs(601)).await;
        eventually("it sleeps", || async { state(&service.describe(&id).await.unwrap()) == StateName::Suspended })
            .await;
        let awake = service.resume(&id, Initiator::User).await.unwrap();
        assert_eq!(awake.sandbox.suspend_failures, None);
        world.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_attempt_is_on_record_when_a_daemon_is_restarted() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, CreateSpec { timeouts: total(10), ..named("web") }).await;
    world.host.faults().always(Operation::Save, Moment::Before, Fault::Fail);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    let next = service.describe(&id).await.unwrap().sandbox.suspend_failures.unwrap().next;
    service.stop().await;
    let tries = world.host.faults().calls(Operation::Save);
    let service = world.daemon().await;
    let view = service.describe(&id).await.unwrap();
    assert_eq!(view.expires, Some(next));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.host.faults().calls(Operation::Save), tries);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_to_be_kept_is_terminated_after_a_row_of_failures_and_says_why() {
    let world = World::new().await;
    let service = world.daemon().await;
    let asked = CreateSpec { timeouts: total(10), on_suspend_failure: OnSuspendFailure::Terminate, ..named("web") };
    let id = create(&service, asked).await;
    world.host.faults().always(Operation::Save, Moment::Before, Fault::Fail);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    tokio::time::sleep(Duration::from_secs(1300)).await;
    let over = service.describe(&id).await.unwrap().sandbox.state;
    let State::Terminated { cause: Cause::Failed { reason }, .. } = over else { panic!("{over:?}") };
    assert!(reason.contains("could not be suspended") && reason.contains("11 attempts"), "{reason}");
    assert!(world.host.runs().is_empty());
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_has_the_time_that_its_data_takes_and_says_what_changes_that() {
    let second = Duration::from_secs(1);
    let limits = Limits {
        start: second,
        suspend: second,
        resume: second,
        snapshot: second,
        bytes_per_second: 1,
        ..Limits::default()
    };
    let world = World::new().await.limits(limits);
    let service = world.daemon().await;
    let slow = |operation| world.host.faults().next(operation, Moment::Before, Fault::Delay(60 * second));
    let id = create(&service, named("web")).await;
    slow(Operation::Save);
    let snapshot = service.checkpoint(&id, dorm_lifecycle::SnapshotKind::Memory).await.unwrap();
    slow(Operation::Save);
    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    slow(Operation::Restore);
    service.resume(&id, Initiator::User).await.unwrap();
    slow(Operation::Restore);
    let from = dorm_service::CreateFrom::Snapshot(snapshot.id);
    create(&service, CreateSpec::new(from)).await;

    let world = World::new().await.limits(Limits { bytes_per_second: u64::MAX, ..limits });
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Delay(60 * second));
    let refused = service.suspend(&id).await.unwrap_err().message();
    assert!(refused.contains("its limit of 1 s; raise it with --operation-limit"), "{refused}");
}
