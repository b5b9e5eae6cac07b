//! The end of a daemon: it waits for work in progress up to its limit, and the next daemon finds
//! the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Initiator, StateName};
use dorm_service::{Code, Parts, Service};
use dorm_steps::{Steps, Stopped};
use dorm_store::SteppedStore;

use crate::world::{World, counting, eventually, state, suspending};

const LIMIT: Duration = Duration::from_secs(10);

/// A duration longer than any limit of an operation.
const FOR_EVER: Duration = Duration::from_secs(7 * 86_400);

/// Makes a store fail all commits, or hang, from a given moment on.
#[derive(Debug, Default)]
struct Locked {
    fails: AtomicBool,
    hangs: AtomicBool,
}

impl Steps for Locked {
    fn reach(&self, step: &'static str) -> Result<(), Stopped> {
        match self.fails.load(Ordering::SeqCst) {
            true => Err(Stopped { step, full: false }),
            false => Ok(()),
        }
    }

    fn alive(&self) -> bool {
        !self.hangs.load(Ordering::SeqCst)
    }
}

async fn daemon_on(world: &World, locked: &Arc<Locked>) -> Service {
    let store = SteppedStore::new(Arc::new(world.store.clone()), locked.clone());
    Service::open(Parts { store: Arc::new(store), ..world.parts() }).await.unwrap().0
}

async fn stop(service: &Service) -> Vec<String> {
    tokio::time::timeout(FOR_EVER, service.stop_within(LIMIT)).await.expect("it stops")
}

#[tokio::test(start_paused = true)]
async fn a_daemon_stops_within_its_limit_although_its_engine_hangs_and_the_next_one_finds_the_operation() {
    for (operation, moment) in [(Operation::Save, Moment::Before), (Operation::Save, Moment::After)] {
        let world = World::new().await;
        let service = world.daemon().await;
        let (id, mut counter) = counting(&service).await;
        world.host.faults().next(operation, moment, Fault::Hang);
        let caller = suspending(&service, &id);
        world.host.faults().wait_until_struck(operation, 1).await;
        let left = stop(&service).await;
        assert!(left.len() == 1 && left[0].contains(id.as_str()) && left[0].contains("suspending"), "{left:?}");
        assert_eq!(caller.await.unwrap().unwrap_err().code(), Code::Unavailable);
        drop(service);
        let service = world.daemon().await;
        eventually("it runs", || async { state(&service.describe(&id).await.unwrap()) == StateName::Running }).await;
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
        world.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_stops_within_its_limit_although_its_store_does_not_answer() {
    let world = World::new().await;
    let locked = Arc::<Locked>::default();
    let service = daemon_on(&world, &locked).await;
    let (id, mut counter) = counting(&service).await;
    locked.hangs.store(true, Ordering::SeqCst);
    let caller = suspending(&service, &id);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!stop(&service).await.is_empty());
    assert_eq!(caller.await.unwrap().unwrap_err().code(), Code::Unavailable);
    drop(service);
    let service = world.daemon().await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_recorded_does_not_keep_a_daemon_from_stopping() {
    let world = World::new().await;
    let locked = Arc::<Locked>::default();
    let service = daemon_on(&world, &locked).await;
    let (id, mut counter) = counting(&service).await;
    world.host.faults().next(Operation::Save, Moment::After, Fault::Hang);
    let caller = suspending(&service, &id);
    world.host.faults().wait_until_struck(Operation::Save, 1).await;
    locked.fails.store(true, Ordering::SeqCst);
    world.host.faults().release();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!caller.is_finished());
    assert_eq!(stop(&service).await, [""; 0], "every retry has given up");
    assert_eq!(caller.await.unwrap().unwrap_err().code(), Code::Unavailable);
    drop(service);
    let service = world.daemon().await;
    eventually("it runs", || async { state(&service.describe(&id).await.unwrap()) == StateName::Running }).await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_under_way_ends_before_the_daemon_does_and_what_waits_for_it_is_not_begun() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, mut counter) = counting(&service).await;
    world.host.faults().next(Operation::Save, Moment::After, Fault::Delay(Duration::from_secs(5)));
    let caller = suspending(&service, &id);
    world.host.faults().wait_until_struck(Operation::Save, 1).await;
    let waiting = tokio::spawn({
        let (service, id) = (service.clone(), id.clone());
        async move { service.resume(&id, Initiator::User).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(stop(&service).await, [""; 0]);
    assert_eq!(state(&caller.await.unwrap().unwrap()), StateName::Suspended);
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), Code::Unavailable);
    drop(service);
    let service = world.daemon().await;
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Suspended);
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.is_sound().await;
}
