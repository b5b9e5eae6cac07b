//! Deadlines, with a clock that is moved.

use std::time::Duration;

use dorm_lifecycle::{Actor, Cause, EventKind, State, StateName, Timeouts};
use dorm_service::{CreateSandbox, Service};

use crate::world::{World, base, create, eventually, named, state};

fn total(seconds: u64) -> Timeouts {
    Timeouts { total: Some(Duration::from_secs(seconds)), idle: None }
}

fn idle(seconds: u64) -> Timeouts {
    Timeouts { total: None, idle: Some(Duration::from_secs(seconds)) }
}

async fn becomes(service: &Service, id: &dorm_lifecycle::SandboxId, wanted: StateName) {
    eventually(wanted.as_str(), || async { state(&service.describe(id).await.unwrap()) == wanted }).await;
}

#[tokio::test(start_paused = true)]
async fn a_named_one_is_suspended_and_an_ephemeral_one_ends() {
    let world = World::new().await;
    let service = world.daemon().await;
    let named = create(&service, CreateSandbox { timeouts: total(10), ..named("web") }).await;
    let ephemeral = create(&service, CreateSandbox { timeouts: total(10), ..base() }).await;
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
    let id = create(&service, CreateSandbox { timeouts: total(30), ..named("web") }).await;
    becomes(&service, &id, StateName::Suspended).await;
    service.resume(&id, Actor::User).await.unwrap();
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
    let id = create(&service, CreateSandbox { timeouts: idle(10), ..named("web") }).await;
    let in_use = service.agent(&id).await.unwrap();
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
    let id = create(&service, CreateSandbox { timeouts: total(100), ..named("web") }).await;
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
        ids.push(create(&service, CreateSandbox { timeouts: total(20 + number % 20), ..base() }).await);
    }
    for id in &ids {
        becomes(&service, id, StateName::Terminated).await;
    }
    world.is_sound().await;
}
