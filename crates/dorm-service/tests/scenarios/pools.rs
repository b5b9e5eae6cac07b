//! Sandbox pools in trouble.

use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Name, StateName};
use dorm_service::PoolSpec;
use dorm_store::SandboxFilter;

use crate::world::{World, eventually, named, state};

pub(crate) fn one_worker() -> PoolSpec {
    PoolSpec {
        name: "workers".parse::<Name>().unwrap(),
        from: named("web").from,
        program: None,
        resources: None,
        egress: None,
        variables: Default::default(),
        port_access: None,
        labels: Default::default(),
        ready: 1,
        most: None,
    }
}

#[tokio::test]
async fn a_project_whose_sandboxes_do_not_start_does_not_delay_another() {
    let world = World::new().await;
    let service = world.daemon().await;
    world.host.faults().next(Operation::Start, Moment::Before, Fault::Hang);
    service.create_pool(one_worker()).await.unwrap();
    world.host.faults().wait_until_struck(Operation::Start, 1).await;
    let team: dorm_lifecycle::ProjectId = "team".parse().unwrap();
    service.create_project(team.clone(), dorm_store::ProjectBudgets::default()).await.unwrap();
    let other = service.for_project(&team).unwrap();
    other.create_pool(one_worker()).await.unwrap();
    eventually("the other one is filled", || async { other.pool("workers").await.unwrap().waiting == 1 }).await;
    assert_eq!(service.pool("workers").await.unwrap().waiting, 0);
}

#[tokio::test]
async fn the_next_daemon_suspends_a_member_as_soon_as_it_has_started() {
    let world = World::new().await;
    let (service, life) = world.mortal().await;
    world.host.faults().next(Operation::Start, Moment::After, Fault::Hang);
    service.create_pool(one_worker()).await.unwrap();
    world.host.faults().wait_until_struck(Operation::Start, 1).await;
    world.kill(&life);
    drop(service);
    let service = world.daemon().await;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    eventually("the pool is filled", || async { service.pool("workers").await.unwrap().waiting == 1 }).await;
    assert!(began.elapsed() < Duration::from_secs(20), "it waited for the next look");
}

#[tokio::test(start_paused = true)]
async fn a_pool_is_removed_though_its_member_cannot_be_suspended() {
    let world = World::new().await;
    let service = world.daemon().await;
    world.host.faults().always(Operation::Save, Moment::Before, Fault::NoRoom);
    service.create_pool(one_worker()).await.unwrap();
    eventually("the trouble is told", || async { service.pool("workers").await.unwrap().problem.is_some() }).await;
    let member = service
        .list(&SandboxFilter::default())
        .await
        .unwrap()
        .into_iter()
        .find(|view| view.sandbox.pool.is_some())
        .unwrap();
    assert_eq!(state(&member), StateName::Running);
    service.remove_pool("workers").await.unwrap();
    eventually("the member is terminated", || async {
        let now = service.describe(&member.sandbox.id).await;
        now.is_ok_and(|view| state(&view) == StateName::Terminated)
    })
    .await;
    world.is_sound().await;
}
