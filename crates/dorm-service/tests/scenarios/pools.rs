//! Sandbox pools whose members cannot be suspended.

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Egress, FirstProgram, Name, StateName};
use dorm_service::PoolSpec;
use dorm_store::SandboxFilter;

use crate::world::{World, eventually, named, state};

#[tokio::test(start_paused = true)]
async fn a_pool_is_removed_though_its_member_cannot_be_suspended() {
    let world = World::new().await;
    let service = world.daemon().await;
    world.host.faults().always(Operation::Save, Moment::Before, Fault::NoRoom);
    let asked = PoolSpec {
        name: "workers".parse::<Name>().unwrap(),
        from: named("web").from,
        program: FirstProgram::default(),
        resources: None,
        egress: Egress::Public,
        variables: Default::default(),
        port_access: None,
        labels: Default::default(),
        ready: 1,
        most: None,
    };
    service.create_pool(asked).await.unwrap();
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
