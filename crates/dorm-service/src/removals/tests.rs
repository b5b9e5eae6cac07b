use std::path::Path;
use std::sync::Arc;

use dorm_engine_fake::FakeHost;
use dorm_lifecycle::{Keep, SandboxId};
use dorm_ports::TokioClock;
use dorm_storage::Storage;
use dorm_store::memory::MemoryStore;
use futures_util::StreamExt as _;

use super::*;
use crate::{CreateFrom, CreateSpec, Limiting, Parts, Settings, Volumes};

/// Returns a service with a sandbox that is based on files which are deleted as soon as nothing
/// needs them.
async fn suspended_with_files(directory: &Path) -> (Service, SandboxId) {
    let (source, data) = (directory.join("source"), directory.join("data"));
    std::fs::create_dir_all(source.join("etc")).unwrap();
    let storage = Storage::open(&data, &directory.join("images")).unwrap();
    storage.import(&source, Some("base"), |_| {}).await.unwrap();
    let parts = Parts {
        store: Arc::new(MemoryStore::new()),
        engine: FakeHost::new().open(),
        storage,
        volumes: Volumes::new(data.join("volumes"), Limiting::Never),
        clock: Arc::new(TokioClock::starting_at(Timestamp::from_millis(1_000_000_000))),
        settings: Settings::default(),
    };
    let (service, _) = Service::open(parts).await.unwrap();
    let asked = CreateSpec { suspendable: Some(true), ..CreateSpec::new(CreateFrom::Image("base".to_owned())) };
    let id = service.create(asked).await.unwrap().sandbox.id;
    service.suspend_with(&id, Keep::Files).await.unwrap();
    (service, id)
}

#[tokio::test]
#[allow(clippy::disallowed_methods)]
async fn snapshots_in_use_are_passed_over_without_a_lock() {
    let directory = tempfile::tempdir().unwrap();
    let (service, id) = suspended_with_files(directory.path()).await;
    let shared = &service.shared;
    assert_eq!(shared.removals.due().len(), 1);
    // A writer that waits would keep later readers waiting.
    let reading = shared.holding.clone().read_owned().await;
    for _ in 0..20 {
        shared.removals.poke();
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(shared.holding.try_read().is_ok() && shared.deletions.try_lock().is_ok());
    }
    drop(reading);
    service.terminate(&id).await.unwrap();
    for _ in 0..1000 {
        if service.snapshots().await.unwrap().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the files are not deleted");
}

#[tokio::test]
async fn a_create_that_waits_keeps_its_own_snapshot_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let (service, _) = suspended_with_files(directory.path()).await;
    let asked = CreateSpec { suspendable: Some(true), ..CreateSpec::new(CreateFrom::Image("base".to_owned())) };
    let id = service.create(asked).await.unwrap().sandbox.id;
    let kind = dorm_lifecycle::SnapshotKind::Filesystem;
    let [used, other] = [service.checkpoint(&id, kind).await.unwrap(), service.checkpoint(&id, kind).await.unwrap()];
    let turn = service.shared.ledger.turn.lock().await;
    let creating = tokio::spawn({
        let (service, used) = (service.clone(), used.id.clone());
        async move { service.create(CreateSpec::new(CreateFrom::Snapshot(used))).await }
    });
    while !service.shared.removals.is_used(&used.id) {
        tokio::task::yield_now().await;
    }
    service.delete_snapshot(&other.id).await.unwrap();
    let refused = service.delete_snapshot(&used.id).await.unwrap_err();
    assert_eq!(refused.code(), crate::Code::Conflict, "{}", refused.message());
    drop(turn);
    creating.await.unwrap().unwrap();
}

#[tokio::test]
#[allow(clippy::disallowed_methods)]
async fn an_import_that_waits_for_a_deletion_holds_no_reference() {
    let directory = tempfile::tempdir().unwrap();
    let (service, id) = suspended_with_files(directory.path()).await;
    let shared = &service.shared;
    let snapshot = service.checkpoint(&id, dorm_lifecycle::SnapshotKind::Filesystem).await.unwrap();
    let exported: Vec<_> = service.export_snapshot(&snapshot.id).await.unwrap().content.collect().await;
    let deleting = shared.holding.write().await;
    let importing = tokio::spawn({
        let (service, from) = (service.clone(), futures_util::stream::iter(exported));
        async move { service.import_snapshot(from, crate::ImportSpec::default()).await }
    });
    while shared.store.open_operations().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A writer that waits for references keeps later readers waiting: every create and resume.
    for _ in 0..100 {
        let alone = tokio::time::timeout(Duration::from_secs(10), shared.references.alone()).await;
        assert!(alone.is_ok(), "the import keeps references while it waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(deleting);
    importing.await.unwrap().unwrap();
}
