//! Snapshots and clones.

use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Initiator, SnapshotKind, StateName};
use dorm_service::{CheckpointSpec, Code, CreateFrom, CreateSpec, Residence};
use dorm_store::SnapshotStatus;

use crate::world::{Counter, World, create, eventually, named, state};

#[tokio::test]
async fn a_snapshot_outlives_its_source_and_its_children_diverge() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 1");
    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    assert_eq!(snapshot.status, SnapshotStatus::Completed);
    assert!(snapshot.bytes > 0);
    let mut in_source = counter;
    assert_eq!(in_source.ask(&service, &id).await.unwrap(), "x 2", "the source continues");
    service.terminate(&id).await.unwrap();
    for name in ["left", "right"] {
        let asked = CreateSpec {
            name: Some(name.parse().unwrap()),
            ..CreateSpec::new(CreateFrom::Snapshot(snapshot.id.clone()))
        };
        let child = create(&service, asked).await;
        let mut of_child = counter;
        assert_eq!(of_child.ask(&service, &child).await.unwrap(), "x 2", "{name} begins where the snapshot was");
        assert_eq!(of_child.ask(&service, &child).await.unwrap(), "x 3");
    }
    world.is_sound().await;
    service.delete_snapshot(&snapshot.id).await.unwrap();
    assert_eq!(service.snapshot(&snapshot.id).await.unwrap_err().code(), Code::NotFound);
    world.is_sound().await;
}

#[tokio::test]
async fn a_snapshot_whose_caller_has_gone_is_deleted_at_its_time() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Hang);
    let expires = Some(Duration::from_secs(3600));
    let spec = CheckpointSpec { kind: SnapshotKind::Memory, expires, ..CheckpointSpec::default() };
    let (own, source) = (service.clone(), id.clone());
    let taking = tokio::spawn(async move { own.checkpoint_as(&source, spec).await });
    world.host.faults().wait_until_struck(Operation::Save, 1).await;
    taking.abort();
    let _ = taking.await;
    world.host.faults().release();
    let statuses = || async {
        let all = service.snapshots().await.unwrap().into_iter();
        all.map(|snapshot| snapshot.status).collect::<Vec<_>>()
    };
    eventually("it is taken", || async { statuses().await == [SnapshotStatus::Completed] }).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3601)).await;
    tokio::time::resume();
    eventually("it is deleted", || async { statuses().await.is_empty() }).await;
    world.is_sound().await;
}

#[tokio::test]
async fn a_suspended_source_does_not_wake() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    counter.ask(&service, &id).await.unwrap();
    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    let clone = service.clone_sandbox(&id, Some("copy".parse().unwrap())).await.unwrap();
    let source = service.describe(&id).await.unwrap();
    assert_eq!((state(&source), source.residence), (StateName::Suspended, Residence::Evicted));
    let mut of_clone = counter;
    assert_eq!(of_clone.ask(&service, &clone.clone.sandbox.id).await.unwrap(), "x 2");
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.is_sound().await;
}

#[tokio::test]
async fn what_a_snapshot_fixes_cannot_be_asked_for() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    let mut asked = CreateSpec::new(CreateFrom::Snapshot(snapshot.id.clone()));
    asked.resources = Some(dorm_lifecycle::Resources { memory_bytes: 1 << 30, ..Default::default() });
    assert_eq!(service.create(asked).await.unwrap_err().code(), Code::Conflict);
    let unknown = CreateSpec::new(CreateFrom::Snapshot("aaaaaaaaaaaaaaaaaaaa".parse().unwrap()));
    assert_eq!(service.create(unknown).await.unwrap_err().code(), Code::NotFound);
    let taken = service.clone_sandbox(&id, Some("web".parse().unwrap())).await.unwrap_err();
    assert_eq!(taken.code(), Code::Conflict);
    assert_eq!(service.snapshots().await.unwrap().len(), 1, "a refused clone leaves no snapshot");
}

#[tokio::test]
async fn a_damaged_snapshot_is_refused_before_any_guest_code_runs() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    let saved_state = world.storage().saved_state(&snapshot.saved_state).await.unwrap();
    let file = saved_state.directory.join(&saved_state.files[0].name);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let restores = world.host.faults().calls(dorm_engine_fake::Operation::Restore);
    let asked = CreateSpec::new(CreateFrom::Snapshot(snapshot.id.clone()));
    let refused = service.create(asked).await.unwrap_err().message();
    assert!(refused.contains("damaged"), "{refused}");
    assert_eq!(world.host.faults().calls(dorm_engine_fake::Operation::Restore), restores);
    world.is_sound().await;
}

#[tokio::test]
async fn an_image_in_use_is_not_removed() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let image = service.storage().resolve("base").await.unwrap().digest;
    let refused = service.remove_image(&image).await.unwrap_err().message();
    assert!(refused.contains(id.as_str()), "{refused}");
    service.terminate(&id).await.unwrap();
    service.remove_image(&image).await.unwrap();
}
