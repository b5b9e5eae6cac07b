//! Operations in the background: while volumes are changed, a snapshot is made from a sleep image
//! or a rewind is prepared, the sandbox continues to run or stays suspended, and requests that
//! arrive meanwhile are answered.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use dorm_agent_client::{GuestString, ProcessSpec};
use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{EventKind, Initiator, Limits, RunId, SandboxId, SnapshotKind, StateName, Timeouts, Writers};
use dorm_service::{AttachmentSpec, Code, KeepFuture, Parts, Residence, Service, ServiceError, Use};
use dorm_steps::{Steps, Stopped};
use dorm_storage::Storage;
use dorm_store::{OperationKind, SnapshotStatus, Store as _};

use crate::world::{Counter, World, create, eventually, named, state};

/// The time limit for an answer that does not depend on the call that hangs.
const SOON: Duration = Duration::from_secs(20);

fn limits() -> Limits {
    let limit = Duration::from_secs(20);
    let bytes_per_second = u64::MAX;
    Limits {
        start: limit,
        ready: limit,
        suspend: limit,
        resume: limit,
        snapshot: limit,
        attach: limit,
        egress: limit,
        terminate: limit,
        bytes_per_second,
    }
}

fn data() -> AttachmentSpec {
    AttachmentSpec::new("data", "/data".parse().unwrap())
}

/// Creates a volume, and a running sandbox to which it is not attached.
async fn apart(service: &Service) -> (SandboxId, RunId) {
    service.create_volume("data".parse().unwrap(), 64 << 20, Writers::One).await.unwrap();
    let id = create(service, named("web")).await;
    (id.clone(), RunId { sandbox: id, generation: 1 })
}

async fn start(service: &Service, id: &SandboxId, words: [&str; 2]) {
    let (agent, _in_use) = service.agent(id, Use::Exec).await.unwrap();
    let words = words.map(|word| GuestString::new(word).unwrap()).to_vec();
    agent.start(&ProcessSpec::new(words)).await.unwrap();
}

async fn open_kinds(world: &World) -> Vec<OperationKind> {
    world.store.open_operations().await.unwrap().into_iter().map(|operation| operation.kind).collect()
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_used_and_relieved_of_memory_while_a_volume_is_attached() {
    let world = World::new().await.limits(limits());
    let service = world.daemon().await;
    let (id, run) = apart(&service).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    world.host.faults().next(Operation::Mount, Moment::Before, Fault::Hang);
    let attaching = service.attach(&id, data());
    tokio::pin!(attaching);
    let meanwhile = async {
        world.host.faults().wait_until_struck(Operation::Mount, 1).await;
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 1");
        start(&service, &id, ["allocate", "5000000000"]).await;
        eventually("its memory is relieved", || async {
            world.events(&id).await.contains(&EventKind::OomVictimKilled)
        })
        .await;
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
        let seen = service.describe(&id).await.unwrap().sandbox;
        assert_eq!((seen.state.name(), seen.spec.attachments.len()), (StateName::Running, 0));
        assert_eq!(open_kinds(&world).await, [OperationKind::Attach]);
    };
    tokio::select! {
        biased;
        ended = &mut attaching => panic!("it ended before anything else was answered: {ended:?}"),
        () = meanwhile => {}
    }
    world.host.faults().release();
    assert_eq!(attaching.await.unwrap().sandbox.spec.attachments.len(), 1);
    assert_eq!(world.host.volumes_inside(&run).len(), 1);
    assert!(world.events(&id).await.ends_with(&[EventKind::Attached]));
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn an_attach_that_hangs_is_given_up_at_its_limit_and_then_the_passed_deadline_suspends() {
    let world = World::new().await.limits(limits());
    let service = world.daemon().await;
    let (id, run) = apart(&service).await;
    let total = Some(Duration::from_secs(5));
    service.set_timeouts(&id, Timeouts { total, ..Timeouts::default() }).await.unwrap();
    world.host.faults().next(Operation::Mount, Moment::Before, Fault::Hang);
    let failed = service.attach(&id, data()).await.unwrap_err().message();
    assert!(failed.contains("changing its volumes took longer than its limit of 20 s"), "{failed}");
    assert_eq!(world.host.volumes_inside(&run), []);
    eventually("it is suspended", || async { state(&service.describe(&id).await.unwrap()) == StateName::Suspended })
        .await;
    let events = world.events(&id).await;
    let at = |kind| events.iter().position(|event| *event == kind).unwrap();
    assert!(at(EventKind::AttachFailed) < at(EventKind::DeadlinePassed), "{events:?}");
    let why = service.why(&id).await.unwrap();
    assert!(why.refused.is_some_and(|refused| refused.says.starts_with("attach failed: ")));
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_terminate_waits_for_an_attach_that_hangs_and_ends_the_sandbox_then() {
    let world = World::new().await.limits(limits());
    let service = world.daemon().await;
    let (id, _) = apart(&service).await;
    world.host.faults().next(Operation::Mount, Moment::Before, Fault::Hang);
    let (attached, over) = tokio::join!(service.attach(&id, data()), async {
        world.host.faults().wait_until_struck(Operation::Mount, 1).await;
        service.terminate(&id).await
    });
    attached.unwrap_err();
    assert_eq!(state(&over.unwrap()), StateName::Terminated);
    let other = create(&service, named("other")).await;
    service.attach(&other, data()).await.unwrap();
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_while_a_volume_is_attached_is_not_waited_for() {
    let world = World::new().await.limits(limits());
    let service = world.daemon().await;
    let (id, run) = apart(&service).await;
    service.suspend(&id).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    world.host.faults().always(Operation::Mount, Moment::Before, Fault::Hang);
    let before = tokio::time::Instant::now();
    let (attached, ()) = tokio::join!(service.attach(&id, data()), async {
        world.host.faults().wait_until_struck(Operation::Mount, 1).await;
        assert!(world.host.kill(&run, "killed by a test"));
    });
    assert!(attached.unwrap_err().message().contains("killed by a test"));
    assert!(before.elapsed() < limits().attach, "it did not wait for the limit");
    let seen = service.describe(&id).await.unwrap().sandbox;
    assert_eq!((seen.state.name(), seen.spec.attachments.len()), (StateName::Suspended, 0));
    world.host.faults().clear();
    world.is_sound().await;
}

#[tokio::test]
async fn a_volume_that_cannot_be_mounted_is_not_attached_and_its_error_keeps_its_type() {
    for fault in [Fault::Fail, Fault::NoRoom] {
        let world = World::new().await;
        let service = world.daemon().await;
        let (id, run) = apart(&service).await;
        world.host.faults().next(Operation::Mount, Moment::After, fault);
        let failed = service.attach(&id, data()).await.unwrap_err();
        let ServiceError::OperationFailed { failure, .. } = &failed else { panic!("{failed:?}") };
        assert!(matches!(failure.cause(), Some(ServiceError::Engine(_))), "{failure:?}");
        assert_eq!(failed.code(), if fault == Fault::NoRoom { Code::NoRoom } else { Code::Failed });
        assert_eq!(world.host.volumes_inside(&run), []);
        assert!(service.describe(&id).await.unwrap().sandbox.spec.attachments.is_empty());
        let other = create(&service, named("other")).await;
        service.attach(&other, data()).await.unwrap();
        assert_eq!(service.attach(&id, data()).await.unwrap_err().code(), Code::Conflict, "one writer");
        world.is_sound().await;
    }
}

#[tokio::test]
async fn a_daemon_that_dies_while_a_volume_is_attached_or_detached_leaves_what_is_on_record() {
    for (attaches, call) in [(true, 1), (false, 2)] {
        for moment in [Moment::Before, Moment::After] {
            let world = World::new().await;
            let service = world.daemon().await;
            let (id, run) = apart(&service).await;
            if !attaches {
                service.attach(&id, data()).await.unwrap();
            }
            assert_eq!(world.host.faults().calls(Operation::Mount), call - 1);
            world.host.faults().next(Operation::Mount, moment, Fault::Hang);
            let dying = service.clone();
            let doomed = id.clone();
            let change = tokio::spawn(async move {
                match attaches {
                    true => dying.attach(&doomed, data()).await,
                    false => dying.detach(&doomed, "/data".parse().unwrap()).await,
                }
            });
            world.host.faults().wait_until_struck(Operation::Mount, 1).await;
            let kind = if attaches { OperationKind::Attach } else { OperationKind::Detach };
            assert_eq!(open_kinds(&world).await, [kind]);
            change.abort();
            world.host.open();
            drop(service);
            let (service, report) = world.daemon_and_report().await;
            assert!(report.lines.iter().any(|line| line.contains("operation was abandoned;")), "{:?}", report.lines);
            eventually("the operation is over", || async { open_kinds(&world).await.is_empty() }).await;
            let seen = service.describe(&id).await.unwrap().sandbox;
            assert_eq!(seen.spec.attachments.is_empty(), attaches);
            assert_eq!(world.host.volumes_inside(&run).is_empty(), attaches, "{kind:?} {moment:?}");
            assert!(world.events(&id).await.contains(&EventKind::AttachFailed));
            let other = create(&service, named("other")).await;
            assert_eq!(service.attach(&other, data()).await.is_ok(), attaches, "the lease is where the record says");
            world.is_sound().await;
        }
    }
}

#[tokio::test]
async fn a_suspended_sandbox_gives_up_the_parked_run_that_has_other_volumes() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, _) = apart(&service).await;
    service.suspend(&id).await.unwrap();
    world.host.faults().next(Operation::Stop, Moment::Before, Fault::Fail);
    service.attach(&id, data()).await.unwrap_err();
    let seen = service.describe(&id).await.unwrap();
    assert_eq!((seen.residence, seen.sandbox.spec.attachments.len()), (Residence::Parked, 0));
    service.attach(&id, data()).await.unwrap();
    let seen = service.describe(&id).await.unwrap();
    assert_eq!((state(&seen), seen.residence), (StateName::Suspended, Residence::Evicted));
    assert!(world.events(&id).await.ends_with(&[EventKind::Attached, EventKind::Evicted]));
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(world.host.volumes_inside(&RunId { sandbox: id, generation: 2 }).len(), 1);
    world.is_sound().await;
}

/// Blocks every task that reaches a step of storage until the step is released.
#[derive(Debug, Default)]
struct Gate {
    closed: Mutex<bool>,
    reached: Mutex<bool>,
    opened: Condvar,
}

const LINKED: &str = "storage: files linked";

impl Gate {
    fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    async fn wait(&self) {
        eventually("the copy is being made", || async { *self.reached.lock().unwrap() }).await;
    }
}

impl Steps for Gate {
    fn reach(&self, step: &'static str) -> Result<(), Stopped> {
        let mut closed = self.closed.lock().unwrap();
        if step == LINKED && *closed {
            *self.reached.lock().unwrap() = true;
            while *closed {
                closed = self.opened.wait(closed).unwrap();
            }
        }
        Ok(())
    }
}

/// Releases blocked tasks when a scenario ends, also by a panic.
struct Opens(Arc<Gate>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

async fn gated(world: &World) -> (Service, Opens) {
    let gate = Arc::new(Gate::default());
    let path: &Path = world.directory.path();
    let storage = Storage::open_with(&path.join("data"), &path.join("images"), gate.clone()).unwrap();
    (Service::open(Parts { storage, ..world.parts() }).await.unwrap().0, Opens(gate))
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work).await.unwrap_or_else(|_| panic!("{what} was not answered"))
}

#[tokio::test]
async fn a_suspended_sandbox_is_evicted_and_waits_to_wake_while_a_snapshot_of_it_is_made() {
    let world = World::new().await;
    let (service, gate) = gated(&world).await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    counter.ask(&service, &id).await.unwrap();
    service.suspend(&id).await.unwrap();
    gate.0.close();
    let (taking, of) = (service.clone(), id.clone());
    let taking = tokio::spawn(async move { taking.checkpoint(&of, SnapshotKind::Memory).await });
    gate.0.wait().await;
    let seen = soon("an eviction", service.evict(&id)).await.unwrap();
    assert_eq!((state(&seen), seen.residence), (StateName::Suspended, Residence::Evicted));
    assert_eq!(soon("a suspend", service.suspend(&id)).await.unwrap().residence, Residence::Evicted);
    assert_eq!(open_kinds(&world).await, [OperationKind::Snapshot]);
    let operation = soon("a look", service.describe(&id)).await.unwrap().sandbox.state.operation().cloned();
    let why = soon("why", service.why(&id)).await.unwrap();
    assert!(why.next[0].says.contains(operation.expect("it is at work").as_str()), "{:?}", why.next);
    let waking = tokio::spawn({
        let (service, id) = (service.clone(), id.clone());
        async move { service.resume(&id, Initiator::User).await }
    });
    soon("timeouts", service.set_timeouts(&id, Timeouts::default())).await.unwrap();
    assert!(!taking.is_finished() && !waking.is_finished());
    gate.0.open();
    assert_eq!(taking.await.unwrap().unwrap().status, SnapshotStatus::Completed);
    assert_eq!(state(&waking.await.unwrap().unwrap()), StateName::Running);
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.is_sound().await;
}

#[tokio::test]
async fn a_sandbox_runs_on_while_its_rewind_is_prepared() {
    let world = World::new().await;
    let (service, gate) = gated(&world).await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 1");
    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    gate.0.close();
    let going = tokio::spawn({
        let (service, id, to) = (service.clone(), id.clone(), snapshot.id.clone());
        async move { service.rewind(&id, &to, KeepFuture::Not).await }
    });
    gate.0.wait().await;
    assert_eq!(soon("a program", counter.ask(&service, &id)).await.unwrap(), "x 2");
    start(&service, &id, ["allocate", "5000000000"]).await;
    let relieved = async || world.events(&id).await.contains(&EventKind::OomVictimKilled);
    soon("high memory", eventually("its memory is relieved", relieved)).await;
    assert_eq!(open_kinds(&world).await, [OperationKind::Rewind]);
    assert!(world.events(&id).await.contains(&EventKind::Rewinding));
    gate.0.open();
    assert_eq!(state(&going.await.unwrap().unwrap().sandbox), StateName::Running);
    let mut back = counter.heard_until("x 1\n", 1);
    assert_eq!(back.ask(&service, &id).await.unwrap(), "x 2", "as it was when the snapshot was taken");
    world.is_sound().await;
}

#[tokio::test]
async fn a_daemon_that_dies_while_a_rewind_is_prepared_or_an_image_is_copied_has_done_nothing() {
    for rewinds in [true, false] {
        let world = World::new().await;
        let (service, gate) = gated(&world).await;
        let id = create(&service, named("web")).await;
        let mut counter = Counter::start(&service, &id, "x").await;
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 1");
        let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
        if !rewinds {
            service.suspend(&id).await.unwrap();
        }
        gate.0.close();
        let doomed = tokio::spawn({
            let (service, id, to) = (service.clone(), id.clone(), snapshot.id.clone());
            async move {
                match rewinds {
                    true => service.rewind(&id, &to, KeepFuture::Not).await.map(|_| ()),
                    false => service.checkpoint(&id, SnapshotKind::Memory).await.map(|_| ()),
                }
            }
        });
        gate.0.wait().await;
        doomed.abort();
        world.host.open();
        drop(service);
        let service = world.daemon().await;
        eventually("the operation is over", || async {
            let seen = service.describe(&id).await.unwrap();
            seen.sandbox.state.operation().is_none() && open_kinds(&world).await.is_empty()
        })
        .await;
        let seen = service.describe(&id).await.unwrap();
        assert_eq!(state(&seen), if rewinds { StateName::Running } else { StateName::Suspended });
        assert!(rewinds || seen.residence == Residence::Parked, "its parked run was kept");
        let failed = if rewinds { EventKind::RewindFailed } else { EventKind::SnapshotFailed };
        assert!(world.events(&id).await.contains(&failed));
        service.resume(&id, Initiator::User).await.unwrap();
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
        assert_eq!(world.store.snapshots(None).await.unwrap().len(), if rewinds { 1 } else { 2 });
    }
}

#[tokio::test]
async fn a_suspended_sandbox_has_its_volumes_as_soon_as_a_rewind_of_it_is_requested() {
    let world = World::new().await;
    let (service, gate) = gated(&world).await;
    let (id, _) = apart(&service).await;
    service.attach(&id, data()).await.unwrap();
    let mut counter = Counter::start(&service, &id, "x").await;
    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    service.suspend(&id).await.unwrap();
    let mut asked = named("other");
    asked.attachments = vec![data()];
    let other = create(&service, asked.clone()).await;
    let refused = service.rewind(&id, &snapshot.id, KeepFuture::Not).await.unwrap_err();
    assert_eq!((refused.code(), state(&service.describe(&id).await.unwrap())), (Code::Conflict, StateName::Suspended));
    service.terminate(&other).await.unwrap();
    gate.0.close();
    let going = tokio::spawn({
        let (service, id, to) = (service.clone(), id.clone(), snapshot.id.clone());
        async move { service.rewind(&id, &to, KeepFuture::Not).await }
    });
    gate.0.wait().await;
    assert_eq!(service.create(asked).await.unwrap_err().code(), Code::Conflict, "it is written to from then on");
    gate.0.open();
    going.await.unwrap().unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 1");
    world.is_sound().await;
}
