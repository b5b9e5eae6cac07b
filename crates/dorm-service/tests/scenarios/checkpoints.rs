//! Snapshots that are taken automatically, with a clock that the test moves.

use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Checkpoints, EventKind, Initiator, RetentionPolicy, SandboxId, SnapshotKind, StateName};
use dorm_ports::Clock as _;
use dorm_service::{Budgets, Code, CreateFrom, CreateSpec, Service, Use};
use dorm_store::{EventFilter, Maker, SnapshotRecord, SnapshotStatus, Store as _};

use crate::world::{Counter, World, create, eventually, named, state};

const MINUTE: u64 = 60;
const HOUR: u64 = 3600;

fn policy(every: u64, keep: &str) -> Checkpoints {
    Checkpoints {
        every: Duration::from_secs(every),
        kind: SnapshotKind::Filesystem,
        keep: keep.parse::<RetentionPolicy>().unwrap(),
    }
}

fn with(name: &str, policy: Checkpoints) -> CreateSpec {
    CreateSpec { checkpoints: Some(policy), ..named(name) }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn touch(service: &Service, id: &SandboxId) {
    drop(service.agent(id, Use::Exec).await.unwrap());
}

/// Returns the snapshots that its policy has taken, the oldest first.
async fn taken(world: &World, id: &SandboxId) -> Vec<SnapshotRecord> {
    let all = world.store.snapshots(None).await.unwrap().into_iter();
    all.filter(|snapshot| snapshot.source == *id && snapshot.made_by == Maker::Policy).collect()
}

async fn settles(world: &World, id: &SandboxId, count: usize) {
    eventually(&format!("{count} are there"), || async {
        let taken = taken(world, id).await;
        taken.len() == count && taken.iter().all(|snapshot| snapshot.status == SnapshotStatus::Completed)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_is_taken_every_interval_while_it_is_used() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, with("web", policy(10 * MINUTE, "100"))).await;
    pass(9 * MINUTE).await;
    settles(&world, &id, 0).await;
    for count in 1..=6 {
        touch(&service, &id).await;
        pass(10 * MINUTE).await;
        settles(&world, &id, count).await;
    }
    let times: Vec<_> = taken(&world, &id).await.into_iter().map(|snapshot| snapshot.created).collect();
    for pair in times.windows(2) {
        let between = pair[1].since(pair[0]).as_secs();
        assert!((600..=601).contains(&between), "{between}");
    }
    let filter = EventFilter { sandbox: Some(id.clone()), ..EventFilter::default() };
    let events = world.store.events(&filter).await.unwrap();
    let by: Vec<_> = events.iter().filter(|record| record.event.kind == EventKind::SnapshotTaken).collect();
    assert_eq!(by.len(), 6);
    assert!(by.iter().all(|record| record.event.initiator == Initiator::Timer));
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_in_one_is_what_the_policy_says() {
    let world = World::new().await;
    let service = world.daemon().await;
    let memory = Checkpoints { kind: SnapshotKind::Memory, ..policy(MINUTE, "1") };
    let id = create(&service, with("web", memory)).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    counter.ask(&service, &id).await.unwrap();
    pass(MINUTE).await;
    settles(&world, &id, 1).await;
    let snapshot = taken(&world, &id).await.remove(0);
    assert_eq!(snapshot.kind, SnapshotKind::Memory);
    let child = create(&service, CreateSpec::new(CreateFrom::Snapshot(snapshot.id))).await;
    assert_eq!(counter.ask(&service, &child).await.unwrap(), "x 2");
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_idle_or_suspended_costs_nothing() {
    let world = World::new().await;
    let service = world.daemon().await;
    let idle = create(&service, with("idle", policy(MINUTE, "100"))).await;
    let suspended = create(&service, with("suspended", policy(MINUTE, "100"))).await;
    service.suspend(&suspended).await.unwrap();
    pass(24 * HOUR).await;
    settles(&world, &idle, 1).await;
    settles(&world, &suspended, 0).await;
    let saved_states = world.host.faults().calls(Operation::Save);
    pass(24 * HOUR + 30).await;
    assert_eq!(world.host.faults().calls(Operation::Save), saved_states);
    touch(&service, &idle).await;
    service.resume(&suspended, Initiator::User).await.unwrap();
    pass(2 * MINUTE).await;
    settles(&world, &idle, 2).await;
    settles(&world, &suspended, 1).await;
    let in_use = service.agent(&idle, Use::Terminal).await.unwrap();
    pass(10 * MINUTE).await;
    let while_open = taken(&world, &idle).await.len();
    assert!((11..=13).contains(&while_open), "an open terminal is use: {while_open}");
    drop(in_use);
    pass(5).await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_daemon_continues_the_schedule() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, with("web", policy(10 * MINUTE, "100"))).await;
    pass(6 * MINUTE).await;
    service.stop().await;
    pass(MINUTE).await;
    let service = world.daemon().await;
    pass(2 * MINUTE).await;
    settles(&world, &id, 0).await;
    pass(MINUTE + 1).await;
    settles(&world, &id, 1).await;
    touch(&service, &id).await;
    pass(4 * MINUTE).await;
    service.stop().await;
    pass(HOUR).await;
    let service = world.daemon().await;
    settles(&world, &id, 2).await;
    let last = taken(&world, &id).await.remove(1).created;
    assert!(world.clock.now().since(last).as_secs() < 10, "what was missed is made up for once");
    touch(&service, &id).await;
    pass(9 * MINUTE).await;
    settles(&world, &id, 2).await;
    pass(2 * MINUTE).await;
    settles(&world, &id, 3).await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_can_be_given_changed_and_taken_away() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    pass(HOUR).await;
    service.set_checkpoints(&id, Some(policy(2 * HOUR, "100"))).await.unwrap();
    pass(HOUR + 1).await;
    settles(&world, &id, 1).await;
    touch(&service, &id).await;
    service.set_checkpoints(&id, Some(policy(MINUTE, "100"))).await.unwrap();
    pass(MINUTE).await;
    settles(&world, &id, 2).await;
    let wrong = service.set_checkpoints(&id, Some(policy(9, "1"))).await.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
    let _in_use = service.agent(&id, Use::Exec).await.unwrap();
    service.set_checkpoints(&id, None).await.unwrap();
    pass(HOUR).await;
    settles(&world, &id, 2).await;
    let events = world.events(&id).await;
    assert_eq!(events.iter().filter(|kind| **kind == EventKind::CheckpointsSet).count(), 3);
    service.terminate(&id).await.unwrap();
    assert!(service.set_checkpoints(&id, Some(policy(HOUR, "1"))).await.is_err());
    settles(&world, &id, 2).await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn over_days_the_retention_policy_keeps_ever_fewer_and_never_what_somebody_asked_for() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, with("web", policy(2 * HOUR, "2,4x6h,3x1d"))).await;
    let _in_use = service.agent(&id, Use::Exec).await.unwrap();
    pass(3 * HOUR).await;
    let own = service.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap();
    for _ in 0..60 {
        pass(2 * HOUR).await;
    }
    eventually("what is spent is gone", || async { taken(&world, &id).await.len() <= 9 }).await;
    let now = world.clock.now();
    let ages: Vec<u64> =
        taken(&world, &id).await.iter().map(|snapshot| now.since(snapshot.created).as_secs() / HOUR).collect();
    assert!(ages.first().is_some_and(|oldest| (24..72).contains(oldest)), "{ages:?}");
    assert!(ages.last().is_some_and(|newest| *newest <= 2), "{ages:?}");
    assert!(ages.iter().filter(|age| **age <= 24).count() >= 4, "{ages:?}");
    assert_eq!(service.snapshot(&own.id).await.unwrap().status, SnapshotStatus::Completed);
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_needed_goes_when_it_is_free() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, with("web", policy(MINUTE, "1"))).await;
    pass(MINUTE).await;
    settles(&world, &id, 1).await;
    let first = taken(&world, &id).await.remove(0);
    let child = create(&service, CreateSpec::new(CreateFrom::Snapshot(first.id.clone()))).await;
    for _ in 0..3 {
        touch(&service, &id).await;
        pass(MINUTE + 1).await;
        settles(&world, &id, 2).await;
    }
    assert_eq!(taken(&world, &id).await.remove(0).id, first.id);
    service.stop().await;
    let service = world.daemon().await;
    settles(&world, &id, 2).await;
    service.terminate(&child).await.unwrap();
    eventually("it is gone", || async { service.snapshot(&first.id).await.is_err() }).await;
    settles(&world, &id, 1).await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_is_told_and_tried_again_an_interval_later() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, with("web", policy(10 * MINUTE, "100"))).await;
    for failures in 1..=3 {
        world.host.faults().next(Operation::Save, Moment::Before, Fault::Fail);
        pass(10 * MINUTE).await;
        eventually("it has failed", || async {
            let events = world.events(&id).await;
            events.iter().filter(|kind| **kind == EventKind::SnapshotFailed).count() == failures
        })
        .await;
        assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
        eventually("only the last is remembered", || async { taken(&world, &id).await.len() == 1 }).await;
    }
    assert_eq!(world.host.faults().calls(Operation::Save), 3);
    pass(10 * MINUTE).await;
    settles(&world, &id, 1).await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_even_be_begun_is_told() {
    let mut world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, with("web", policy(10 * MINUTE, "100"))).await;
    service.stop().await;
    world.settings.budgets = Budgets { disk_reserve_bytes: u64::MAX >> 1, ..Budgets::default() };
    let service = world.daemon().await;
    pass(35 * MINUTE).await;
    let filter = EventFilter { sandbox: Some(id.clone()), ..EventFilter::default() };
    let events = world.store.events(&filter).await.unwrap();
    let failed: Vec<_> = events.iter().filter(|record| record.event.kind == EventKind::SnapshotFailed).collect();
    assert_eq!(failed.len(), 3);
    assert!(failed[0].event.detail.as_ref().unwrap().contains("snapshot"), "{:?}", failed[0]);
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    settles(&world, &id, 0).await;
}

#[tokio::test(start_paused = true)]
async fn many_are_taken_by_one_task_and_none_waits_for_one_that_hangs() {
    let world = World::new().await;
    let service = world.daemon().await;
    let mut ids = Vec::new();
    for number in 0..20 {
        ids.push(create(&service, with(&format!("web{number}"), policy(MINUTE, "100"))).await);
    }
    world.host.faults().next(Operation::Save, Moment::After, Fault::Hang);
    pass(2 * MINUTE).await;
    let mut without = 0;
    for id in &ids {
        let complete = |snapshot: &SnapshotRecord| snapshot.status == SnapshotStatus::Completed;
        without += usize::from(!taken(&world, id).await.iter().any(complete));
    }
    assert_eq!(without, 1);
    world.host.faults().release();
    for id in &ids {
        eventually("it is taken", || async { !taken(&world, id).await.is_empty() }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_taken_before_a_command_is_thinned_like_the_others() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    for count in 1..=3 {
        let snapshot = service.checkpoint_before(&id, SnapshotKind::Filesystem).await.unwrap();
        assert_eq!((snapshot.made_by, snapshot.status), (Maker::Policy, SnapshotStatus::Completed));
        pass(1).await;
        settles(&world, &id, count).await;
    }
    service.checkpoint_before(&id, SnapshotKind::Memory).await.unwrap();
    settles(&world, &id, 3).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Fail);
    let failed = service.checkpoint_before(&id, SnapshotKind::Filesystem).await.unwrap_err();
    assert_eq!(failed.code(), Code::Failed);
    service.suspend(&id).await.unwrap();
    let asleep = service.checkpoint_before(&id, SnapshotKind::Filesystem).await.unwrap_err();
    assert_eq!(asleep.code(), Code::Conflict);
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_stops_nothing() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, with("web", policy(10 * MINUTE, "100"))).await;
    let _in_use = service.agent(&id, Use::Exec).await.unwrap();
    pass(21 * MINUTE).await;
    settles(&world, &id, 2).await;
    world.clock.set_by(-500_000);
    pass(35 * MINUTE).await;
    let count = taken(&world, &id).await.len();
    assert!((4..=6).contains(&count), "{count}");
    world.is_sound().await;
}
