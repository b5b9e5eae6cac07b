//! Suspends that keep files only, resizes, and the limit after a wake.

use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{EventKind, Initiator, Keep, OnTimeout, Resize, Restored, SandboxId, SnapshotKind, StateName};
use dorm_lifecycle::{Timeouts, Update};
use dorm_service::{Code, CreateFrom, CreateSpec, KeepFuture, Moment as Point, Residence, Service, Use};
use dorm_store::{OperationKind, Store as _};

use crate::world::{World, base, counting, create, eventually, named, read, state, write};

async fn content(service: &Service, id: &SandboxId, path: &str) -> String {
    let (agent, _in_use) = service.agent(id, Use::Process).await.unwrap();
    read(&agent, path).await
}

async fn put(service: &Service, id: &SandboxId, path: &str, content: &'static str) {
    let (agent, _in_use) = service.agent(id, Use::Process).await.unwrap();
    write(&agent, path, content).await;
}

async fn processes(service: &Service, id: &SandboxId) -> usize {
    let (agent, _in_use) = service.agent(id, Use::Process).await.unwrap();
    agent.processes().await.unwrap().len()
}

async fn open_kinds(world: &World) -> Vec<OperationKind> {
    world.store.open_operations().await.unwrap().into_iter().map(|open| open.kind).collect()
}

#[tokio::test]
async fn files_are_kept_and_memory_is_not_and_the_answers_say_so() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, _) = counting(&service).await;
    put(&service, &id, "/note", "one").await;
    let asleep = service.suspend_with(&id, Keep::Files).await.unwrap();
    let image = asleep.sandbox.state.image().unwrap().clone();
    assert_eq!(
        (state(&asleep), asleep.residence, image.keeps()),
        (StateName::Suspended, Residence::Evicted, Keep::Files)
    );
    assert!(world.host.runs().is_empty(), "nothing is parked for it");
    world.is_sound().await;
    let again = service.suspend(&id).await.unwrap();
    assert_eq!(again.sandbox.state.image().unwrap().keeps(), Keep::Files, "it stays as it is");
    let awake = service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(awake.sandbox.restored, Restored::Files { generation: 1 });
    assert_eq!((awake.sandbox.generation, awake.sandbox.run), (2, 2));
    assert_eq!(content(&service, &id, "/note").await, "one");
    assert_eq!(processes(&service, &id).await, 0, "it has booted");
    world.is_sound().await;
    // A run that is lost returns to the files.
    world.host.kill(&awake.sandbox.run_id(), "killed by a test");
    eventually("it is back at its files", || async {
        state(&service.describe(&id).await.unwrap()) == StateName::Suspended
    })
    .await;
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(content(&service, &id, "/note").await, "one");
    service.terminate(&id).await.unwrap();
    eventually("its files are gone", || async { service.snapshots().await.unwrap().is_empty() }).await;
    world.is_sound().await;
}

#[tokio::test]
async fn a_sandbox_that_is_not_suspendable_keeps_its_files_at_a_deadline_too() {
    let world = World::new().await;
    let service = world.daemon().await;
    let asked = CreateSpec { on_timeout: Some(OnTimeout::SuspendFiles), ..base() };
    let id = create(&service, asked).await;
    put(&service, &id, "/note", "one").await;
    assert_eq!(service.suspend(&id).await.unwrap_err().code(), Code::Conflict);
    let soon = Timeouts { total: Some(Duration::from_millis(1)), ..Timeouts::default() };
    service.set_timeouts(&id, soon).await.unwrap();
    eventually("its deadline has passed", || async {
        state(&service.describe(&id).await.unwrap()) == StateName::Suspended
    })
    .await;
    service.set_timeouts(&id, Timeouts::default()).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(content(&service, &id, "/note").await, "one");
    world.is_sound().await;
}

#[tokio::test]
async fn many_such_suspends_do_not_pile_up_layers() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    for number in 0..20 {
        put(&service, &id, ["/even", "/odd"][number % 2], "here").await;
        let asleep = service.suspend_with(&id, Keep::Files).await.unwrap();
        let layer = asleep.sandbox.spec.layer.unwrap();
        assert!(world.storage().depth(&layer).await.unwrap() <= 9, "after {number}");
        service.resume(&id, Initiator::User).await.unwrap();
    }
    for path in ["/even", "/odd"] {
        assert_eq!(content(&service, &id, path).await, "here");
    }
    let sandbox = service.describe(&id).await.unwrap().sandbox;
    eventually("only the layers below it are kept", || async {
        let kept = service.snapshots().await.unwrap().len();
        kept == world.storage().depth(sandbox.spec.layer.as_ref().unwrap()).await.unwrap()
    })
    .await;
    world.is_sound().await;
}

#[tokio::test]
async fn what_needs_memory_is_refused_and_the_rest_works_on_files() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    put(&service, &id, "/note", "one").await;
    let first = service.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap();
    put(&service, &id, "/note", "two").await;
    service.suspend_with(&id, Keep::Files).await.unwrap();
    for refused in [
        service.checkpoint(&id, SnapshotKind::Memory).await.map(drop),
        service.clone_sandbox(&id, None).await.map(drop),
        service.promote(&id, KeepFuture::Not).await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().code(), Code::Conflict);
    }
    let copy = service.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap();
    assert_eq!(copy.layer, None, "it stands for itself");
    let child = create(&service, CreateSpec::new(CreateFrom::Snapshot(copy.id))).await;
    assert_eq!(content(&service, &child, "/note").await, "two");
    let (one, other) = (Point::Snapshot(first.id.clone()), Point::Sandbox(id.clone()));
    assert_eq!(service.diff(&one, &other).await.unwrap().len(), 1);
    assert_eq!(state(&service.evict(&id).await.unwrap()), StateName::Suspended);
    // The files that a rewind leaves are a snapshot already, which stays.
    let done = service.rewind(&id, &first.id, KeepFuture::UntilDeleted).await.unwrap();
    assert_eq!(content(&service, &id, "/note").await, "one");
    let future = service.snapshot(&done.future.unwrap()).await.unwrap();
    let child = create(&service, CreateSpec::new(CreateFrom::Snapshot(future.id))).await;
    assert_eq!(content(&service, &child, "/note").await, "two");
    service.suspend_with(&id, Keep::Files).await.unwrap();
    let kept = service.snapshots().await.unwrap().len();
    assert_eq!(service.rewind(&id, &first.id, KeepFuture::Not).await.unwrap().future, None);
    eventually("the files that are not kept go", || async { service.snapshots().await.unwrap().len() == kept - 1 })
        .await;
    world.is_sound().await;
}

#[tokio::test]
async fn a_daemon_that_dies_while_files_are_saved_loses_nothing() {
    for moment in [Moment::Before, Moment::After] {
        let world = World::new().await;
        let service = world.daemon().await;
        let (id, mut counter) = counting(&service).await;
        put(&service, &id, "/note", "one").await;
        world.host.faults().next(Operation::Save, moment, Fault::Hang);
        let (dying, doomed) = (service.clone(), id.clone());
        let suspend = tokio::spawn(async move { dying.suspend_with(&doomed, Keep::Files).await });
        world.host.faults().wait_until_struck(Operation::Save, 1).await;
        suspend.abort();
        world.host.open();
        drop(service);
        let service = world.daemon().await;
        eventually("the operation is over", || async { open_kinds(&world).await.is_empty() }).await;
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2", "{moment:?}: it has all its memory");
        eventually("nothing of the attempt is left", || async { service.snapshots().await.unwrap().is_empty() }).await;
        service.suspend_with(&id, Keep::Files).await.unwrap();
        world.is_sound().await;
    }
}

#[tokio::test]
async fn files_that_cannot_be_saved_leave_the_sandbox_running() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::NoRoom);
    assert_eq!(service.suspend_with(&id, Keep::Files).await.unwrap_err().code(), Code::NoRoom);
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    eventually("nothing of the attempt is left", || async { service.snapshots().await.unwrap().is_empty() }).await;
    assert!(world.events(&id).await.contains(&EventKind::SuspendFailed));
    world.is_sound().await;
}

#[tokio::test]
async fn limits_change_at_once_and_when_it_wakes() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    let run = service.describe(&id).await.unwrap().sandbox.run_id();
    let larger = Resize { cpu_millis: Some(2000), memory_bytes: Some(1 << 30) };
    let view = service.resize(&id, larger).await.unwrap();
    assert_eq!((view.sandbox.spec.resources.cpu_millis, view.sandbox.spec.resources.memory_bytes), (2000, 1 << 30));
    assert_eq!(world.host.memory_limit(&run), Some(1 << 30));
    let nothing = service.resize(&id, Resize { memory_bytes: Some(1), ..Resize::default() }).await.unwrap_err();
    assert_eq!(nothing.code(), Code::InvalidArgument);
    // A failure leaves the previous limits.
    world.host.faults().next(Operation::SetLimits, Moment::Before, Fault::Fail);
    let smaller = Resize { memory_bytes: Some(256 << 20), ..Resize::default() };
    service.resize(&id, smaller).await.unwrap_err();
    assert_eq!(world.host.memory_limit(&run), Some(1 << 30));
    service.suspend(&id).await.unwrap();
    service.resize(&id, smaller).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    let run = service.describe(&id).await.unwrap().sandbox.run_id();
    assert_eq!(world.host.memory_limit(&run), Some(256 << 20));
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    let child = service.clone_sandbox(&id, None).await.unwrap().clone;
    assert_eq!(child.sandbox.spec.resources.memory_bytes, 256 << 20);
    world.is_sound().await;
}

#[tokio::test]
async fn a_sandbox_cannot_have_less_memory_than_it_uses() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let (agent, in_use) = service.agent(&id, Use::Exec).await.unwrap();
    let words = ["allocate", "200000000"].map(|word| dorm_agent_client::GuestString::new(word).unwrap()).to_vec();
    agent.start(&dorm_agent_client::ProcessSpec::new(words)).await.unwrap();
    drop((agent, in_use));
    let wanted = Resize { memory_bytes: Some(64 << 20), ..Resize::default() };
    eventually("it uses its memory", || async { service.usage(&id).await.unwrap().memory_bytes > 200_000_000 }).await;
    assert_eq!(service.resize(&id, wanted).await.unwrap_err().code(), Code::Conflict);
    assert!(world.events(&id).await.contains(&EventKind::ResizeFailed));
    world.is_sound().await;
}

#[tokio::test]
async fn a_daemon_that_dies_during_a_resize_completes_it() {
    for moment in [Moment::Before, Moment::After] {
        let world = World::new().await;
        let service = world.daemon().await;
        let (id, _) = counting(&service).await;
        let run = service.describe(&id).await.unwrap().sandbox.run_id();
        world.host.faults().next(Operation::SetLimits, moment, Fault::Hang);
        let (dying, doomed) = (service.clone(), id.clone());
        let larger = Resize { memory_bytes: Some(1 << 30), ..Resize::default() };
        let change = tokio::spawn(async move { dying.resize(&doomed, larger).await });
        world.host.faults().wait_until_struck(Operation::SetLimits, 1).await;
        change.abort();
        world.host.open();
        drop(service);
        let service = world.daemon().await;
        eventually("the operation is over", || async { open_kinds(&world).await.is_empty() }).await;
        let view = service.describe(&id).await.unwrap();
        assert_eq!(view.sandbox.spec.resources.memory_bytes, 1 << 30, "{moment:?}");
        assert_eq!(world.host.memory_limit(&run), Some(1 << 30));
        world.is_sound().await;
    }
}

#[tokio::test]
async fn a_run_that_a_call_has_woken_has_a_limit_of_its_own() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let seconds = |count| Some(Duration::from_secs(count));
    let limits = Timeouts { total: seconds(100), after_wake: seconds(600), ..Timeouts::default() };
    service.set_timeouts(&id, limits).await.unwrap();
    service.update(&id, Update { wake: Some(dorm_lifecycle::Wake::Any), ..Update::default() }).await.unwrap();
    service.suspend(&id).await.unwrap();
    drop(service.agent(&id, Use::Exec).await.unwrap());
    let woken = service.describe(&id).await.unwrap();
    assert_eq!((woken.sandbox.total(), woken.sandbox.spec.timeouts), (seconds(600), limits));
    service.suspend(&id).await.unwrap();
    let resumed = service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(resumed.sandbox.total(), seconds(100), "a resume has the ordinary limit");
    assert!(resumed.sandbox.started >= woken.sandbox.started);
    world.is_sound().await;
}
