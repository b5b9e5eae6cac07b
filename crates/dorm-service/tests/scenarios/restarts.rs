//! Daemons that stop, and daemons that die in the middle of an operation.

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Initiator, SnapshotKind, StateName};
use dorm_service::{ParkLimits, Residence, Service};

use crate::world::{Counter, World, create, eventually, named, state};

/// Kills the daemon: none of its tasks continues, and it cleans up nothing.
async fn kill(service: Service, world: &World) {
    world.host.open();
    drop(service);
}

#[tokio::test]
async fn what_was_running_is_running_and_what_was_suspended_is_there() {
    let world = World::new().await;
    let service = world.daemon().await;
    let running = create(&service, named("running")).await;
    let parked = create(&service, named("parked")).await;
    let evicted = create(&service, named("evicted")).await;
    let mut counters = Vec::new();
    for id in [&running, &parked, &evicted] {
        let mut counter = Counter::start(&service, id, "x").await;
        assert_eq!(counter.ask(&service, id).await.unwrap(), "x 1");
        counters.push(counter);
    }
    service.suspend(&parked).await.unwrap();
    service.suspend(&evicted).await.unwrap();
    service.evict(&evicted).await.unwrap();
    service.stop().await;
    let (service, report) = world.daemon_and_report().await;
    assert_eq!((report.sandboxes, report.runs, report.lines.len()), (3, 2, 0), "{:?}", report.lines);
    assert_eq!(state(&service.describe(&running).await.unwrap()), StateName::Running);
    assert_eq!(service.describe(&parked).await.unwrap().residence, Residence::Parked);
    assert_eq!(service.describe(&evicted).await.unwrap().residence, Residence::Evicted);
    for (id, counter) in [&running, &parked, &evicted].into_iter().zip(&mut counters) {
        service.resume(id, Initiator::User).await.unwrap();
        assert_eq!(counter.ask(&service, id).await.unwrap(), "x 2");
    }
    world.is_sound().await;
}

#[tokio::test]
async fn the_limits_of_parking_hold_for_what_an_earlier_daemon_has_parked() {
    let mut world = World::new().await;
    let mut service = world.daemon().await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(create(&service, named(name)).await);
        service.suspend(&ids[ids.len() - 1]).await.unwrap();
    }
    assert_eq!(world.host.runs().len(), 3);
    for count in [1, 0] {
        service.stop().await;
        world.settings.park = ParkLimits { memory_bytes: u64::MAX, count };
        service = world.daemon().await;
        eventually("the surplus is evicted", || async { world.host.runs().len() == count }).await;
        let mut parked = 0;
        for id in &ids {
            let view = service.describe(id).await.unwrap();
            assert_eq!(state(&view), StateName::Suspended);
            parked += usize::from(view.residence == Residence::Parked);
        }
        assert_eq!(parked, count);
        world.is_sound().await;
    }
}

#[tokio::test]
async fn a_host_that_was_restarted_brings_back_what_has_an_image() {
    let world = World::new().await;
    let service = world.daemon().await;
    let with_image = create(&service, named("with")).await;
    let mut counter = Counter::start(&service, &with_image, "x").await;
    counter.ask(&service, &with_image).await.unwrap();
    service.suspend(&with_image).await.unwrap();
    service.resume(&with_image, Initiator::User).await.unwrap();
    let without = create(&service, named("without")).await;
    service.stop().await;
    world.host.reboot();
    let service = world.daemon().await;
    eventually("both are settled", || async {
        state(&service.describe(&with_image).await.unwrap()) == StateName::Suspended
            && state(&service.describe(&without).await.unwrap()) == StateName::Terminated
    })
    .await;
    service.resume(&with_image, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &with_image).await.unwrap(), "x 2");
    world.is_sound().await;
}

/// Each call of the engine during each operation hangs before or after its effect; the daemon dies
/// there, and another one starts.
#[tokio::test]
async fn a_daemon_that_dies_in_the_middle_of_anything_loses_nothing() {
    for (operation, call) in [
        ("suspend", Operation::Save),
        ("suspend", Operation::Park),
        ("resume parked", Operation::Resume),
        ("resume evicted", Operation::Restore),
        ("snapshot", Operation::Save),
        ("snapshot", Operation::Resume),
        ("terminate", Operation::Stop),
    ] {
        for moment in [Moment::Before, Moment::After] {
            dies_during(operation, call, moment).await;
        }
    }
}

async fn dies_during(operation: &str, call: Operation, moment: Moment) {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 1");
    if operation.starts_with("resume") {
        service.suspend(&id).await.unwrap();
    }
    if operation == "resume evicted" {
        service.evict(&id).await.unwrap();
    }
    world.host.faults().next(call, moment, Fault::Hang);
    let hanging = {
        let (service, id, operation) = (service.clone(), id.clone(), operation.to_owned());
        tokio::spawn(async move {
            match operation.as_str() {
                "suspend" => drop(service.suspend(&id).await),
                "snapshot" => drop(service.checkpoint(&id, SnapshotKind::Memory).await),
                "terminate" => drop(service.terminate(&id).await),
                _ => drop(service.resume(&id, Initiator::User).await),
            }
        })
    };
    eventually("it hangs", || async { world.host.faults().struck(call) == 1 }).await;
    hanging.abort();
    kill(service, &world).await;
    let told = format!("{operation}, {call:?}, {moment:?}");
    let service = world.daemon().await;
    let expected: &[StateName] = match operation {
        "terminate" => &[StateName::Terminated],
        // The suspend is recorded by then: a parked run is only a cache of the image.
        "suspend" if call == Operation::Park => &[StateName::Suspended],
        _ => &[StateName::Running],
    };
    eventually(&told, || async { expected.contains(&state(&service.describe(&id).await.unwrap())) }).await;
    world.is_sound().await;
    if operation != "terminate" {
        service.resume(&id, Initiator::User).await.unwrap();
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2", "{told}");
        service.suspend(&id).await.unwrap();
        service.resume(&id, Initiator::User).await.unwrap();
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 3", "{told}");
        world.is_sound().await;
    }
}
