//! The egress of a sandbox changes while it runs and while it is suspended.

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{
    Denied, Egress, EgressDefault, EgressRule, EgressRules, EventKind, Initiator, RunId, SnapshotKind, SpecError,
    StateName, Verdict,
};
use dorm_service::{Code, Residence, Service, ServiceError};
use dorm_store::{OperationKind, Store};

use crate::world::{World, create, eventually, named, state};

fn rules() -> Egress {
    let rules = vec![EgressRule { verdict: Verdict::Deny, to: "203.0.113.0/24".to_owned() }];
    Egress::Rules(EgressRules { rules, default: EgressDefault::Public, headers: Vec::new() })
}

async fn open_kinds(world: &World) -> Vec<OperationKind> {
    world.store.open_operations().await.unwrap().into_iter().map(|operation| operation.kind).collect()
}

async fn running(service: &Service) -> (dorm_lifecycle::SandboxId, RunId) {
    let id = create(service, named("web")).await;
    (id.clone(), RunId { sandbox: id, generation: 1 })
}

#[tokio::test]
async fn a_running_sandbox_has_the_new_egress_at_once_and_keeps_it() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, run) = running(&service).await;
    assert_eq!(world.host.egress(&run), Some(Egress::Public));
    let view = service.set_egress(&id, Egress::closed()).await.unwrap();
    assert_eq!((state(&view), &view.sandbox.spec.egress), (StateName::Running, &Egress::closed()));
    assert_eq!(world.host.egress(&run), Some(Egress::closed()));
    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    let again = RunId { sandbox: id.clone(), generation: 2 };
    assert_eq!(world.host.egress(&again), Some(Egress::closed()));
    service.stop().await;
    let service = world.daemon().await;
    let view = service.set_egress(&id, rules()).await.unwrap();
    assert_eq!(view.sandbox.spec.egress, rules());
    assert_eq!(world.host.egress(&again), Some(rules()));
    let calls = world.host.faults().calls(Operation::SetEgress);
    service.set_egress(&id, rules()).await.unwrap();
    assert_eq!(world.host.faults().calls(Operation::SetEgress), calls, "it already has it");
    let events = world.events(&id).await;
    assert_eq!(events.iter().filter(|kind| **kind == EventKind::EgressSet).count(), 2, "{events:?}");
    world.is_sound().await;
}

#[tokio::test]
async fn a_parked_run_has_the_new_egress_before_it_continues() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, run) = running(&service).await;
    service.suspend(&id).await.unwrap();
    let view = service.set_egress(&id, Egress::closed()).await.unwrap();
    assert_eq!((state(&view), view.residence), (StateName::Suspended, Residence::Parked));
    assert_eq!(world.host.egress(&run), Some(Egress::closed()));
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(world.host.egress(&run), Some(Egress::closed()), "it is the same run");
    world.is_sound().await;
}

#[tokio::test]
async fn a_parked_run_whose_egress_cannot_be_changed_is_ended_and_the_image_wakes_with_it() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, run) = running(&service).await;
    service.suspend(&id).await.unwrap();
    world.host.faults().next(Operation::SetEgress, Moment::Before, Fault::Fail);
    let view = service.set_egress(&id, Egress::closed()).await.unwrap();
    assert_eq!((state(&view), view.residence), (StateName::Suspended, Residence::Evicted));
    assert_eq!(world.host.egress(&run), None);
    assert!(world.events(&id).await.ends_with(&[EventKind::EgressSet, EventKind::Evicted]));
    service.resume(&id, Initiator::User).await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn a_change_that_fails_is_reported_and_the_previous_egress_stays() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, run) = running(&service).await;
    for moment in [Moment::Before, Moment::After] {
        world.host.faults().next(Operation::SetEgress, moment, Fault::Fail);
        let failed = service.set_egress(&id, Egress::closed()).await.unwrap_err();
        assert_eq!(failed.code(), Code::Failed);
        assert_eq!(world.host.egress(&run), Some(Egress::Public), "{moment:?}");
        assert_eq!(service.describe(&id).await.unwrap().sandbox.spec.egress, Egress::Public);
    }
    world.host.faults().always(Operation::SetEgress, Moment::Before, Fault::Fail);
    let failed = service.set_egress(&id, Egress::closed()).await.unwrap_err().message();
    assert!(failed.contains("may have the previous egress or the new one"), "{failed}");
    assert!(failed.contains("set the egress again"), "{failed}");
    let why = service.why(&id).await.unwrap();
    assert!(why.refused.is_some_and(|refused| refused.says.starts_with("egress failed: ")));
    world.is_sound().await;
}

#[tokio::test]
async fn a_daemon_that_dies_during_the_change_completes_it_at_its_next_start() {
    for is_suspended in [false, true] {
        for moment in [Moment::Before, Moment::After] {
            let world = World::new().await;
            let service = world.daemon().await;
            let (id, run) = running(&service).await;
            if is_suspended {
                service.suspend(&id).await.unwrap();
            }
            world.host.faults().next(Operation::SetEgress, moment, Fault::Hang);
            let (dying, doomed) = (service.clone(), id.clone());
            let change = tokio::spawn(async move { dying.set_egress(&doomed, Egress::closed()).await });
            world.host.faults().wait_until_struck(Operation::SetEgress, 1).await;
            assert_eq!(open_kinds(&world).await, [OperationKind::Egress]);
            change.abort();
            world.host.open();
            drop(service);
            let service = world.daemon().await;
            eventually("the operation is over", || async { open_kinds(&world).await.is_empty() }).await;
            let view = service.describe(&id).await.unwrap();
            assert_eq!(view.sandbox.spec.egress, Egress::closed(), "suspended: {is_suspended}, {moment:?}");
            assert_eq!(world.host.egress(&run), Some(Egress::closed()));
            assert!(world.events(&id).await.contains(&EventKind::EgressSet));
            world.is_sound().await;
        }
    }
}

#[tokio::test]
async fn a_run_that_ends_during_the_change_ends_the_change() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, run) = running(&service).await;
    service.suspend(&id).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    world.host.faults().next(Operation::SetEgress, Moment::Before, Fault::Hang);
    let (changed, ()) = tokio::join!(service.set_egress(&id, Egress::closed()), async {
        world.host.faults().wait_until_struck(Operation::SetEgress, 1).await;
        world.host.kill(&run, "killed by a test");
    });
    changed.unwrap_err();
    let view = service.describe(&id).await.unwrap();
    assert_eq!((state(&view), &view.sandbox.spec.egress), (StateName::Suspended, &Egress::Public));
    service.set_egress(&id, Egress::closed()).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn a_rewind_keeps_the_present_egress() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, _) = running(&service).await;
    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    service.set_egress(&id, Egress::closed()).await.unwrap();
    let done = service.rewind(&id, &snapshot.id, dorm_service::KeepFuture::Not).await.unwrap();
    assert_eq!(done.sandbox.sandbox.spec.egress, Egress::closed());
    world.is_sound().await;
}

#[tokio::test]
async fn what_cannot_be_changed_is_refused_and_changes_nothing() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, run) = running(&service).await;
    let rule = |verdict, to: &str| EgressRule { verdict, to: to.to_owned() };
    let twice = vec![rule(Verdict::Allow, "1.1.1.1"), rule(Verdict::Deny, "1.1.1.1")];
    let twice = Egress::Rules(EgressRules { rules: twice, default: EgressDefault::Deny, headers: Vec::new() });
    let refused = service.set_egress(&id, twice).await.unwrap_err();
    assert!(matches!(refused, ServiceError::Spec(SpecError::Egress(_))), "{refused:?}");
    assert!(refused.message().contains("'deny 1.1.1.1' can never match"), "{}", refused.message());
    let refused = service.set_egress(&id, Egress::None).await.unwrap_err();
    assert!(matches!(refused, ServiceError::Denied { denied: Denied::NetworkDeviceStays, .. }), "{refused:?}");
    let mut alone = named("alone");
    alone.egress = Some(Egress::None);
    let alone = create(&service, alone).await;
    let refused = service.set_egress(&alone, Egress::Public).await.unwrap_err();
    assert!(matches!(refused, ServiceError::Denied { denied: Denied::NoNetworkDevice, .. }), "{refused:?}");
    assert_eq!(refused.code(), Code::Conflict);
    service.set_egress(&alone, Egress::None).await.unwrap();
    assert_eq!(world.host.egress(&run), Some(Egress::Public));
    service.terminate(&id).await.unwrap();
    assert_eq!(service.set_egress(&id, Egress::closed()).await.unwrap_err().code(), Code::Gone);
    world.is_sound().await;
}
