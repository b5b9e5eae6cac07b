//! Errors of failed operations: all callers get the same kind of error, also those that asked
//! later, and a daemon that is started afterwards reports it too.

use std::fs;
use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Initiator, Limits, SnapshotKind, StateName};
use dorm_service::{Code, ServiceError};
use dorm_store::SnapshotStatus;

use crate::world::{World, create, named, state};

#[tokio::test]
async fn everybody_who_waits_for_a_suspend_is_told_the_same_error() {
    for (fault, code) in [(Fault::NoRoom, Code::NoRoom), (Fault::Fail, Code::Failed)] {
        let world = World::new().await;
        let service = world.daemon().await;
        let id = create(&service, named("web")).await;
        // Each caller waits for the operation before, and then tries itself.
        world.host.faults().always(Operation::Save, Moment::Before, fault);
        let (first, second, third) = tokio::join!(service.suspend(&id), service.suspend(&id), service.suspend(&id));
        for told in [first.unwrap_err(), second.unwrap_err(), third.unwrap_err()] {
            assert_eq!(told.code(), code, "{told}");
            let ServiceError::OperationFailed { failure, state, .. } = told else { panic!("{told:?}") };
            assert!(matches!(failure.cause(), Some(ServiceError::Engine(_))), "{failure:?}");
            assert_eq!(state, StateName::Running);
        }
        world.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_takes_too_long_says_so_by_its_kind() {
    let limit = Duration::from_secs(20);
    let limits = Limits { start: limit, suspend: limit, resume: limit, snapshot: limit, ..Limits::default() };
    let world = World::new().await.limits(limits);
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Delay(2 * (limit + limits.time_for(64 << 30))));
    let late = service.suspend(&id).await.unwrap_err();
    assert_eq!(late.code(), Code::TimedOut, "{late}");
    assert!(late.message().contains("--operation-limit"), "{late}");
}

#[tokio::test]
async fn what_the_host_should_have_and_has_not_is_damage_and_never_not_found() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    let suspended = service.describe(&id).await.unwrap();
    let image = world.directory.path().join("images").join(suspended.sandbox.spec.image.as_str());
    let saved_state = suspended.sandbox.state.image().unwrap().saved_state.clone();
    let saved_state = world.directory.path().join("data/saved_states").join(saved_state.as_str());
    for part in [image, saved_state] {
        let away = world.directory.path().join("away");
        fs::rename(&part, &away).unwrap();
        let told = service.resume(&id, Initiator::User).await.unwrap_err();
        assert_eq!(told.code(), Code::Damaged, "{}: {told}", part.display());
        assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Suspended);
        let told = service.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap_err();
        assert_eq!(told.code(), Code::Damaged, "{}: {told}", part.display());
        fs::rename(&away, &part).unwrap();
    }
    service.resume(&id, Initiator::User).await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn the_kind_of_a_failure_is_on_record_for_the_next_daemon() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::NoRoom);
    let told = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap_err();
    assert_eq!(told.code(), Code::NoRoom);
    service.stop().await;
    let service = world.daemon().await;
    let all = service.snapshots().await.unwrap();
    let SnapshotStatus::Failed(failure) = &all[0].status else { panic!("{all:?}") };
    assert_eq!(failure.code, Code::NoRoom);
    assert!(told.message().ends_with(&failure.reason), "{} is not the end of {told}", failure.reason);
}
