//! Every fault of an engine, at each of its calls: the sandbox is in its previous state or in the
//! requested one, and nothing is left over.

use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{EventKind, Initiator, Limits, SnapshotKind, StateName};
use dorm_service::{Code, Residence};

use crate::world::{Counter, World, create, eventually, named, state};

const MOMENTS: [Moment; 2] = [Moment::Before, Moment::After];

fn kind_of(fault: Fault) -> Code {
    if fault == Fault::NoRoom { Code::NoRoom } else { Code::Failed }
}

#[tokio::test]
async fn a_suspend_that_fails_anywhere_leaves_the_guest_running_with_its_memory() {
    for operation in [Operation::Usage, Operation::Save] {
        for moment in MOMENTS {
            for fault in [Fault::Fail, Fault::NoRoom] {
                let world = World::new().await;
                let service = world.daemon().await;
                let id = create(&service, named("web")).await;
                let mut counter = Counter::start(&service, &id, "x").await;
                counter.ask(&service, &id).await.unwrap();
                world.host.faults().next(operation, moment, fault);
                let failed = service.suspend(&id).await.unwrap_err();
                assert_eq!(failed.code(), kind_of(fault), "{failed}");
                assert_eq!(world.host.faults().struck(operation), 1);
                assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
                assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2", "{operation:?} {moment:?} {fault:?}");
                assert!(world.events(&id).await.contains(&EventKind::SuspendFailed));
                world.is_sound().await;
                service.suspend(&id).await.unwrap();
                service.resume(&id, Initiator::User).await.unwrap();
                assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 3");
            }
        }
    }
}

#[tokio::test]
async fn a_run_that_cannot_be_parked_is_only_on_disk() {
    for moment in MOMENTS {
        let world = World::new().await;
        let service = world.daemon().await;
        let id = create(&service, named("web")).await;
        let mut counter = Counter::start(&service, &id, "x").await;
        counter.ask(&service, &id).await.unwrap();
        world.host.faults().next(Operation::Park, moment, Fault::Fail);
        let asleep = service.suspend(&id).await.unwrap();
        assert_eq!((state(&asleep), asleep.residence), (StateName::Suspended, Residence::Evicted));
        service.resume(&id, Initiator::User).await.unwrap();
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
        world.is_sound().await;
    }
}

#[tokio::test]
async fn a_thaw_that_fails_falls_back_to_the_image() {
    for moment in MOMENTS {
        let world = World::new().await;
        let service = world.daemon().await;
        let id = create(&service, named("web")).await;
        let mut counter = Counter::start(&service, &id, "x").await;
        counter.ask(&service, &id).await.unwrap();
        service.suspend(&id).await.unwrap();
        world.host.faults().next(Operation::Resume, moment, Fault::Fail);
        service.resume(&id, Initiator::User).await.unwrap();
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
        world.is_sound().await;
    }
}

#[tokio::test]
async fn a_restore_that_fails_leaves_the_sandbox_suspended_and_can_be_tried_again() {
    for moment in MOMENTS {
        let world = World::new().await;
        let service = world.daemon().await;
        let id = create(&service, named("web")).await;
        let mut counter = Counter::start(&service, &id, "x").await;
        counter.ask(&service, &id).await.unwrap();
        service.suspend(&id).await.unwrap();
        service.evict(&id).await.unwrap();
        world.host.faults().next(Operation::Restore, moment, Fault::Fail);
        let failed = service.resume(&id, Initiator::User).await.unwrap_err();
        assert_eq!(failed.code(), Code::Failed);
        assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Suspended);
        world.is_sound().await;
        service.resume(&id, Initiator::User).await.unwrap();
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
        world.is_sound().await;
    }
}

#[tokio::test]
async fn a_start_that_fails_leaves_a_record_with_its_reason_and_nothing_else() {
    for moment in MOMENTS {
        let world = World::new().await;
        let service = world.daemon().await;
        world.host.faults().next(Operation::Start, moment, Fault::Fail);
        let failed = service.create(named("web")).await.unwrap_err();
        assert_eq!(failed.code(), Code::Failed);
        assert!(world.host.runs().is_empty());
        world.is_sound().await;
        create(&service, named("web")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_hangs_is_given_up_at_its_limit() {
    let short = Duration::from_secs(20);
    let bytes_per_second = u64::MAX;
    let limits = Limits {
        start: short,
        ready: short,
        suspend: short,
        resume: short,
        snapshot: short,
        attach: short,
        egress: short,
        terminate: short,
        bytes_per_second,
    };
    for operation in [Operation::Save, Operation::Restore, Operation::Start] {
        let world = World::new().await.limits(limits);
        let service = world.daemon().await;
        let plan = world.host.faults();
        if operation == Operation::Start {
            plan.next(operation, Moment::Before, Fault::Hang);
            let failed = service.create(named("web")).await.unwrap_err().message();
            assert!(failed.contains("longer than its limit"), "{failed}");
            world.is_sound().await;
            continue;
        }
        let id = create(&service, named("web")).await;
        let failed = if operation == Operation::Save {
            plan.next(operation, Moment::Before, Fault::Hang);
            service.suspend(&id).await.unwrap_err().message()
        } else {
            service.suspend(&id).await.unwrap();
            service.evict(&id).await.unwrap();
            plan.next(operation, Moment::Before, Fault::Hang);
            service.resume(&id, Initiator::User).await.unwrap_err().message()
        };
        assert!(failed.contains("longer than its limit"), "{failed}");
        world.is_sound().await;
    }
}

#[tokio::test]
async fn a_short_write_is_not_taken_for_a_sleep() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    world.host.faults().next(Operation::Save, Moment::After, Fault::WriteShort);
    let failed = service.suspend(&id).await.unwrap_err().message();
    assert!(failed.contains("were written to it; nothing was discarded"), "{failed}");
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 1", "it continues where it was");
    world.is_sound().await;
    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
}

#[tokio::test]
async fn a_short_write_is_no_snapshot() {
    for kind in [SnapshotKind::Memory, SnapshotKind::Filesystem] {
        let world = World::new().await;
        let service = world.daemon().await;
        let id = create(&service, named("web")).await;
        world.host.faults().next(Operation::Save, Moment::After, Fault::WriteShort);
        let failed = service.checkpoint(&id, kind).await.unwrap_err().message();
        assert!(failed.contains("were written to it"), "{failed}");
        assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
        let snapshots = service.snapshots().await.unwrap();
        assert!(matches!(snapshots[0].status, dorm_store::SnapshotStatus::Failed(_)));
        world.is_sound().await;
    }
}

#[tokio::test]
async fn a_lost_run_falls_back_to_its_image_or_ends_with_its_cause() {
    let world = World::new().await;
    let service = world.daemon().await;
    let with_image = create(&service, named("with")).await;
    let mut counter = Counter::start(&service, &with_image, "x").await;
    counter.ask(&service, &with_image).await.unwrap();
    service.suspend(&with_image).await.unwrap();
    let awake = service.resume(&with_image, Initiator::User).await.unwrap();
    let mut lost = counter;
    assert_eq!(lost.ask(&service, &with_image).await.unwrap(), "x 2");
    assert!(world.host.kill(&awake.sandbox.run_id(), "killed by a test"));
    eventually("it is back at its image", || async {
        state(&service.describe(&with_image).await.unwrap()) == StateName::Suspended
    })
    .await;
    service.resume(&with_image, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &with_image).await.unwrap(), "x 2");

    let without = service.create(named("without")).await.unwrap();
    assert!(world.host.kill(&without.sandbox.run_id(), "killed by a test"));
    let id = without.sandbox.id;
    eventually("it is over", || async { state(&service.describe(&id).await.unwrap()) == StateName::Terminated }).await;
    assert!(world.events(&id).await.contains(&EventKind::RunLost));
    world.is_sound().await;
}

#[tokio::test]
async fn a_snapshot_that_fails_leaves_the_source_running_and_says_why() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::After, Fault::NoRoom);
    service.checkpoint(&id, SnapshotKind::Memory).await.unwrap_err();
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    let snapshots = service.snapshots().await.unwrap();
    assert!(matches!(snapshots[0].status, dorm_store::SnapshotStatus::Failed(_)));
    world.is_sound().await;
}

#[tokio::test]
async fn a_terminate_that_fails_is_tried_again_until_it_is_done() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    world.host.faults().next(Operation::Stop, Moment::Before, Fault::Fail);
    assert_eq!(state(&service.terminate(&id).await.unwrap()), StateName::Terminated);
    assert!(world.host.runs().is_empty());
    world.is_sound().await;
}
