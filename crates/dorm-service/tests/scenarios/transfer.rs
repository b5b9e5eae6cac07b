//! Snapshots as files: their import on another host, and the traces of refused files.

use bytes::Bytes;
use dorm_lifecycle::{Egress, Initiator, SandboxId, SnapshotId, SnapshotKind};
use dorm_service::{
    CheckpointSpec, Code, CreateFrom, CreateSpec, ImportSpec, Parts, RecoveryReport, Service, ServiceError, Use,
};
use dorm_store::{Maker, Removal, SnapshotRecord};
use futures_util::{StreamExt as _, stream};

use crate::world::{World, create, named, read, write};

async fn exported(service: &Service, id: &SnapshotId) -> Vec<u8> {
    let file = service.export_snapshot(id).await.unwrap();
    let mut content = std::pin::pin!(file.content);
    let mut bytes = Vec::new();
    while let Some(piece) = content.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(bytes.len() as u64, file.bytes);
    bytes
}

async fn import(service: &Service, file: &[u8]) -> Result<SnapshotRecord, ServiceError> {
    let pieces: Vec<_> = file.chunks(1000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    service.import_snapshot(stream::iter(pieces), ImportSpec::default()).await
}

fn from(snapshot: &SnapshotRecord) -> CreateSpec {
    CreateSpec::new(CreateFrom::Snapshot(snapshot.id.clone()))
}

async fn note(service: &Service, id: &SandboxId, text: &'static str) {
    let (agent, _in_use) = service.agent(id, Use::Files).await.unwrap();
    write(&agent, "/root/note", text).await;
}

async fn noted(service: &Service, id: &SandboxId) -> String {
    let (agent, _in_use) = service.agent(id, Use::Files).await.unwrap();
    read(&agent, "/root/note").await
}

/// Returns the file of a memory snapshot that is based on a filesystem snapshot.
async fn file() -> Vec<u8> {
    let world = World::new().await;
    let service = world.daemon().await;
    let first = create(&service, named("first")).await;
    note(&service, &first, "below").await;
    let files = service.checkpoint(&first, SnapshotKind::Filesystem).await.unwrap();
    let second = create(&service, from(&files)).await;
    assert_eq!(noted(&service, &second).await, "below");
    let memory = service.checkpoint(&second, SnapshotKind::Memory).await.unwrap();
    exported(&service, &memory.id).await
}

#[tokio::test]
async fn memory_of_another_build_is_taken_in_refused_by_name_and_its_files_can_be_used() {
    let file = file().await;
    let world = World::new().await;
    let parts = world.parts();
    let engine = world.host.open_as("fake-2");
    let (service, _): (Service, RecoveryReport) = Service::open(Parts { engine, ..parts }).await.unwrap();
    let memory = import(&service, &file).await.unwrap();
    assert_eq!((memory.kind, memory.made_by), (SnapshotKind::Memory, Maker::Import));
    let refused = service.create(from(&memory)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    assert!(refused.message().contains("'fake-1', this host has 'fake-2'"), "{}", refused.message());
    assert!(refused.next_step().contains("files"), "{}", refused.next_step());
    let begun = dorm_store::Store::sandboxes(&world.store, &dorm_store::SandboxFilter::default()).await.unwrap();
    assert!(begun.is_empty(), "{begun:?}");
    let files = service.snapshot_of_files(&memory.id).await.unwrap();
    let child = create(&service, from(&files)).await;
    assert_eq!(noted(&service, &child).await, "below");
    world.is_sound().await;
}

#[tokio::test]
async fn the_layer_of_imported_memory_goes_with_the_last_that_stands_on_it() {
    let file = file().await;
    let world = World::new().await;
    let service = world.daemon().await;
    let memory = import(&service, &file).await.unwrap();
    let all = service.snapshots().await.unwrap();
    let layer = all.iter().find(|snapshot| snapshot.id != memory.id).unwrap();
    assert_eq!((layer.removal, Some(&layer.saved_state)), (Removal::WhenFree, memory.layer.as_ref()));
    assert!(service.create(from(layer)).await.is_err(), "nothing new begins with what goes");
    let child = create(&service, from(&memory)).await;
    assert_eq!(noted(&service, &child).await, "below");
    service.delete_snapshot(&memory.id).await.unwrap();
    assert_eq!(service.snapshots().await.unwrap().len(), 1, "somebody stands on it");
    service.terminate(&child).await.unwrap();
    crate::world::eventually("it is gone", || async { service.snapshots().await.unwrap().is_empty() }).await;
    world.is_sound().await;
}

#[tokio::test]
async fn a_snapshot_without_its_image_is_refused_by_digest_and_tag() {
    let file = file().await;
    let world = World::new().await;
    let service = world.daemon().await;
    let image = service.storage().resolve("base").await.unwrap();
    service.remove_image(&image.digest).await.unwrap();
    let refused = import(&service, &file).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    assert!(
        refused.message().contains(&format!("image {} (tagged base at its source)", image.digest)),
        "{}",
        refused.message()
    );
    assert!(service.snapshots().await.unwrap().is_empty());
    world.is_sound().await;
}

#[tokio::test]
async fn what_breaks_off_on_its_way_leaves_nothing_and_the_next_start_finds_nothing() {
    let file = file().await;
    let world = World::new().await;
    let service = world.daemon().await;
    for part in 0..20 {
        let length = file.len() * part / 20;
        assert_eq!(import(&service, &file[..length]).await.unwrap_err().code(), Code::InvalidArgument);
        let broken = stream::iter([
            Ok(Bytes::copy_from_slice(&file[..length])),
            Err(std::io::Error::other("the connection broke")),
        ]);
        let refused = service.import_snapshot(broken, ImportSpec::default()).await.unwrap_err();
        assert!(refused.message().contains("the connection broke"), "{}", refused.message());
    }
    // The sender goes away in the middle of the transfer.
    let half: Vec<_> = vec![Ok(Bytes::copy_from_slice(&file[..file.len() / 2]))];
    let never = stream::iter(half).chain(stream::pending());
    let sending = service.clone();
    let sender = tokio::spawn(async move { sending.import_snapshot(never, ImportSpec::default()).await });
    crate::world::eventually("it is being written", || async {
        !dorm_store::Store::open_operations(&world.store).await.unwrap().is_empty()
    })
    .await;
    sender.abort();
    crate::world::eventually("it is cleared away", || async {
        dorm_store::Store::open_operations(&world.store).await.unwrap().is_empty()
    })
    .await;
    assert!(service.snapshots().await.unwrap().is_empty());
    world.is_sound().await;
}

#[tokio::test]
async fn a_restart_of_a_sandbox_never_begins_with_what_was_imported() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    note(&service, &id, "own").await;
    let own = service.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap();
    let taken = import(&service, &exported(&service, &own.id).await).await.unwrap();
    assert_eq!((&taken.source, taken.made_by), (&id, Maker::Import));
    service.terminate(&id).await.unwrap();
    let anew = service.restart(&id, None).await.unwrap();
    assert_eq!(anew.snapshot, own.id);
    assert_eq!(noted(&service, &anew.sandbox.sandbox.id).await, "own");
    service.suspend(&anew.sandbox.sandbox.id).await.unwrap();
    service.resume(&anew.sandbox.sandbox.id, Initiator::User).await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn a_file_carries_neither_the_name_nor_the_settings_of_its_source() {
    let elsewhere = World::new().await;
    let service = elsewhere.daemon().await;
    let asked = CreateSpec { egress: Some(Egress::Allow(vec!["10.0.0.0/8".to_owned()])), ..named("open") };
    let id = create(&service, asked).await;
    let settings = CheckpointSpec { name: Some("my-snap".parse().unwrap()), ..CheckpointSpec::default() };
    let snapshot = service.checkpoint_as(&id, settings).await.unwrap();
    let file = exported(&service, &snapshot.id).await;
    let world = World::new().await;
    let service = world.daemon().await;
    let imported = import(&service, &file).await.unwrap();
    assert_eq!((&imported.name, &imported.inherited), (&None, &None));
    let sandbox = service.create(from(&imported)).await.unwrap().sandbox;
    assert_eq!(sandbox.spec.egress, Egress::Public, "the default of this host, not what the file opens");
}
