//! Records that another writer has changed: the record in the store is authoritative, and no commit
//! is retried forever.

use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Initiator, SandboxId, State, StateName};
use dorm_service::{Code, Service};
use dorm_store::{Change, SandboxRecord, Store as _};

use crate::world::{World, counting, eventually, state, suspending};

/// Changes the record of a sandbox without the daemon's knowledge.
async fn change(world: &World, id: &SandboxId, change: impl FnOnce(&mut SandboxRecord)) {
    let mut record = world.store.sandbox(id).await.unwrap().unwrap();
    change(&mut record);
    world.store.commit(Change { sandboxes: vec![record], ..Change::default() }).await.unwrap();
}

async fn label(world: &World, id: &SandboxId) {
    change(world, id, |record| _ = record.sandbox.spec.labels.insert("by".to_owned(), "another".to_owned())).await;
}

async fn is_labelled(service: &Service, id: &SandboxId) -> bool {
    let all = service.list(&dorm_store::SandboxFilter::default()).await.unwrap();
    let shown = service.describe(id).await.unwrap().sandbox;
    let figures = service.figures().await.unwrap();
    assert_eq!(figures.sandboxes.values().sum::<usize>(), 1);
    all[0].sandbox.spec.labels.contains_key("by") && shown.spec.labels.contains_key("by")
}

#[tokio::test(start_paused = true)]
async fn a_command_is_decided_again_by_the_record_that_holds() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    label(&world, &id).await;
    assert_eq!(state(&service.suspend(&id).await.unwrap()), StateName::Suspended);
    assert!(is_labelled(&service, &id).await);
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_is_recorded_in_the_record_that_holds() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    world.host.faults().next(Operation::Save, Moment::After, Fault::Hang);
    let caller = suspending(&service, &id);
    world.host.faults().wait_until_struck(Operation::Save, 1).await;
    label(&world, &id).await;
    world.host.faults().release();
    let asleep = tokio::time::timeout(Duration::from_secs(60), caller).await.expect("it is not tried for ever");
    assert_eq!(state(&asleep.unwrap().unwrap()), StateName::Suspended);
    assert!(is_labelled(&service, &id).await);
    service.evict(&id).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_whose_record_is_in_another_state_is_taken_up_as_at_a_start() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    world.host.faults().next(Operation::Save, Moment::After, Fault::Hang);
    let caller = suspending(&service, &id);
    world.host.faults().wait_until_struck(Operation::Save, 1).await;
    change(&world, &id, |record| {
        let State::Suspending { since, image, .. } = record.sandbox.state.clone() else { panic!("it is suspending") };
        record.sandbox.state = State::Running { since, image, background: None };
    })
    .await;
    world.host.faults().release();
    let told = tokio::time::timeout(Duration::from_secs(60), caller).await.expect("it is not tried for ever");
    assert_eq!(told.unwrap().unwrap_err().code(), Code::Conflict);
    eventually("it runs", || async { state(&service.describe(&id).await.unwrap()) == StateName::Running }).await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    // The next start finds the files that the operation has written.
    service.stop().await;
    drop(service);
    let service = world.daemon().await;
    service.suspend(&id).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 3");
    world.is_sound().await;
}
