//! Sandbox pools in trouble.

use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Claim, Initiator, Name, RequestId, StateName};
use dorm_service::{PoolSpec, ServiceError};
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

#[tokio::test]
async fn a_claim_that_cannot_wake_its_member_leaves_nothing_and_the_pool_makes_another() {
    let world = World::new().await;
    let service = world.daemon().await;
    service.create_pool(one_worker()).await.unwrap();
    let ready = || async { service.pool("workers").await.unwrap().waiting == 1 };
    eventually("the pool is filled", ready).await;
    let member = service.list(&SandboxFilter::default()).await.unwrap().remove(0).sandbox.id;
    service.evict(&member).await.unwrap();
    let claim = || Claim { name: Some("job".parse().unwrap()), ..Claim::default() };
    let key = RequestId::from_random([1; 20]);
    let keyed = || async { service.for_request(&key, [1; 32]).await.unwrap() };
    world.host.faults().next(Operation::Restore, Moment::Before, Fault::Fail);
    let failed = keyed().await.claim("workers", claim(), Duration::ZERO).await.unwrap_err();
    assert!(matches!(failed, ServiceError::OperationFailed { .. }), "{failed:?}");
    let view = service.describe(&member).await.unwrap();
    assert_eq!(state(&view), StateName::Terminated);
    // A retry of the request learns of the failure; another request gets the next member.
    let again = keyed().await.claim("workers", claim(), Duration::ZERO).await.unwrap_err();
    assert!(matches!(again, ServiceError::FailedEarlier(_)), "{again:?}");
    eventually("another one waits", ready).await;
    let claimed = service.claim("workers", claim(), Duration::from_secs(60)).await.unwrap();
    assert_eq!((state(&claimed), claimed.sandbox.id == member), (StateName::Running, false));
    eventually("the pool is filled", ready).await;
    let (view, id) = (service.pool("workers").await.unwrap(), claimed.sandbox.id);
    assert_eq!((view.waiting, view.claimed), (1, 1));
    // From then on, a wake that fails loses nothing.
    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    world.host.faults().next(Operation::Restore, Moment::Before, Fault::Fail);
    service.resume(&id, Initiator::User).await.unwrap_err();
    service.resume(&id, Initiator::User).await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn a_retry_of_a_claim_waits_until_its_member_has_woken() {
    let world = World::new().await;
    let service = world.daemon().await;
    service.create_pool(one_worker()).await.unwrap();
    eventually("the pool is filled", || async { service.pool("workers").await.unwrap().waiting == 1 }).await;
    let member = service.list(&SandboxFilter::default()).await.unwrap().remove(0).sandbox.id;
    service.evict(&member).await.unwrap();
    world.host.faults().next(Operation::Restore, Moment::Before, Fault::Hang);
    let claiming = || {
        let own = service.clone();
        tokio::spawn(async move {
            let keyed = own.for_request(&RequestId::from_random([1; 20]), [1; 32]).await.unwrap();
            keyed.claim("workers", Claim::default(), Duration::ZERO).await
        })
    };
    let first = claiming();
    world.host.faults().wait_until_struck(Operation::Restore, 1).await;
    first.abort();
    let _ = first.await;
    let retry = claiming();
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.host.faults().release();
    let claimed = retry.await.unwrap().unwrap();
    assert_eq!((state(&claimed), claimed.sandbox.id), (StateName::Running, member));
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
