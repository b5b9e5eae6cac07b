//! Operations that cannot be recorded, because the disk of the records is full for a while.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{EventKind, Keep, Resources, SandboxId, SnapshotKind, StateName};
use dorm_service::{Budgets, Code, CreateSpec, ForkChildSpec, ForkSpec, KeepFuture, Parts, Service};
use dorm_steps::{Steps, Stopped};
use dorm_store::{OnPartialFailure, OperationKind, SandboxFilter, SteppedStore, Store};
use futures_util::FutureExt as _;

use crate::world::{World, create, eventually, named};

/// Refuses a number of commits, counted from when `since` first holds.
struct Refusing {
    since: Box<dyn Fn() -> bool + Send + Sync>,
    left: AtomicUsize,
}

impl fmt::Debug for Refusing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusing").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Steps for Refusing {
    fn reach(&self, step: &'static str) -> Result<(), Stopped> {
        if step != "store: about to commit" || !(self.since)() {
            return Ok(());
        }
        let taken = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if taken.is_ok() { Err(Stopped { step, full: true }) } else { Ok(()) }
    }
}

/// Starts a daemon whose store refuses `times` commits, counted from when `since` first holds.
async fn daemon(
    world: &World,
    times: usize,
    since: impl Fn() -> bool + Send + Sync + 'static,
) -> (Service, Arc<Refusing>) {
    let steps = Arc::new(Refusing { since: Box::new(since), left: AtomicUsize::new(times) });
    let store = SteppedStore::new(Arc::new(world.store.clone()), steps.clone());
    let parts = Parts { store: Arc::new(store), ..world.parts() };
    (Service::open(parts).await.unwrap().0, steps)
}

/// Returns a condition: a fork is open and `count` sandboxes run.
fn all_made(world: &World, count: usize) -> impl Fn() -> bool + Send + Sync + 'static {
    let store = world.store.clone();
    move || {
        let open = store.open_operations().now_or_never().unwrap().unwrap();
        let filter = SandboxFilter { states: vec![StateName::Running], ..SandboxFilter::default() };
        let running = store.sandboxes(&filter).now_or_never().unwrap().unwrap().len();
        running == count && open.iter().any(|operation| operation.kind == OperationKind::Fork)
    }
}

fn children(count: usize, on_partial_failure: OnPartialFailure) -> ForkSpec {
    ForkSpec {
        children: vec![ForkChildSpec::default(); count],
        on_partial_failure,
        volumes: dorm_service::FollowingVolumes::Same,
    }
}

async fn living(world: &World) -> Vec<SandboxId> {
    let all = world.store.sandboxes(&SandboxFilter::default()).await.unwrap();
    let living = all.into_iter().filter(|record| record.sandbox.state.name() != StateName::Terminated);
    living.map(|record| record.sandbox.id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_fork_is_answered_when_its_end_is_on_record_however_long_that_takes() {
    for on_partial_failure in [OnPartialFailure::RollBack, OnPartialFailure::Keep] {
        let world = World::new().await;
        let (service, steps) = daemon(&world, 5, all_made(&world, 4)).await;
        let id = create(&service, named("web")).await;
        let made = service.fork(&id, children(3, on_partial_failure)).await.unwrap();
        assert!(made.iter().all(Result::is_ok));
        assert_eq!(steps.left.load(Ordering::SeqCst), 0, "every one was refused");
        let forked = world.events(&id).await.into_iter().filter(|kind| *kind == EventKind::Forked).count();
        assert_eq!(forked, 1);
        service.stop().await;
        let _service = world.daemon().await;
        eventually("the fork's snapshot is gone", || async { world.store.snapshots(None).await.unwrap().is_empty() })
            .await;
        assert_eq!(living(&world).await.len(), 4, "the next start finds no open fork");
        world.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn children_of_a_fork_that_was_given_up_are_ended_however_long_that_takes() {
    let world = World::new().await;
    let faults = world.host.faults().clone();
    let (service, steps) = daemon(&world, 9, move || faults.struck(Operation::Restore) == 1).await;
    let id = create(&service, named("web")).await;
    world.host.faults().plan(Operation::Restore, 3, Moment::Before, Fault::Fail);
    let failed = service.fork(&id, children(3, OnPartialFailure::RollBack)).await.unwrap_err();
    assert!(failed.message().contains("children could not be created, so none is kept"), "{}", failed.message());
    assert_eq!(steps.left.load(Ordering::SeqCst), 0, "every one was refused");
    assert_eq!(living(&world).await, [id]);
    eventually("the fork's snapshot is gone", || async { service.snapshots().await.unwrap().is_empty() }).await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_stopped_before_the_end_of_a_fork_is_on_record_says_what_becomes_of_the_children() {
    for (on_partial_failure, left) in [(OnPartialFailure::RollBack, 1), (OnPartialFailure::Keep, 4)] {
        let world = World::new().await;
        let (service, steps) = daemon(&world, usize::MAX, all_made(&world, 4)).await;
        let id = create(&service, named("web")).await;
        let forking = {
            let (service, id) = (service.clone(), id.clone());
            tokio::spawn(async move { service.fork(&id, children(3, on_partial_failure)).await })
        };
        eventually("it was refused twice", || async { steps.left.load(Ordering::SeqCst) < usize::MAX - 1 }).await;
        service.stop().await;
        match (forking.await.unwrap(), on_partial_failure) {
            (Ok(made), OnPartialFailure::Keep) => assert!(made.iter().all(Result::is_ok)),
            (Err(error), OnPartialFailure::RollBack) => {
                assert_eq!(error.code(), Code::Unavailable);
                assert!(error.message().contains("the next start terminates the children"), "{}", error.message());
            }
            (answer, _) => panic!("{on_partial_failure:?}: {answer:?}"),
        }
        let service = world.daemon().await;
        eventually("the fork is closed", || async { world.store.open_operations().await.unwrap().is_empty() }).await;
        eventually("as was said", || async { living(&world).await.len() == left }).await;
        eventually("the fork's snapshot is gone", || async { service.snapshots().await.unwrap().is_empty() }).await;
        world.is_sound().await;
    }
}

#[tokio::test]
async fn a_rewind_that_cannot_keep_the_files_that_it_leaves_takes_no_room() {
    let mut world = World::new().await;
    world.settings.budgets = Budgets { memory_bytes: Some(1000 << 20), ..Budgets::default() };
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = armed.clone();
    let (service, refusing) = daemon(&world, 1, move || is_armed.load(Ordering::SeqCst)).await;
    let resources = Some(Resources { memory_bytes: 600 << 20, ..Resources::default() });
    let sized = |name| CreateSpec { resources, ..named(name) };
    let id = create(&service, sized("web")).await;
    let first = service.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap();
    service.suspend_with(&id, Keep::Files).await.unwrap();
    armed.store(true, Ordering::SeqCst);
    service.rewind(&id, &first.id, KeepFuture::UntilDeleted).await.unwrap_err();
    assert_eq!(refusing.left.load(Ordering::SeqCst), 0);
    let other = create(&service, sized("other")).await;
    service.terminate(&other).await.unwrap();
    service.rewind(&id, &first.id, KeepFuture::UntilDeleted).await.unwrap();
    world.is_sound().await;
}
