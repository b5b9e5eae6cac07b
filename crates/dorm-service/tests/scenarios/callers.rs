//! Events, operations and sandboxes name the caller that asked for them.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{
    ApiKeyId, Caller, Claim, Credential, EventKind, Initiator, RequestId, SandboxId, SnapshotKind, StateName, Timeouts,
    Wake,
};
use dorm_service::{CreateSpec, FollowingVolumes, ForkChildSpec, ForkSpec, KeepFuture};
use dorm_store::{
    EventFilter, NewEvent, OnPartialFailure, OperationFilter, OperationKind, OperationRecord, Store as _,
};

use crate::pools::one_worker;
use crate::world::{World, create, eventually, named, state};

fn key(number: u8, name: &str) -> Caller {
    let credential = Credential::ApiKey { id: ApiKeyId::from_random([number; 20]), name: name.to_owned() };
    Caller { door: "api".parse().unwrap(), credential }
}

fn ci() -> Caller {
    key(1, "ci")
}

fn person() -> Caller {
    key(2, "person")
}

async fn events(world: &World, id: &SandboxId) -> Vec<NewEvent> {
    let filter = EventFilter { sandbox: Some(id.clone()), ..EventFilter::default() };
    world.store.events(&filter).await.unwrap().into_iter().map(|record| record.event).collect()
}

/// The initiator and the caller of each kind of event of a sandbox.
async fn told(world: &World, id: &SandboxId) -> Vec<(EventKind, Initiator, Option<Caller>)> {
    events(world, id).await.into_iter().map(|event| (event.kind, event.initiator, event.caller)).collect()
}

async fn operations(world: &World, id: &SandboxId) -> Vec<OperationRecord> {
    let filter = OperationFilter { sandbox: Some(id.clone()), ..OperationFilter::default() };
    world.store.find_operations(&filter).await.unwrap()
}

async fn operation(world: &World, id: &SandboxId, kind: OperationKind) -> OperationRecord {
    operations(world, id).await.into_iter().find(|operation| operation.kind == kind).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_change_names_the_caller_that_asked_for_it_and_a_deadline_has_none() {
    let world = World::new().await;
    let daemon = world.daemon().await;
    let asked =
        CreateSpec { timeouts: Timeouts { idle: Some(Duration::from_secs(5)), ..Timeouts::default() }, ..named("web") };
    let id = create(&daemon.as_caller(Some(ci())), asked).await;
    daemon.as_caller(Some(person())).suspend(&id).await.unwrap();
    daemon.as_caller(Some(person())).evict(&id).await.unwrap();
    daemon.resume(&id, Initiator::User).await.unwrap();
    eventually("its deadline passes", || async { state(&daemon.describe(&id).await.unwrap()) == StateName::Suspended })
        .await;
    let (user, timer) = (Initiator::User, Initiator::Timer);
    assert_eq!(
        told(&world, &id).await,
        [
            (EventKind::Created, user, Some(ci())),
            (EventKind::Started, user, Some(ci())),
            (EventKind::Suspending, user, Some(person())),
            (EventKind::Suspended, user, Some(person())),
            (EventKind::Evicted, user, Some(person())),
            (EventKind::Resuming, user, None),
            (EventKind::Resumed, user, None),
            (EventKind::DeadlinePassed, timer, None),
            (EventKind::Suspending, timer, None),
            (EventKind::Suspended, timer, None),
        ]
    );
    let mut asked: Vec<_> =
        operations(&world, &id).await.into_iter().map(|one| (one.kind, one.initiator, one.caller)).collect();
    // No time passes while they are carried out, so their order is not known.
    asked.sort_by_key(|(kind, initiator, _)| (kind.as_str(), initiator.as_str()));
    assert_eq!(
        asked,
        [
            (OperationKind::Create, user, Some(ci())),
            (OperationKind::Resume, user, None),
            (OperationKind::Suspend, timer, None),
            (OperationKind::Suspend, user, Some(person())),
        ]
    );
    assert_eq!(daemon.describe(&id).await.unwrap().sandbox.created_by, Some(ci()));
}

#[tokio::test]
async fn what_a_request_leads_to_has_its_caller() {
    let world = World::new().await;
    let daemon = world.daemon().await;
    let id = create(&daemon, named("web")).await;
    let service = daemon.as_caller(Some(ci()));
    let children = vec![ForkChildSpec::default(); 2];
    let asked = ForkSpec { children, on_partial_failure: OnPartialFailure::Keep, volumes: FollowingVolumes::Same };
    let forked = service.fork(&id, asked).await.unwrap();
    let of_source = events(&world, &id).await;
    for kind in [EventKind::Snapshotting, EventKind::SnapshotTaken, EventKind::Forked] {
        let event = of_source.iter().find(|event| event.kind == kind).unwrap();
        assert_eq!(event.caller, Some(ci()), "{kind:?}");
    }
    for child in forked {
        let sandbox = child.unwrap().sandbox;
        assert_eq!(sandbox.created_by, Some(ci()));
        assert!(events(&world, &sandbox.id).await.iter().all(|event| event.caller == Some(ci())));
    }
    let snapshot = daemon.as_caller(Some(person())).checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    daemon.as_caller(Some(person())).rewind(&id, &snapshot.id, KeepFuture::Not).await.unwrap();
    assert_eq!(operation(&world, &id, OperationKind::Rewind).await.caller, Some(person()));
    let rewound = events(&world, &id).await.into_iter().find(|event| event.kind == EventKind::Rewound).unwrap();
    assert_eq!(rewound.caller, Some(person()));
}

#[tokio::test]
async fn traffic_has_the_caller_that_a_private_port_admitted() {
    let world = World::new().await;
    let daemon = world.daemon().await;
    let id = create(&daemon, named("web")).await;
    daemon.suspend(&id).await.unwrap();
    let visitor = Caller { credential: Credential::PortToken, ..ci() };
    // Nothing listens on the port, but the sandbox was resumed to find that out.
    assert!(daemon.as_caller(Some(visitor.clone())).connect(&id, 80).await.is_err());
    let resume = operation(&world, &id, OperationKind::Resume).await;
    assert_eq!((resume.initiator, resume.caller), (Initiator::Traffic, Some(visitor)));
}

#[tokio::test]
async fn a_member_of_a_pool_has_no_caller_until_it_is_claimed() {
    let world = World::new().await;
    let daemon = world.daemon().await;
    daemon.as_caller(Some(ci())).create_pool(one_worker()).await.unwrap();
    eventually("the pool is filled", || async { daemon.pool("workers").await.unwrap().waiting == 1 }).await;
    let claim = Claim {
        name: Some("mine".parse().unwrap()),
        variables: BTreeMap::new(),
        labels: BTreeMap::new(),
        timeouts: Timeouts::default(),
        on_timeout: None,
        wake: Wake::default(),
        port_access: None,
    };
    let service = daemon.as_caller(Some(person()));
    let claimed = service.claim("workers", claim, Duration::from_secs(60)).await.unwrap().sandbox;
    assert_eq!(claimed.created_by, None);
    let events = events(&world, &claimed.id).await;
    let (before, since): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.caller.is_none());
    let kinds = |events: &[&NewEvent]| events.iter().map(|event| event.kind).collect::<Vec<_>>();
    let made = [EventKind::Created, EventKind::Started, EventKind::Suspending, EventKind::Suspended];
    assert_eq!(kinds(&before), made);
    assert_eq!(kinds(&since), [EventKind::Resuming, EventKind::Claimed, EventKind::Resumed]);
    assert!(since.iter().all(|event| event.caller == Some(person())));
}

#[tokio::test]
async fn a_retry_keeps_the_caller_of_the_first_request() {
    let world = World::new().await;
    let daemon = world.daemon().await;
    let id = RequestId::from_random([1; 20]);
    let mut made = Vec::new();
    for caller in [ci(), person()] {
        let service = daemon.as_caller(Some(caller)).for_request(&id, [1; 32]).await.unwrap();
        made.push(service.create(named("web")).await.unwrap().sandbox);
    }
    assert_eq!(made[0].id, made[1].id);
    assert_eq!(made[1].created_by, Some(ci()));
    assert!(events(&world, &made[0].id).await.iter().all(|event| event.caller == Some(ci())));
}

/// The daemon dies while the first run starts: the next one starts it over.
#[tokio::test]
async fn an_operation_keeps_its_caller_when_another_daemon_continues_it() {
    let world = World::new().await;
    let daemon = world.daemon().await;
    world.host.faults().next(Operation::Start, Moment::Before, Fault::Hang);
    let creating = {
        let service = daemon.as_caller(Some(ci()));
        tokio::spawn(async move { drop(service.create(named("web")).await) })
    };
    world.host.faults().wait_until_struck(Operation::Start, 1).await;
    creating.abort();
    world.host.open();
    drop(daemon);
    let daemon = world.daemon().await;
    let id = daemon.find("web").await.unwrap();
    eventually("it runs", || async { state(&daemon.describe(&id).await.unwrap()) == StateName::Running }).await;
    let create = operation(&world, &id, OperationKind::Create).await;
    assert_eq!((create.initiator, create.caller), (Initiator::User, Some(ci())));
    assert!(create.ended.is_some());
    assert_eq!(
        told(&world, &id).await,
        [(EventKind::Created, Initiator::User, Some(ci())), (EventKind::Started, Initiator::Recovery, None)]
    );
    assert_eq!(daemon.describe(&id).await.unwrap().sandbox.created_by, Some(ci()));
}

/// The start of the next daemon closes the operation before the sandbox is revived.
#[tokio::test]
async fn an_operation_that_is_rolled_back_keeps_its_caller_and_its_beginning() {
    let world = World::new().await;
    let daemon = world.daemon().await;
    let id = create(&daemon, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Hang);
    let suspending = crate::world::suspending(&daemon.as_caller(Some(ci())), &id);
    world.host.faults().wait_until_struck(Operation::Save, 1).await;
    suspending.abort();
    world.host.open();
    drop(daemon);
    let before = operation(&world, &id, OperationKind::Suspend).await;
    let daemon = world.daemon().await;
    eventually("it runs again", || async { state(&daemon.describe(&id).await.unwrap()) == StateName::Running }).await;
    let after = operation(&world, &id, OperationKind::Suspend).await;
    assert!(before.ended.is_none() && after.ended.is_some());
    assert_eq!(OperationRecord { ended: None, ..after }, before);
    let failed = told(&world, &id).await.pop().unwrap();
    assert_eq!(failed, (EventKind::SuspendFailed, Initiator::Recovery, None));
    world.is_sound().await;
}

/// A rewind writes its operation twice: the second time, another daemon does.
#[tokio::test]
async fn a_rewind_keeps_its_caller_when_another_daemon_continues_it() {
    let world = World::new().await;
    let daemon = world.daemon().await;
    let id = create(&daemon, named("web")).await;
    let snapshot = daemon.checkpoint(&id, SnapshotKind::Memory).await.unwrap().id;
    daemon.suspend(&id).await.unwrap();
    daemon.evict(&id).await.unwrap();
    world.host.faults().next(Operation::Restore, Moment::Before, Fault::Hang);
    let rewinding = {
        let (service, id, to) = (daemon.as_caller(Some(ci())), id.clone(), snapshot.clone());
        tokio::spawn(async move { drop(service.rewind(&id, &to, KeepFuture::UntilDeleted).await) })
    };
    world.host.faults().wait_until_struck(Operation::Restore, 1).await;
    rewinding.abort();
    world.host.open();
    drop(daemon);
    let daemon = world.daemon().await;
    eventually("the rewind has ended", || async {
        operation(&world, &id, OperationKind::Rewind).await.ended.is_some()
    })
    .await;
    let rewind = operation(&world, &id, OperationKind::Rewind).await;
    assert_eq!((rewind.initiator, rewind.caller), (Initiator::User, Some(ci())));
    drop(daemon);
}
