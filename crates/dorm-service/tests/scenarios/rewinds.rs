//! Rewinds of sandboxes to snapshots: the state afterwards, the future that is kept of the state
//! before, and the rewind to that future.

use std::fs;
use std::time::Duration;

use dorm_agent_client::GuestPath;
use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{EventKind, Initiator, Resources, Restored, SandboxId, SnapshotId, SnapshotKind, StateName};
use dorm_service::{Code, CreateFrom, CreateSpec, KeepFuture, Service, Use};
use dorm_store::{Removal, SandboxFilter, SnapshotRecord, SnapshotStatus, Store as _};

use crate::world::{Counter, World, base, create, eventually, named, read, state, suspending, write};

/// Returns a sandbox whose counter was 1 and whose file contained "old" in the snapshot; now they
/// are 3 and "new".
pub(crate) async fn continued_past_snapshot(service: &Service, asked: CreateSpec) -> (SandboxId, Counter, SnapshotId) {
    let id = create(service, asked).await;
    let mut counter = Counter::start(service, &id, "x").await;
    assert_eq!(counter.ask(service, &id).await.unwrap(), "x 1");
    note(service, &id, "old").await;
    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    let past = counter;
    counter.ask(service, &id).await.unwrap();
    assert_eq!(counter.ask(service, &id).await.unwrap(), "x 3");
    note(service, &id, "new").await;
    (id, past, snapshot.id)
}

async fn note(service: &Service, id: &SandboxId, text: &'static str) {
    let (agent, _in_use) = service.agent(id, Use::Files).await.unwrap();
    write(&agent, "/note", text).await;
}

pub(crate) async fn noted(service: &Service, id: &SandboxId) -> String {
    let (agent, _in_use) = service.agent(id, Use::Files).await.unwrap();
    let _ = GuestPath::new("/note").unwrap();
    read(&agent, "/note").await
}

/// Returns a snapshot when it is complete.
pub(crate) async fn completed(service: &Service, id: &SnapshotId) -> SnapshotRecord {
    eventually("it is complete", || async { service.snapshot(id).await.unwrap().status == SnapshotStatus::Completed })
        .await;
    service.snapshot(id).await.unwrap()
}

/// Checks that a sandbox made from the snapshot has the counter at `count` and the file with
/// `text`.
pub(crate) async fn holds(service: &Service, snapshot: &SnapshotId, past: Counter, count: u64, text: &str) {
    let child = create(service, CreateSpec::new(CreateFrom::Snapshot(snapshot.clone()))).await;
    let mut of_child = past.heard_until("x 1\n", count);
    assert_eq!(of_child.ask(service, &child).await.unwrap(), format!("x {}", count + 1));
    assert_eq!(noted(service, &child).await, text);
    service.terminate(&child).await.unwrap();
}

#[tokio::test]
async fn memory_and_files_are_the_old_ones_under_the_same_id_and_the_future_is_kept() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter, snapshot) = continued_past_snapshot(&service, named("web")).await;
    let past = counter;
    let done = service.rewind(&id, &snapshot, KeepFuture::default()).await.unwrap();
    let sandbox = &done.sandbox.sandbox;
    assert_eq!((&sandbox.id, state(&done.sandbox), sandbox.generation), (&id, StateName::Running, 2));
    assert_eq!(sandbox.spec.name.as_ref().map(|name| name.as_str()), Some("web"));
    assert_eq!(sandbox.restored, Restored::Memory { generation: None });
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    assert_eq!(noted(&service, &id).await, "old");
    let future = completed(&service, &done.future.unwrap()).await;
    assert_eq!((&future.source, future.generation), (&id, 1));
    assert_eq!(future.labels.get("rewound"), Some(&snapshot.to_string()));
    assert!(matches!(future.removal, Removal::At(_)), "it goes by itself");
    holds(&service, &future.id, past, 3, "new").await;
    assert_eq!(
        service.checkpoint(&id, SnapshotKind::Memory).await.unwrap().parent,
        Some(snapshot),
        "its present comes from there"
    );
    assert!(world.events(&id).await.ends_with(&[
        EventKind::Rewinding,
        EventKind::Suspending,
        EventKind::Rewound,
        EventKind::SnapshotTaken,
        EventKind::Snapshotting,
        EventKind::SnapshotTaken,
    ]));
    world.is_sound().await;
    // The sandbox falls back to its own copy of the snapshot.
    let run = service.describe(&id).await.unwrap().sandbox.run_id();
    world.host.kill(&run, "killed");
    eventually("it has fallen back", || async { state(&service.describe(&id).await.unwrap()) == StateName::Suspended })
        .await;
    service.resume(&id, Initiator::User).await.unwrap();
    let mut again = past;
    assert_eq!(again.ask(&service, &id).await.unwrap(), "x 2");
    world.is_sound().await;
}

#[tokio::test]
async fn a_suspended_one_is_rewound_whether_its_memory_is_held_or_not_and_twice_in_a_row() {
    for evicted in [false, true] {
        let world = World::new().await;
        let service = world.daemon().await;
        let (id, past, snapshot) = continued_past_snapshot(&service, named("web")).await;
        service.suspend(&id).await.unwrap();
        if evicted {
            service.evict(&id).await.unwrap();
        }
        for count in [3, 2] {
            let done = service.rewind(&id, &snapshot, KeepFuture::UntilDeleted).await.unwrap();
            let mut counter = past;
            assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
            let future = service.snapshot(&done.future.unwrap()).await.unwrap();
            assert_eq!(future.removal, Removal::Asked);
            holds(&service, &future.id, past, count, if count == 3 { "new" } else { "old" }).await;
            world.is_sound().await;
        }
        service.suspend(&id).await.unwrap();
        service.resume(&id, Initiator::User).await.unwrap();
        let mut counter = past.heard_until("x 1\n", 2);
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 3", "it sleeps and wakes as any other");
        world.is_sound().await;
    }
}

#[tokio::test]
async fn an_ephemeral_one_is_rewound_too_and_still_cannot_be_suspended() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter, snapshot) = continued_past_snapshot(&service, base()).await;
    let done = service.rewind(&id, &snapshot, KeepFuture::Not).await.unwrap();
    assert_eq!((done.future, done.sandbox.sandbox.saved_states().count()), (None, 0));
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    assert_eq!(service.suspend(&id).await.unwrap_err().code(), Code::Conflict);
    assert_eq!(service.snapshots().await.unwrap().len(), 1, "nothing of the future is left");
    world.is_sound().await;
    let refused = service.rewind(&id, &snapshot, KeepFuture::Not).await;
    assert!(refused.is_ok(), "and again");
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn the_future_goes_by_itself() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, _, snapshot) = continued_past_snapshot(&service, named("web")).await;
    let keep = KeepFuture::For(Duration::from_secs(60));
    let future = service.rewind(&id, &snapshot, keep).await.unwrap().future.unwrap();
    tokio::time::sleep(Duration::from_secs(50)).await;
    service.snapshot(&future).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    eventually("it is gone", || async { service.snapshots().await.unwrap().len() == 1 }).await;
    world.is_sound().await;
}

#[tokio::test]
async fn a_rewind_that_fails_leaves_the_present_as_it_was() {
    for slept in [false, true] {
        let faults = [(Operation::Restore, 1), (Operation::Pause, 1), (Operation::Agent, 1)];
        for (call, nth) in faults.into_iter().filter(|(call, _)| !slept || *call != Operation::Pause) {
            let world = World::new().await;
            let service = world.daemon().await;
            let (id, past, snapshot) = continued_past_snapshot(&service, named("web")).await;
            if slept {
                service.suspend(&id).await.unwrap();
            }
            world.host.faults().plan(call, nth, Moment::Before, Fault::Fail);
            let failed = service.rewind(&id, &snapshot, KeepFuture::default()).await.unwrap_err();
            assert_eq!(failed.code(), Code::Failed, "{failed}");
            assert!(failed.message().contains("rewind"), "{}", failed.message());
            let view = service.describe(&id).await.unwrap();
            let expected = if slept { StateName::Suspended } else { StateName::Running };
            assert_eq!(state(&view), expected, "{call:?}: it is where it was when the caller hears of it");
            world.is_sound().await;
            service.resume(&id, Initiator::User).await.unwrap();
            let mut counter = past.heard_until("x 1\n", 3);
            assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 4");
            assert_eq!(noted(&service, &id).await, "new");
            assert!(world.events(&id).await.contains(&EventKind::RewindFailed));
            assert_eq!(service.snapshots().await.unwrap().len(), 1);
            world.is_sound().await;
        }
    }
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_used_is_refused_before_anything_is_done() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, past, snapshot) = continued_past_snapshot(&service, named("web")).await;
    let nobody = SnapshotId::from_random([9; 20]);
    let code = async |to: &SnapshotId| service.rewind(&id, to, KeepFuture::default()).await.unwrap_err().code();
    assert_eq!(code(&nobody).await, Code::NotFound);
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Fail);
    service.checkpoint(&id, SnapshotKind::Memory).await.unwrap_err();
    let all = service.snapshots().await.unwrap();
    let failed = all.iter().find(|snapshot| snapshot.status != SnapshotStatus::Completed).unwrap();
    assert_eq!(code(&failed.id).await, Code::Conflict);
    // The snapshot is based on another image.
    let source = world.directory.path().join("other");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("other"), "other").unwrap();
    world.storage().import(&source, Some("other"), |_| {}).await.unwrap();
    let other = create(&service, CreateSpec::new(CreateFrom::Image("other".into()))).await;
    let of_other = service.checkpoint(&other, SnapshotKind::Memory).await.unwrap();
    let refused = service.rewind(&id, &of_other.id, KeepFuture::default()).await.unwrap_err();
    assert!(refused.message().contains("another image"), "{refused}");
    // The snapshot is damaged.
    let directory = world
        .directory
        .path()
        .join("data/saved_states")
        .join(service.snapshot(&snapshot).await.unwrap().saved_state.as_str());
    let file = directory.join(dorm_engine_fake::IMAGE_MEMORY);
    let mut content = fs::read(&file).unwrap();
    content[10] ^= 1;
    fs::write(&file, content).unwrap();
    let saved_states = world.host.faults().calls(Operation::Save);
    let refused = service.rewind(&id, &snapshot, KeepFuture::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Damaged);
    assert!(refused.message().contains("nothing was changed"), "{}", refused.message());
    assert_eq!(world.host.faults().calls(Operation::Save), saved_states, "it was not even saved");
    let mut counter = past.heard_until("x 1\n", 3);
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 4");
    service.terminate(&id).await.unwrap();
    assert_eq!(code(&snapshot).await, Code::Gone);
    world.is_sound().await;
}

#[tokio::test]
async fn a_rewind_waits_for_an_operation_in_progress_and_others_wait_for_it() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, past, snapshot) = continued_past_snapshot(&service, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::After, Fault::Hang);
    let caller = suspending(&service, &id);
    eventually("it is being suspended", || async { world.host.faults().struck(Operation::Save) == 1 }).await;
    let rewinding = {
        let (service, id, to) = (service.clone(), id.clone(), snapshot.clone());
        tokio::spawn(async move { service.rewind(&id, &to, KeepFuture::default()).await })
    };
    world.host.faults().release();
    caller.await.unwrap().unwrap();
    rewinding.await.unwrap().unwrap();
    let mut counter = past;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.host.faults().next(Operation::Restore, Moment::Before, Fault::Hang);
    let before = world.host.faults().struck(Operation::Restore);
    let rewinding = {
        let (service, id, to) = (service.clone(), id.clone(), snapshot.clone());
        tokio::spawn(async move { service.rewind(&id, &to, KeepFuture::default()).await })
    };
    eventually("it is on its way", || async { world.host.faults().struck(Operation::Restore) == before + 1 }).await;
    assert_eq!(service.delete_snapshot(&snapshot).await.unwrap_err().code(), Code::Conflict, "not before it is back");
    let terminating = {
        let (service, id) = (service.clone(), id.clone());
        tokio::spawn(async move { service.terminate(&id).await })
    };
    world.host.faults().release();
    rewinding.await.unwrap().unwrap();
    terminating.await.unwrap().unwrap();
    service.delete_snapshot(&snapshot).await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn a_daemon_that_dies_in_the_middle_leaves_it_in_the_present_or_in_the_past() {
    for (call, moment, back) in [
        (Operation::Pause, Moment::Before, false),
        (Operation::Pause, Moment::After, false),
        (Operation::Restore, Moment::Before, false),
        (Operation::Restore, Moment::After, false),
        (Operation::Save, Moment::Before, true),
        (Operation::Save, Moment::After, true),
        (Operation::Stop, Moment::Before, true),
    ] {
        let world = World::new().await;
        let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (parts, faults) = (world.parts(), world.host.faults().clone());
        let (tell, told) = tokio::sync::oneshot::channel();
        doomed.spawn(async move {
            let (service, _) = Service::open(parts).await.unwrap();
            let (id, past, snapshot) = continued_past_snapshot(&service, named("web")).await;
            faults.next(call, moment, Fault::Hang);
            let _ = tell.send((id.clone(), past));
            drop(service.rewind(&id, &snapshot, KeepFuture::default()).await);
        });
        let (id, past) = told.await.unwrap();
        eventually("it hangs", || async { world.host.faults().struck(call) == 1 }).await;
        let ended = tokio::task::spawn_blocking(move || doomed.shutdown_timeout(Duration::from_secs(60)));
        ended.await.unwrap();
        world.host.open();
        let service = world.daemon().await;
        let settled = async || state(&service.describe(&id).await.unwrap()) == StateName::Running;
        eventually("it is settled", settled).await;
        world.is_sound().await;
        let mut counter = if back { past } else { past.heard_until("x 1\n", 3) };
        let expected = if back { "x 2" } else { "x 4" };
        assert_eq!(counter.ask(&service, &id).await.unwrap(), expected, "{call:?} {moment:?}");
        let snapshots = service.snapshots().await.unwrap();
        assert_eq!(snapshots.len(), if back { 2 } else { 1 });
        if let Some(future) = snapshots.get(1) {
            holds(&service, &future.id, past, 3, "new").await;
        }
    }
}

#[tokio::test]
async fn limits_come_with_the_snapshot_and_settings_stay() {
    let world = World::new().await;
    let service = world.daemon().await;
    let large = Resources { memory_bytes: 1 << 30, ..Resources::default() };
    let other = create(&service, CreateSpec { resources: Some(large), ..named("large") }).await;
    let snapshot = service.checkpoint(&other, SnapshotKind::Memory).await.unwrap();
    let mut asked = named("web");
    asked.variables = [("COLOUR".to_owned(), "red".to_owned())].into();
    let id = create(&service, asked).await;
    let done = service.rewind(&id, &snapshot.id, KeepFuture::default()).await.unwrap();
    let spec = &done.sandbox.sandbox.spec;
    assert_eq!((spec.resources, spec.variables.0.len()), (large, 1));
    assert_eq!(service.snapshot(&done.future.unwrap()).await.unwrap().resources, Resources::default());
    world.is_sound().await;
}

#[tokio::test]
async fn a_terminated_one_is_made_anew_from_its_newest_snapshot() {
    let world = World::new().await;
    let service = world.daemon().await;
    let mut asked = named("web");
    asked.labels = [("team".to_owned(), "a".to_owned())].into();
    let (id, past, snapshot) = continued_past_snapshot(&service, asked).await;
    assert_eq!(service.restart(&id, None).await.unwrap_err().code(), Code::Conflict, "it lives");
    let second = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    service.terminate(&id).await.unwrap();
    let made = service.restart(&id, None).await.unwrap();
    let spec = &made.sandbox.sandbox.spec;
    assert_eq!(made.snapshot, second.id);
    assert_ne!(made.sandbox.sandbox.id, id);
    assert_eq!(
        (spec.name.as_ref().map(|name| name.as_str()), spec.labels.len(), spec.suspendable),
        (Some("web"), 1, true)
    );
    let mut counter = past.heard_until("x 1\n", 3);
    assert_eq!(counter.ask(&service, &made.sandbox.sandbox.id).await.unwrap(), "x 4");
    let taken = service.restart(&id, None).await.unwrap_err();
    assert!(taken.message().contains(made.sandbox.sandbox.id.as_str()), "who has the name: {taken}");
    let named = service.restart(&id, Some("other".parse().unwrap())).await.unwrap();
    assert_eq!(named.sandbox.sandbox.spec.name.as_ref().map(|name| name.as_str()), Some("other"));
    // A restart prefers the snapshot that the sandbox was rewound to over the future that the
    // rewind kept.
    let back = service.rewind(&made.sandbox.sandbox.id, &snapshot, KeepFuture::default()).await.unwrap();
    service.terminate(&back.sandbox.sandbox.id).await.unwrap();
    assert_eq!(service.restart(&back.sandbox.sandbox.id, None).await.unwrap().snapshot, snapshot);
    let bare = create(&service, base()).await;
    service.terminate(&bare).await.unwrap();
    let refused = service.restart(&bare, None).await.unwrap_err();
    assert!(refused.message().contains("no completed snapshot"), "{refused}");
    world.is_sound().await;
}

async fn family(service: &Service) -> (SandboxId, SandboxId, Counter) {
    let parent = create(service, named("web")).await;
    let mut counter = Counter::start(service, &parent, "x").await;
    counter.ask(service, &parent).await.unwrap();
    let child = service.clone_sandbox(&parent, Some("try".parse().unwrap())).await.unwrap().clone.sandbox.id;
    let mut of_child = counter;
    of_child.ask(service, &child).await.unwrap();
    of_child.ask(service, &child).await.unwrap();
    (parent, child, counter)
}

#[tokio::test]
async fn a_child_takes_the_place_of_its_parent() {
    for asleep in [false, true] {
        let world = World::new().await;
        let service = world.daemon().await;
        let (parent, child, counter) = family(&service).await;
        if asleep {
            service.suspend(&child).await.unwrap();
            service.suspend(&parent).await.unwrap();
        }
        let done = service.promote(&child, KeepFuture::default()).await.unwrap();
        assert_eq!((&done.sandbox.sandbox.id, state(&done.sandbox)), (&parent, StateName::Running));
        assert_eq!(done.sandbox.sandbox.spec.name.as_ref().map(|name| name.as_str()), Some("web"));
        assert_eq!(state(&service.describe(&child).await.unwrap()), StateName::Terminated);
        let mut now = counter.heard_until("x 1\n", 3);
        assert_eq!(now.ask(&service, &parent).await.unwrap(), "x 4");
        let abandoned = create(&service, CreateSpec::new(CreateFrom::Snapshot(done.future.unwrap()))).await;
        let mut of_abandoned = counter;
        assert_eq!(of_abandoned.ask(&service, &abandoned).await.unwrap(), "x 2");
        assert!(world.events(&parent).await.contains(&EventKind::Promoted));
        eventually("only the clone's and the future's snapshots are left", || async {
            service.snapshots().await.unwrap().len() == 2
        })
        .await;
        world.is_sound().await;
        let again = service.promote(&child, KeepFuture::default()).await.unwrap_err();
        assert_eq!(again.code(), Code::Gone);
        let refused = service.promote(&parent, KeepFuture::default()).await.unwrap_err();
        assert!(refused.message().contains("was not made from another"), "{refused}");
    }
}

#[tokio::test]
async fn a_promotion_that_fails_leaves_both_as_they_were() {
    for call in [Operation::Save, Operation::Pause, Operation::Restore] {
        let world = World::new().await;
        let service = world.daemon().await;
        let (parent, child, counter) = family(&service).await;
        world.host.faults().next(call, Moment::Before, Fault::Fail);
        assert_eq!(service.promote(&child, KeepFuture::default()).await.unwrap_err().code(), Code::Failed);
        let (mut of_parent, mut of_child) = (counter, counter.heard_until("x 1\n", 3));
        assert_eq!(of_parent.ask(&service, &parent).await.unwrap(), "x 2", "{call:?}");
        assert_eq!(of_child.ask(&service, &child).await.unwrap(), "x 4");
        eventually("its snapshot is gone", || async { service.snapshots().await.unwrap().len() == 1 }).await;
        world.is_sound().await;
        service.terminate(&parent).await.unwrap();
        let refused = service.promote(&child, KeepFuture::default()).await.unwrap_err();
        assert!(refused.message().contains("is terminated"), "{refused}");
    }
}

#[tokio::test]
async fn a_daemon_that_dies_in_the_middle_of_a_promotion_leaves_it_done_or_undone() {
    for (call, nth, done) in [(Operation::Save, 1, false), (Operation::Restore, 1, false), (Operation::Save, 2, true)] {
        let world = World::new().await;
        let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (parts, faults) = (world.parts(), world.host.faults().clone());
        let (tell, told) = tokio::sync::oneshot::channel();
        doomed.spawn(async move {
            let (service, _) = Service::open(parts).await.unwrap();
            let family = family(&service).await;
            faults.plan(call, nth, Moment::After, Fault::Hang);
            let child = family.1.clone();
            let _ = tell.send(family);
            drop(service.promote(&child, KeepFuture::default()).await);
        });
        let (parent, child, counter) = told.await.unwrap();
        eventually("it hangs", || async { world.host.faults().struck(call) == 1 }).await;
        let ended = tokio::task::spawn_blocking(move || doomed.shutdown_timeout(Duration::from_secs(60)));
        ended.await.unwrap();
        world.host.open();
        let service = world.daemon().await;
        eventually("it is over", || async { world.store.open_operations().await.unwrap().is_empty() }).await;
        let living: Vec<_> = world.store.sandboxes(&SandboxFilter::default()).await.unwrap();
        let living: Vec<_> =
            living.into_iter().filter(|record| record.sandbox.state.name() == StateName::Running).collect();
        assert_eq!(living.len(), if done { 1 } else { 2 }, "{call:?} {nth}");
        let mut of_parent = if done { counter.heard_until("x 1\n", 3) } else { counter };
        let expected = if done { "x 4" } else { "x 2" };
        assert_eq!(of_parent.ask(&service, &parent).await.unwrap(), expected);
        assert_eq!(state(&service.describe(&child).await.unwrap()) == StateName::Terminated, done);
        world.is_sound().await;
    }
}
