//! A retry of a request with an idempotency key returns what the first request made.

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{RequestId, SandboxId, SnapshotKind, StateName, Writers};
use dorm_ports::{Logins, RemoteSpec, Transport};
use dorm_service::{
    ApiKeySpec, CheckpointSpec, Code, CreateFrom, CreateSpec, FollowingVolumes, ForkChildSpec, ForkSpec, ImportSpec,
    KeepFuture, KeyForm, Service, ServiceError,
};
use dorm_store::{KeyScope, OnPartialFailure, SandboxFilter, Store as _};

use crate::world::{World, base, create, eventually, named, state};

fn key(number: u8) -> RequestId {
    RequestId::from_random([number; 20])
}

/// The handle for a request with the key `number`.
async fn keyed(service: &Service, number: u8) -> Service {
    service.for_request(&key(number), [number; 32]).await.unwrap()
}

async fn sandboxes(world: &World) -> Vec<SandboxId> {
    let all = world.store.sandboxes(&SandboxFilter::default()).await.unwrap();
    all.into_iter().map(|record| record.sandbox.id).collect()
}

fn two_children() -> ForkSpec {
    let children = vec![ForkChildSpec::default(); 2];
    ForkSpec { children, on_partial_failure: OnPartialFailure::Keep, volumes: FollowingVolumes::Same }
}

#[tokio::test]
async fn a_retry_of_each_request_returns_the_first_result_and_makes_nothing() {
    let world = World::new().await;
    let first = world.daemon().await;
    let source = create(&first, named("web")).await;
    let run = async |service: Service| {
        let made = |number| {
            let service = service.clone();
            async move { keyed(&service, number).await }
        };
        let created = made(1).await.create(named("one")).await.unwrap().sandbox.id;
        let snapshot = made(2).await.checkpoint(&source, SnapshotKind::Memory).await.unwrap();
        let begun = made(3).await.begin_checkpoint(&source, CheckpointSpec::default()).await.unwrap().id;
        let cloned = made(4).await;
        let cloned = cloned.clone_with(&source, ForkChildSpec::default(), FollowingVolumes::Same).await.unwrap();
        let forked = made(5).await.fork(&source, two_children()).await.unwrap();
        let forked: Vec<_> = forked.into_iter().map(|child| child.unwrap().sandbox.id).collect();
        let rewound = made(6).await.rewind(&source, &snapshot.id, KeepFuture::UntilDeleted).await.unwrap();
        let promoted = made(7).await.promote(&forked[0], KeepFuture::UntilDeleted).await.unwrap();
        let volume = made(8).await.create_volume("data".parse().unwrap(), 64 << 20, Writers::One).await.unwrap();
        let webhook = made(9).await.add_webhook("http://example.com/".into(), Vec::new(), None).await.unwrap();
        let (_, hold) =
            made(10).await.hold(&source, std::time::Duration::from_secs(60), "work".into(), None).await.unwrap();
        let files = made(11).await.snapshot_of_files(&snapshot.id).await.unwrap().id;
        let restarted = made(12).await.restart(&forked[0], None).await;
        let restarted = restarted.map(|restarted| (restarted.snapshot, restarted.sandbox.sandbox.id));
        let restarted = restarted.map_err(|error| error.message());
        let ids = (created, snapshot.id, begun, cloned.snapshot.id, cloned.clone.sandbox.id, forked);
        let changed = (rewound.sandbox.sandbox.id, rewound.to, rewound.future, promoted.child, promoted.future);
        let others = (volume.volume.id, webhook.id, webhook.secret, hold, files, restarted);
        (ids, changed, others)
    };
    let made = run(first.clone()).await;
    let count = |world: &World| {
        let store = world.store.clone();
        async move {
            let sandboxes = store.sandboxes(&SandboxFilter::default()).await.unwrap().len();
            let volumes = store.volumes().await.unwrap().len();
            (sandboxes, store.snapshots(None).await.unwrap().len(), volumes, store.webhooks().await.unwrap().len())
        }
    };
    eventually("the snapshot that was begun is taken", || async { first.snapshot(&made.0.2).await.is_ok() }).await;
    first.stop().await;
    let second = world.daemon().await;
    let before = count(&world).await;
    assert!(keyed(&second, 1).await.is_retry());
    assert_eq!(run(second.clone()).await, made);
    assert_eq!(count(&world).await, before);
}

#[tokio::test]
async fn a_key_is_for_one_request_only() {
    let world = World::new().await;
    let service = world.daemon().await;
    keyed(&service, 1).await.create(named("one")).await.unwrap();
    let refused = service.for_request(&key(1), [2; 32]).await.err().unwrap();
    assert!(matches!(refused, ServiceError::KeyReused), "{refused}");
    assert_eq!(sandboxes(&world).await.len(), 1);
}

#[tokio::test]
async fn a_refused_request_leaves_its_key_free() {
    let world = World::new().await;
    let service = world.daemon().await;
    let missing = CreateSpec::new(CreateFrom::Image("missing".into()));
    let refused = keyed(&service, 1).await.create(missing).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert!(!keyed(&service, 1).await.is_retry());
    service.for_request(&key(1), [9; 32]).await.unwrap().create(base()).await.unwrap();
}

#[tokio::test]
async fn two_requests_at_once_with_one_key_make_one_sandbox() {
    let world = World::new().await;
    let service = world.daemon().await;
    let create = || {
        let service = service.clone();
        tokio::spawn(async move { keyed(&service, 1).await.create(base()).await.unwrap().sandbox.id })
    };
    let (one, other) = (create(), create());
    assert_eq!(one.await.unwrap(), other.await.unwrap());
    assert_eq!(sandboxes(&world).await.len(), 1);
}

#[tokio::test]
async fn a_caller_that_went_away_finds_what_its_request_made() {
    let world = World::new().await;
    let service = world.daemon().await;
    let source = create(&service, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Hang);
    let (impatient, id) = (keyed(&service, 1).await, source.clone());
    let call = tokio::spawn(async move { impatient.checkpoint(&id, SnapshotKind::Memory).await });
    world.host.faults().wait_until_struck(Operation::Save, 1).await;
    call.abort();
    let retry = keyed(&service, 1).await;
    assert!(retry.is_retry());
    let waiting = tokio::spawn(async move { retry.checkpoint(&source, SnapshotKind::Memory).await });
    world.host.faults().release();
    let taken = waiting.await.unwrap().unwrap();
    let all = service.snapshots().await.unwrap();
    assert_eq!(all, [taken]);
}

#[tokio::test]
async fn a_retry_after_the_daemon_died_waits_for_the_same_sandbox() {
    let world = World::new().await;
    let service = world.daemon().await;
    world.host.faults().next(Operation::Start, Moment::Before, Fault::Hang);
    let dying = keyed(&service, 1).await;
    let call = tokio::spawn(async move { dying.create(named("web")).await });
    world.host.faults().wait_until_struck(Operation::Start, 1).await;
    let began = sandboxes(&world).await;
    call.abort();
    world.host.open();
    drop(service);
    let service = world.daemon().await;
    let retry = keyed(&service, 1).await;
    assert!(retry.is_retry());
    let view = retry.create(named("web")).await.unwrap();
    assert_eq!((vec![view.sandbox.id.clone()], state(&view)), (began, StateName::Running));
}

#[tokio::test]
async fn a_retry_of_a_failed_request_returns_the_failure() {
    let world = World::new().await;
    let service = world.daemon().await;
    world.host.faults().next(Operation::Start, Moment::Before, Fault::NoRoom);
    let failed = keyed(&service, 1).await.create(base()).await.unwrap_err();
    let again = keyed(&service, 1).await.create(base()).await.unwrap_err();
    assert!(matches!(again, ServiceError::FailedEarlier(_)), "{again}");
    assert_eq!((again.code(), sandboxes(&world).await.len()), (failed.code(), 1));
    let source = create(&service, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Fail);
    let fork = ForkSpec { on_partial_failure: OnPartialFailure::RollBack, ..two_children() };
    keyed(&service, 2).await.fork(&source, fork.clone()).await.unwrap_err();
    let again = keyed(&service, 2).await.fork(&source, fork).await.unwrap_err();
    assert!(matches!(again, ServiceError::FailedEarlier(_)), "{again}");
}

#[tokio::test]
async fn a_retry_does_not_make_again_what_was_deleted() {
    let world = World::new().await;
    let service = world.daemon().await;
    let volume =
        |service: Service| async move { service.create_volume("data".parse().unwrap(), 64 << 20, Writers::One).await };
    volume(keyed(&service, 1).await).await.unwrap();
    service.remove_volume("data").await.unwrap();
    let gone = volume(keyed(&service, 1).await).await.unwrap_err();
    assert_eq!(gone.code(), Code::Gone, "{gone}");
    assert!(service.volumes().await.unwrap().is_empty());
    let webhook =
        |service: Service| async move { service.add_webhook("http://example.com/".into(), Vec::new(), None).await };
    let made = webhook(keyed(&service, 2).await).await.unwrap();
    service.remove_webhook(&made.id).await.unwrap();
    assert_eq!(webhook(keyed(&service, 2).await).await.unwrap_err().code(), Code::Gone);
}

#[tokio::test]
async fn an_api_key_is_shown_once_and_made_once() {
    let world = World::new().await;
    let service = world.daemon().await;
    let spec = || ApiKeySpec { name: "ci".into(), scope: KeyScope::Full, lifetime: None, form: KeyForm::Dormouse };
    let (record, _) = keyed(&service, 1).await.create_key(spec()).await.unwrap();
    let again = keyed(&service, 1).await.create_key(spec()).await.unwrap_err();
    assert!(matches!(&again, ServiceError::KeyShown(id) if *id == record.id), "{again}");
    assert_eq!(service.keys().len(), 1);
}

#[tokio::test]
async fn a_clone_that_was_interrupted_uses_the_snapshot_it_had_taken() {
    let world = World::new().await;
    let service = world.daemon().await;
    let source = create(&service, named("web")).await;
    let first = keyed(&service, 1).await;
    // The daemon died after the first half of the clone.
    let snapshot = first.checkpoint(&source, SnapshotKind::Memory).await.unwrap().id;
    drop(first);
    let retry = keyed(&service, 1).await;
    let made = retry.clone_with(&source, ForkChildSpec::default(), FollowingVolumes::Same).await.unwrap();
    assert_eq!(made.snapshot.id, snapshot);
    drop(retry);
    let retry = keyed(&service, 1).await;
    let again = retry.clone_with(&source, ForkChildSpec::default(), FollowingVolumes::Same).await.unwrap();
    assert_eq!((again.clone.sandbox.id, again.snapshot.id), (made.clone.sandbox.id, snapshot));
}

#[tokio::test]
async fn a_retry_finds_the_state_that_the_rewind_of_a_suspended_sandbox_abandoned() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let to = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap().id;
    for number in 1..=20 {
        service.suspend(&id).await.unwrap();
        let done = keyed(&service, number).await.rewind(&id, &to, KeepFuture::UntilDeleted).await.unwrap();
        let again = keyed(&service, number).await.rewind(&id, &to, KeepFuture::UntilDeleted).await.unwrap();
        assert!(done.future.is_some());
        assert_eq!(again.future, done.future);
    }
}

#[tokio::test]
async fn a_retry_of_a_pull_asks_no_registry() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let taken = keyed(&service, 1).await.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    let from = RemoteSpec {
        reference: "host/name".into(),
        architecture: None,
        transport: Transport::Secure,
        logins: Logins::Daemon,
        login: None,
    };
    let refused = service.pull_snapshot(from.clone(), ImportSpec::default(), |_| {}).await.unwrap_err();
    assert!(matches!(refused, ServiceError::Registry(_)), "{refused}");
    let again = keyed(&service, 1).await.pull_snapshot(from, ImportSpec::default(), |_| {}).await.unwrap();
    assert_eq!(again.id, taken.id);
}
