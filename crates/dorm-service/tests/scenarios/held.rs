//! The run that a rewind holds: when it is saved, and what becomes of its state if that fails, if
//! it ends, or if the daemon or the host does.

use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{EventKind, Initiator, RunCondition, RunId, SandboxId, SnapshotId, StateName, Writers};
use dorm_service::{AttachmentSpec, Budgets, Code, CreateFrom, CreateSpec, KeepFuture, Service};
use dorm_store::{SnapshotStatus, Store as _};

use crate::rewinds::{completed, continued_past_snapshot, holds, noted};
use crate::world::{Counter, World, create, eventually, named, state};

/// Rewinds a sandbox. Returns the snapshot of what it has left, and the run of that.
async fn rewound(service: &Service, id: &SandboxId, to: &SnapshotId) -> (SnapshotId, RunId) {
    let before = service.describe(id).await.unwrap().sandbox.run_id();
    let done = service.rewind(id, to, KeepFuture::default()).await.unwrap();
    assert_eq!(state(&done.sandbox), StateName::Running);
    (done.future.unwrap(), before)
}

async fn status(service: &Service, id: &SnapshotId) -> SnapshotStatus {
    service.snapshot(id).await.unwrap().status
}

/// Suspends a sandbox and resumes it, so that it has a sleep image.
async fn with_image(service: &Service, id: &SandboxId) {
    service.suspend(id).await.unwrap();
    service.resume(id, Initiator::User).await.unwrap();
}

#[tokio::test]
async fn the_past_runs_before_what_it_has_left_is_saved_and_who_needs_that_waits() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, past, snapshot) = continued_past_snapshot(&service, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Hang);
    let (future, _) = rewound(&service, &id, &snapshot).await;
    let mut counter = past;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2", "it is used");
    world.host.faults().wait_until_struck(Operation::Save, 1).await;
    assert_eq!(status(&service, &future).await, SnapshotStatus::InProgress);
    let waiting = {
        let (service, id, future) = (service.clone(), id.clone(), future.clone());
        tokio::spawn(async move { service.rewind(&id, &future, KeepFuture::Not).await })
    };
    let from_it = {
        let (service, future) = (service.clone(), future.clone());
        tokio::spawn(async move { service.create(CreateSpec::new(CreateFrom::Snapshot(future))).await })
    };
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 3");
    assert!(!waiting.is_finished() && !from_it.is_finished());
    world.host.faults().release();
    waiting.await.unwrap().unwrap();
    let mut counter = past.heard_until("x 1\n", 3);
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 4", "back in its future");
    assert_eq!(noted(&service, &id).await, "new");
    let child = from_it.await.unwrap().unwrap().sandbox.id;
    service.terminate(&child).await.unwrap();
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn saving_it_is_tried_until_it_succeeds() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, past, snapshot) = continued_past_snapshot(&service, named("web")).await;
    world.host.faults().always(Operation::Save, Moment::Before, Fault::NoRoom);
    let (future, run) = rewound(&service, &id, &snapshot).await;
    eventually("it has failed twice", || async { world.host.faults().struck(Operation::Save) >= 2 }).await;
    assert_eq!(status(&service, &future).await, SnapshotStatus::InProgress);
    let refused = service.create(CreateSpec::new(CreateFrom::Snapshot(future.clone()))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict, "nobody waits for it any longer: {refused}");
    assert!(world.host.runs().iter().any(|(held, _)| *held == run), "it is held");
    let mut counter = past;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.host.faults().clear();
    completed(&service, &future).await;
    let of_it = [EventKind::Rewound, EventKind::SnapshotFailed, EventKind::SnapshotTaken];
    assert!(world.events(&id).await.ends_with(&of_it), "the failure is told once");
    holds(&service, &future, past, 3, "new").await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_terminated_although_what_it_has_left_cannot_be_saved() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, _, snapshot) = continued_past_snapshot(&service, named("web")).await;
    world.host.faults().always(Operation::Save, Moment::Before, Fault::NoRoom);
    let (future, _) = rewound(&service, &id, &snapshot).await;
    eventually("it has failed", || async { world.host.faults().struck(Operation::Save) >= 1 }).await;
    service.terminate(&id).await.unwrap();
    assert!(matches!(status(&service, &future).await, SnapshotStatus::Failed(_)));
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_held_run_that_ends_leaves_its_last_image_as_the_snapshot() {
    for has_image in [true, false] {
        let world = World::new().await;
        let service = world.daemon().await;
        let (id, past, snapshot) = continued_past_snapshot(&service, named("web")).await;
        if has_image {
            with_image(&service, &id).await;
            past.heard_until("x 1\n", 3).ask(&service, &id).await.unwrap();
        }
        world.host.faults().always(Operation::Save, Moment::Before, Fault::Fail);
        let (future, run) = rewound(&service, &id, &snapshot).await;
        world.host.faults().wait_until_struck(Operation::Save, 1).await;
        world.host.lose(&run);
        world.host.faults().clear();
        eventually("it is settled", || async { status(&service, &future).await != SnapshotStatus::InProgress }).await;
        match status(&service, &future).await {
            SnapshotStatus::Completed => {
                assert!(has_image);
                holds(&service, &future, past, 3, "new").await;
            }
            other => assert!(!has_image && matches!(other, SnapshotStatus::Failed(_)), "{other:?}"),
        }
        assert_eq!(noted(&service, &id).await, "old", "the sandbox itself is not affected");
        world.is_sound().await;
    }
}

/// The runs of a sandbox that exist when the daemon starts again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    Both,
    Held,
    Own,
    Nothing,
}

#[tokio::test]
async fn a_daemon_that_dies_before_it_is_saved_loses_nothing_that_still_runs() {
    for left in [Left::Both, Left::Held, Left::Own, Left::Nothing] {
        let world = World::new().await;
        let (service, life) = world.mortal().await;
        let (id, past, snapshot) = continued_past_snapshot(&service, named("web")).await;
        with_image(&service, &id).await;
        assert_eq!(past.heard_until("x 1\n", 3).ask(&service, &id).await.unwrap(), "x 4");
        world.host.faults().next(Operation::Save, Moment::Before, Fault::Hang);
        let (future, held) = rewound(&service, &id, &snapshot).await;
        let own = service.describe(&id).await.unwrap().sandbox.run_id();
        world.host.faults().wait_until_struck(Operation::Save, 1).await;
        world.kill(&life);
        if matches!(left, Left::Own | Left::Nothing) {
            world.host.lose(&held);
        }
        if matches!(left, Left::Held | Left::Nothing) {
            world.host.lose(&own);
        }
        world.host.faults().release();
        let service = world.daemon().await;
        completed(&service, &future).await;
        let runs = if matches!(left, Left::Both | Left::Own) { StateName::Running } else { StateName::Suspended };
        eventually("its own run is settled", || async { state(&service.describe(&id).await.unwrap()) == runs }).await;
        let count = if matches!(left, Left::Both | Left::Held) { 4 } else { 3 };
        holds(&service, &future, past, count, "new").await;
        service.resume(&id, Initiator::User).await.unwrap();
        let mut counter = past;
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2", "{left:?}");
        world.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_present_continues_only_when_the_run_of_an_interrupted_rewind_has_ended() {
    let world = World::new().await;
    let (service, life) = world.mortal().await;
    let (id, past, snapshot) = continued_past_snapshot(&service, named("web")).await;
    let held = service.describe(&id).await.unwrap().sandbox.run_id();
    world.host.faults().next(Operation::Restore, Moment::After, Fault::Hang);
    let going = tokio::spawn({
        let (service, id) = (service.clone(), id.clone());
        async move { service.rewind(&id, &snapshot, KeepFuture::default()).await }
    });
    world.host.faults().wait_until_struck(Operation::Restore, 1).await;
    world.kill(&life);
    going.abort();
    world.host.faults().release();
    world.host.faults().always(Operation::Stop, Moment::Before, Fault::Fail);
    let service = world.daemon().await;
    let struck = || async { world.host.faults().struck(Operation::Stop) >= 3 };
    eventually("ending it is tried again", struck).await;
    let condition = world.host.runs().into_iter().find(|(run, _)| *run == held).map(|(_, condition)| condition);
    assert_eq!(condition, Some(RunCondition::Paused));
    assert!(service.describe(&id).await.unwrap().sandbox.unreachable.is_some());
    world.host.faults().clear();
    let answers = || async { service.describe(&id).await.unwrap().sandbox.unreachable.is_none() };
    eventually("it answers", answers).await;
    let mut counter = past.heard_until("x 1\n", 3);
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 4");
    world.is_sound().await;
}

#[tokio::test]
async fn a_run_with_volumes_or_without_room_beside_it_is_saved_first() {
    for has_volume in [true, false] {
        let mut world = World::new().await;
        if !has_volume {
            let memory_bytes = Some(named("web").resources.unwrap_or_default().memory_bytes * 3 / 2);
            world.settings.budgets = Budgets { memory_bytes, ..Budgets::default() };
        }
        let service = world.daemon().await;
        let mut asked = named("web");
        if has_volume {
            service.create_volume("data".parse().unwrap(), 64 << 20, Writers::One).await.unwrap();
            asked.attachments = vec![AttachmentSpec::new("data", "/data".parse().unwrap())];
        }
        let (id, past, snapshot) = continued_past_snapshot(&service, asked).await;
        let (future, _) = rewound(&service, &id, &snapshot).await;
        assert_eq!(status(&service, &future).await, SnapshotStatus::Completed);
        assert!(world.events(&id).await.ends_with(&[EventKind::Suspending, EventKind::Resuming, EventKind::Rewound]));
        let mut counter: Counter = past;
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
        world.is_sound().await;
    }
}

#[tokio::test]
async fn both_runs_count_until_one_of_them_is_saved() {
    let mut world = World::new().await;
    let each = named("web").resources.unwrap_or_default().memory_bytes;
    world.settings.budgets = Budgets { memory_bytes: Some(each * 2), ..Budgets::default() };
    let service = world.daemon().await;
    let (id, _, snapshot) = continued_past_snapshot(&service, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Hang);
    let (future, _) = rewound(&service, &id, &snapshot).await;
    world.host.faults().wait_until_struck(Operation::Save, 1).await;
    let refused = service.create(named("other")).await.unwrap_err();
    assert!(refused.message().contains("memory"), "{refused}");
    world.host.faults().release();
    completed(&service, &future).await;
    create(&service, named("other")).await;
    // It has no room for both runs now, and is rewound all the same.
    rewound(&service, &id, &snapshot).await;
    tokio::time::sleep(Duration::ZERO).await;
    world.is_sound().await;
    assert!(world.store.open_operations().await.unwrap().is_empty());
}
