//! Deadlines, with a clock that the test moves.

use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Cause, EventKind, Initiator, SnapshotKind, State, StateName, Timeouts};
use dorm_ports::Clock as _;
use dorm_service::{CreateSpec, Service, Use};
use dorm_store::Store as _;

use crate::world::{World, base, create, eventually, named, state};

fn total(seconds: u64) -> Timeouts {
    Timeouts { total: Some(Duration::from_secs(seconds)), ..Timeouts::default() }
}

fn idle(seconds: u64) -> Timeouts {
    Timeouts { idle: Some(Duration::from_secs(seconds)), ..Timeouts::default() }
}

async fn becomes(service: &Service, id: &dorm_lifecycle::SandboxId, wanted: StateName) {
    eventually(wanted.as_str(), || async { state(&service.describe(id).await.unwrap()) == wanted }).await;
}

#[tokio::test(start_paused = true)]
async fn a_named_one_is_suspended_and_an_ephemeral_one_ends() {
    let world = World::new().await;
    let service = world.daemon().await;
    let named = create(&service, CreateSpec { timeouts: total(10), ..named("web") }).await;
    let ephemeral = create(&service, CreateSpec { timeouts: total(10), ..base() }).await;
    becomes(&service, &named, StateName::Suspended).await;
    becomes(&service, &ephemeral, StateName::Terminated).await;
    let over = service.describe(&ephemeral).await.unwrap().sandbox.state;
    assert!(matches!(over, State::Terminated { cause: Cause::Timeout, .. }), "{over:?}");
    assert!(world.events(&named).await.contains(&EventKind::DeadlinePassed));
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn resuming_renews_the_deadline_and_setting_moves_it() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, CreateSpec { timeouts: total(30), ..named("web") }).await;
    becomes(&service, &id, StateName::Suspended).await;
    service.resume(&id, Initiator::User).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    service.set_timeouts(&id, total(600)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(500)).await;
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    service.set_timeouts(&id, Timeouts::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(100_000)).await;
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    assert!(service.set_timeouts(&id, total(0)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn use_keeps_a_sandbox_from_being_idle() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, CreateSpec { timeouts: idle(10), ..named("web") }).await;
    let in_use = service.agent(&id, Use::Exec).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    drop(in_use);
    let left = service.describe(&id).await.unwrap().expires.unwrap();
    assert!(left.as_millis() > 0);
    becomes(&service, &id, StateName::Suspended).await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_survives_the_daemon() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, CreateSpec { timeouts: total(100), ..named("web") }).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    service.stop().await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    let service = world.daemon().await;
    becomes(&service, &id, StateName::Suspended).await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_deadlines_are_all_met() {
    let world = World::new().await;
    let service = world.daemon().await;
    let mut ids = Vec::new();
    for number in 0..1000u64 {
        ids.push(create(&service, CreateSpec { timeouts: total(20 + number % 20), ..base() }).await);
    }
    for id in &ids {
        becomes(&service, id, StateName::Terminated).await;
    }
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_keeps_a_sandbox_awake_until_it_ends_or_is_released() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, CreateSpec { timeouts: idle(10), ..named("web") }).await;
    let hour = Duration::from_secs(3600);
    let (view, hold) = service.hold(&id, hour, "the model thinks".into(), None).await.unwrap();
    assert_eq!(view.expires, Some(hold.until));
    service.stop().await;
    let service = world.daemon().await;
    tokio::time::sleep(Duration::from_secs(3000)).await;
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    let (_, renewed) = service.hold(&id, hour, "still".into(), Some(hold.id.clone())).await.unwrap();
    assert_eq!(service.describe(&id).await.unwrap().sandbox.holds.first(), Some(&renewed));
    tokio::time::sleep(Duration::from_secs(3000)).await;
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    service.release(&id, renewed.id.clone()).await.unwrap();
    becomes(&service, &id, StateName::Suspended).await;
    service.release(&id, renewed.id).await.unwrap();
    let events = world.events(&id).await;
    assert!(events.contains(&EventKind::Held) && events.contains(&EventKind::Released));
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn the_longest_run_ends_whoever_holds_it() {
    let world = World::new().await;
    let service = world.daemon().await;
    let limits = Timeouts { max_run: Some(Duration::from_secs(100)), ..idle(50) };
    let id = create(&service, CreateSpec { timeouts: limits, ..named("web") }).await;
    service.hold(&id, Duration::from_secs(3600), "a build".into(), None).await.unwrap();
    let in_use = service.agent(&id, Use::Exec).await.unwrap();
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    service.set_timeouts(&id, limits).await.unwrap();
    becomes(&service, &id, StateName::Suspended).await;
    drop(in_use);
    service.resume(&id, Initiator::User).await.unwrap();
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_ends_nothing_early_and_nothing_late() {
    for millis in [100 * 86_400_000, -500_000] {
        let world = World::new().await;
        let service = world.daemon().await;
        let by_total = create(&service, CreateSpec { timeouts: total(100), ..named("total") }).await;
        let by_idle = create(&service, CreateSpec { timeouts: idle(100), ..named("idle") }).await;
        tokio::time::sleep(Duration::from_secs(40)).await;
        world.clock.set_by(millis);
        tokio::time::sleep(Duration::from_secs(50)).await;
        for id in [&by_total, &by_idle] {
            let view = service.describe(id).await.unwrap();
            assert_eq!(state(&view), StateName::Running, "{millis}");
            let left = view.expires.unwrap().since(world.clock.now());
            assert_eq!(left, Duration::from_secs(10), "{millis}");
        }
        tokio::time::sleep(Duration::from_secs(11)).await;
        for id in [&by_total, &by_idle] {
            assert_ne!(state(&service.describe(id).await.unwrap()), StateName::Running, "{millis}");
            becomes(&service, id, StateName::Suspended).await;
        }
        world.is_sound().await;
    }
}

/// A change of the limits during a snapshot must not affect the snapshot in progress.
#[tokio::test]
async fn limits_can_be_changed_while_something_else_is_in_progress() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::After, Fault::Hang);
    let taking = tokio::spawn({
        let (service, id) = (service.clone(), id.clone());
        async move { service.checkpoint(&id, SnapshotKind::Memory).await }
    });
    world.host.faults().wait_until_struck(Operation::Save, 1).await;
    let view = service.set_timeouts(&id, total(600)).await.unwrap();
    assert_eq!(state(&view), StateName::Snapshotting);
    world.host.faults().release();
    let snapshot = taking.await.unwrap().unwrap();
    assert_eq!(service.snapshot(&snapshot.id).await.unwrap().status, dorm_store::SnapshotStatus::Completed);
    assert_eq!(world.store.snapshots(None).await.unwrap().len(), 1);
    world.is_sound().await;
}
