//! Setting the wall clock deletes nothing early: snapshots, kept futures, snapshots of policies,
//! and old records.

use std::time::Duration;

use dorm_lifecycle::{Checkpoints, SnapshotKind, StateName, Timeouts};
use dorm_ports::Clock as _;
use dorm_service::{CheckpointSpec, CreateSpec, KeepFuture, Retention, Service, Use};
use dorm_store::{EventFilter, SandboxFilter, SandboxRecord, Store};

use crate::world::{World, base, create, eventually, named, state};

const DAY: u64 = 86_400;
const YEAR: i64 = 365 * 86_400_000;
/// Ten days back: the clock of these scenarios starts eleven days after the epoch.
const BACK: i64 = -10 * 86_400_000;

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn expiring(days: u64) -> CheckpointSpec {
    let expires = Some(Duration::from_secs(days * DAY));
    CheckpointSpec { kind: SnapshotKind::Memory, expires, ..CheckpointSpec::default() }
}

async fn snapshots(world: &World) -> usize {
    world.store.snapshots(None).await.unwrap().len()
}

async fn go(world: &World) {
    eventually("what is due is deleted", || async { snapshots(world).await == 0 }).await;
}

/// Makes the service check for deletions that are due.
async fn stir(service: &Service) {
    let id = create(service, base()).await;
    service.terminate(&id).await.unwrap();
    pass(700).await;
}

#[tokio::test(start_paused = true)]
async fn a_minute_in_another_year_deletes_nothing() {
    for millis in [YEAR, BACK] {
        let world = World::new().await;
        let service = world.daemon().await;
        let id = create(&service, named("web")).await;
        let snapshot = service.checkpoint_as(&id, expiring(7)).await.unwrap();
        service.rewind(&id, &snapshot.id, KeepFuture::For(Duration::from_secs(7 * DAY))).await.unwrap();
        assert_eq!(snapshots(&world).await, 2);
        world.clock.set_by(millis);
        stir(&service).await;
        assert_eq!(snapshots(&world).await, 2, "{millis}");
        world.clock.set_by(-millis);
        stir(&service).await;
        assert_eq!(snapshots(&world).await, 2, "{millis}");
        pass(6 * DAY + DAY / 2).await;
        assert_eq!(snapshots(&world).await, 2, "{millis}");
        pass(DAY / 2 + 7200).await;
        go(&world).await;
        world.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_jump_that_no_daemon_has_noted_deletes_nothing() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    service.checkpoint_as(&id, expiring(7)).await.unwrap();
    // The daemon stops before it reads the clock again.
    world.clock.set_by(YEAR);
    service.stop().await;
    pass(60).await;
    let service = world.daemon().await;
    stir(&service).await;
    assert_eq!(snapshots(&world).await, 1);
    pass(6 * DAY).await;
    assert_eq!(snapshots(&world).await, 1);
    pass(DAY).await;
    go(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_booted_into_another_year_deletes_nothing() {
    for millis in [YEAR, BACK] {
        let world = World::new().await;
        let service = world.daemon().await;
        let id = create(&service, named("web")).await;
        service.checkpoint_as(&id, expiring(7)).await.unwrap();
        let old = create(&service, base()).await;
        service.terminate(&old).await.unwrap();
        service.stop().await;
        world.clock.reboot();
        world.clock.set_by(millis);
        let (service, report) = world.daemon_and_report().await;
        assert!(report.lines.iter().any(|line| line.contains("wall clock")), "{:?}", report.lines);
        stir(&service).await;
        world.clock.set_by(-millis);
        stir(&service).await;
        assert_eq!(snapshots(&world).await, 1, "{millis}");
        assert!(world.store.sandbox(&old).await.unwrap().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_while_the_daemon_is_down_counts() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    service.checkpoint_as(&id, expiring(7)).await.unwrap();
    service.stop().await;
    pass(8 * DAY).await;
    let _service = world.daemon().await;
    go(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_rewrites_no_record() {
    let world = World::new().await;
    let service = world.daemon().await;
    for number in 0..5 {
        create(&service, CreateSpec { timeouts: idle(9000), ..named(&format!("web{number}")) }).await;
    }
    let revisions = async || -> Vec<u64> {
        let records = world.store.sandboxes(&SandboxFilter::default()).await.unwrap();
        records.into_iter().map(|SandboxRecord { revision, .. }| revision).collect()
    };
    let before = revisions().await;
    world.clock.set_by(YEAR);
    pass(60).await;
    assert_eq!(revisions().await, before);
    let note = world.store.clock().await.unwrap().unwrap();
    assert_eq!(note.periods.last().map(|period| period.ahead_millis), Some(YEAR));
}

fn idle(seconds: u64) -> Timeouts {
    Timeouts { idle: Some(Duration::from_secs(seconds)), ..Timeouts::default() }
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_took_is_thinned_by_its_age_and_not_by_the_wall_clock() {
    let world = World::new().await;
    let service = world.daemon().await;
    let policy = Checkpoints {
        every: Duration::from_secs(3600),
        kind: SnapshotKind::Filesystem,
        keep: "1,24x1h".parse().unwrap(),
    };
    let id = create(&service, CreateSpec { checkpoints: Some(policy), ..named("web") }).await;
    let in_use = service.agent(&id, Use::Exec).await.unwrap();
    pass(10 * 3600 + 600).await;
    let taken = snapshots(&world).await;
    assert!(taken >= 9, "{taken}");
    world.clock.set_by(YEAR);
    pass(2 * 3600 + 600).await;
    assert!(snapshots(&world).await > taken);
    world.clock.set_by(-YEAR);
    pass(2 * 3600 + 600).await;
    assert!(snapshots(&world).await > taken + 2);
    drop(in_use);
}

#[tokio::test(start_paused = true)]
async fn callers_are_shown_the_wall_clock() {
    let world = World::new().await;
    let service = world.daemon().await;
    let before = create(&service, CreateSpec { timeouts: idle(1000), ..named("before") }).await;
    let created = service.describe(&before).await.unwrap().sandbox.created;
    world.clock.set_by(YEAR);
    pass(10).await;
    let after = create(&service, named("after")).await;
    let now = world.clock.now();
    let near = |moment: dorm_lifecycle::Timestamp| moment.since(now).max(now.since(moment)) < Duration::from_secs(2000);
    assert!(near(service.describe(&after).await.unwrap().sandbox.created));
    // Callers see the time that the wall clock showed then.
    assert_eq!(service.describe(&before).await.unwrap().sandbox.created, created);
    assert!(near(service.describe(&before).await.unwrap().expires.unwrap()));
    let snapshot = service.checkpoint_as(&after, expiring(1)).await.unwrap();
    assert!(near(snapshot.created));
    assert!(near(service.snapshot(&snapshot.id).await.unwrap().created));
    let events = service.events(&EventFilter { sandbox: Some(after.clone()), ..EventFilter::default() }).await.unwrap();
    assert!(events.iter().all(|record| near(record.event.at)), "{events:?}");
    let why = service.why(&before).await.unwrap();
    assert!(why.next.iter().filter_map(|reason| reason.at).all(near), "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn old_records_are_removed_and_what_is_needed_stays() {
    let mut world = World::new().await;
    let day = Some(Duration::from_secs(DAY));
    world.settings.retention = Retention { terminated: day, events: day };
    let service = world.daemon().await;
    let plain = create(&service, base()).await;
    let kept = create(&service, named("kept")).await;
    let parent = create(&service, named("parent")).await;
    let snapshot = service.checkpoint(&parent, SnapshotKind::Memory).await.unwrap();
    let of_parent = dorm_service::CreateFrom::Snapshot(snapshot.id.clone());
    let child = create(&service, CreateSpec { ..CreateSpec::new(of_parent) }).await;
    service.checkpoint(&kept, SnapshotKind::Memory).await.unwrap();
    for id in [&plain, &kept, &parent] {
        service.terminate(id).await.unwrap();
    }
    service.delete_snapshot(&snapshot.id).await.unwrap();
    let living = create(&service, named("living")).await;
    pass(DAY - 3600).await;
    assert!(world.store.sandbox(&plain).await.unwrap().is_some());
    assert_eq!(world.store.events_removed().await.unwrap(), 0);
    pass(3 * 3600).await;
    eventually("the old one is removed", || async { world.store.sandbox(&plain).await.unwrap().is_none() }).await;
    assert!(world.store.sandbox(&kept).await.unwrap().is_some(), "a snapshot of it is there");
    assert!(world.store.sandbox(&parent).await.unwrap().is_some(), "another came from it");
    assert_eq!(state(&service.describe(&living).await.unwrap()), StateName::Running);
    let removed = world.store.events_removed().await.unwrap();
    assert!(removed > 0);
    let tree = service.tree(&dorm_service::TreeFilter::default()).await.unwrap();
    let found = |id: &str| tree.iter().find(|node| node.id.as_str() == id).map(|node| node.depth);
    assert_eq!(
        [found(parent.as_str()), found(snapshot.id.as_str()), found(child.as_str())],
        [Some(0), Some(1), Some(2)]
    );
    service.terminate(&child).await.unwrap();
    pass(DAY + 7200).await;
    eventually("the parent follows its child", || async { world.store.sandbox(&parent).await.unwrap().is_none() })
        .await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn events_that_a_webhook_has_not_taken_stay_three_times_as_long() {
    let mut world = World::new().await;
    world.settings.retention = Retention { terminated: None, events: Some(Duration::from_secs(DAY)) };
    let service = world.daemon().await;
    service.add_webhook("http://127.0.0.1:9/".to_owned(), Vec::new(), Some(1)).await.unwrap();
    let id = create(&service, base()).await;
    pass(DAY + 2 * 3600).await;
    assert_eq!(world.store.events_removed().await.unwrap(), 1);
    assert!(world.store.sandbox(&id).await.unwrap().is_some());
    pass(2 * DAY + 2 * 3600).await;
    assert_eq!(world.store.events_removed().await.unwrap(), 2);
}
