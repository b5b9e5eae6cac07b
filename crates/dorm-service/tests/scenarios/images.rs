//! Images made from the files of sandboxes: an image gets its tag only after a sandbox of it was
//! suspended and resumed.

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{SnapshotId, SnapshotKind};
use dorm_service::{Code, Composition, CreateFrom, Service, ServiceError};
use dorm_storage::{Image, ImageConfig};
use dorm_store::{SandboxFilter, Store as _};

use crate::world::{World, create, named};

async fn snapshot(service: &Service, kind: SnapshotKind) -> SnapshotId {
    let id = create(service, named("source")).await;
    let snapshot = service.checkpoint(&id, kind).await.unwrap().id;
    service.terminate(&id).await.unwrap();
    snapshot
}

async fn compose(service: &Service, from: &SnapshotId) -> Result<Image, ServiceError> {
    let from = CreateFrom::Snapshot(from.clone());
    let (tag, build) = (Some("made".to_owned()), Some("key".to_owned()));
    service.compose_image(Composition { from, config: ImageConfig::default(), tag, build }, |_| {}).await
}

/// Returns the number of sandboxes in which an image was tried.
async fn trials(world: &World) -> usize {
    let all = world.store.sandboxes(&SandboxFilter::default()).await.unwrap();
    all.iter().filter(|record| record.sandbox.spec.labels.contains_key("dorm.trial")).count()
}

#[tokio::test]
async fn an_image_that_a_dead_daemon_has_not_tried_is_tried_before_it_is_named() {
    let world = World::new().await;
    let service = world.daemon().await;
    let from = snapshot(&service, SnapshotKind::Filesystem).await;
    // The image that a daemon leaves if it dies before or during the trial.
    let record = service.snapshot(&from).await.unwrap();
    let left = world
        .storage()
        .compose_image(&record.image, Some(&record.saved_state), ImageConfig::default(), Some("key".to_owned()), |_| {})
        .await
        .unwrap();
    let image = compose(&service, &from).await.unwrap();
    assert_eq!((&image.digest, trials(&world).await), (&left.digest, 1));
    assert_eq!(image.tags, ["made"]);
    compose(&service, &from).await.unwrap();
    assert_eq!(trials(&world).await, 1, "once it has a name it has been tried");
    world.is_sound().await;
}

#[tokio::test]
async fn an_image_whose_sandbox_cannot_sleep_or_wake_is_gone_again() {
    for operation in [Operation::Save, Operation::Restore] {
        let world = World::new().await;
        let service = world.daemon().await;
        let from = snapshot(&service, SnapshotKind::Filesystem).await;
        world.host.faults().always(operation, Moment::Before, Fault::Fail);
        let error = compose(&service, &from).await.unwrap_err();
        assert!(matches!(error, ServiceError::TrialFailed { .. }), "{error}");
        assert_eq!(world.storage().images().await.unwrap().len(), 1, "{operation:?}: only base is there");
        world.host.faults().clear();
        assert_eq!(compose(&service, &from).await.unwrap().tags, ["made"]);
        world.is_sound().await;
    }
}

#[tokio::test]
async fn memory_is_no_image() {
    let world = World::new().await;
    let service = world.daemon().await;
    let from = snapshot(&service, SnapshotKind::Memory).await;
    assert_eq!(compose(&service, &from).await.unwrap_err().code(), Code::Conflict);
}
