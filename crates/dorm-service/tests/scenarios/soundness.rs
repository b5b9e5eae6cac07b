//! Bytes that change on the disk after they were written: the damage is found, reported by name and
//! not served, and nothing else is affected.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dorm_lifecycle::{EventKind, Initiator, SandboxId, SnapshotKind, StateName};
use dorm_service::{Code, CreateFrom, CreateSpec, Service, ServiceError};
use dorm_storage::Stored;
use dorm_store::{SnapshotStatus, Store as _};

use crate::world::{Counter, World, create, eventually, named, state};

/// Flips one bit in the middle of a file.
fn flip(path: &Path) {
    let mut content = fs::read(path).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(path, content).unwrap();
}

async fn base_file(world: &World) -> PathBuf {
    world.storage().resolve("base").await.unwrap().rootfs.join("etc/hello")
}

fn names(error: &ServiceError, file: &str) {
    assert_eq!(error.code(), Code::Damaged, "{error:?}");
    assert!(error.message().contains(file), "{}", error.message());
}

async fn other_image(world: &World) {
    let source = world.directory.path().join("other");
    fs::create_dir_all(source.join("etc")).unwrap();
    fs::write(source.join("etc/other"), "other").unwrap();
    world.storage().import(&source, Some("other"), |_| {}).await.unwrap();
}

fn from(image: &str) -> CreateSpec {
    CreateSpec::new(CreateFrom::Image(image.into()))
}

#[tokio::test]
async fn a_damaged_image_is_not_served_until_it_is_imported_again() {
    let world = World::new().await;
    other_image(&world).await;
    let service = world.daemon().await;
    let asleep = create(&service, named("asleep")).await;
    let mut counter = Counter::start(&service, &asleep, "x").await;
    service.suspend(&asleep).await.unwrap();
    service.evict(&asleep).await.unwrap();
    service.stop().await;
    flip(&base_file(&world).await);

    let service = world.daemon().await;
    names(&service.create(from("base")).await.unwrap_err(), "rootfs/etc/hello");
    names(&service.resume(&asleep, Initiator::User).await.unwrap_err(), "rootfs/etc/hello");
    assert_eq!(state(&service.describe(&asleep).await.unwrap()), StateName::Suspended);
    assert!(world.events(&asleep).await.contains(&EventKind::Damaged));
    let why = service.why(&asleep).await.unwrap();
    assert!(why.because[0].says.contains("rootfs/etc/hello"), "{why:?}");
    assert_eq!(service.figures().await.unwrap().damaged["image"], 1);
    service.create(from("other")).await.unwrap();

    service.import_image(&world.directory.path().join("source"), Some("base"), |_| {}).await.unwrap();
    service.create(from("base")).await.unwrap();
    service.resume(&asleep, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &asleep).await.unwrap(), "x 1");
    assert_eq!(service.figures().await.unwrap().damaged["image"], 0);
}

#[tokio::test]
async fn an_image_is_read_at_its_first_use_and_not_at_each() {
    let world = World::new().await;
    let service = world.daemon().await;
    create(&service, named("first")).await;
    flip(&base_file(&world).await);
    create(&service, named("second")).await;
    let image = world.storage().resolve("base").await.unwrap().digest;
    let checked = service.verify(&Stored::Image(image)).await.unwrap().unwrap();
    assert_eq!(checked.damaged[0].file, Path::new("rootfs/etc/hello"));
    names(&service.create(from("base")).await.unwrap_err(), "rootfs/etc/hello");
}

#[tokio::test]
async fn a_parked_sandbox_needs_no_image_to_resume() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("parked")).await;
    service.suspend(&id).await.unwrap();
    let image = world.storage().resolve("base").await.unwrap().digest;
    flip(&base_file(&world).await);
    service.verify(&Stored::Image(image)).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
}

/// Returns the file of a layer's tree that contains `content`.
fn find(directory: &Path, content: &str) -> Option<PathBuf> {
    fs::read_dir(directory).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        let facts = path.symlink_metadata().unwrap();
        if facts.is_dir() {
            return find(&path, content);
        }
        (facts.is_file() && fs::read(&path).is_ok_and(|found| found == content.as_bytes())).then_some(path)
    })
}

async fn layer_of(service: &Service, world: &World, id: &SandboxId) -> (CreateSpec, PathBuf) {
    let (agent, _in_use) = service.agent(id, dorm_service::Use::Process).await.unwrap();
    crate::world::write(&agent, "/note", "what was noted").await;
    let snapshot = service.checkpoint(id, SnapshotKind::Filesystem).await.unwrap();
    let directory = world.directory.path().join("data/saved_states").join(snapshot.saved_state.as_str());
    let file = find(&directory, "what was noted").unwrap();
    (CreateSpec::new(CreateFrom::Snapshot(snapshot.id)), file)
}

#[tokio::test]
async fn a_damaged_layer_is_found_at_its_first_use_and_by_whoever_looks() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("source")).await;
    let (on_layer, file) = layer_of(&service, &world, &id).await;
    let child = service.create(on_layer.clone()).await.unwrap().sandbox.id;
    service.stop().await;
    flip(&file);

    let service = world.daemon().await;
    names(&service.create(on_layer.clone()).await.unwrap_err(), "root/note");
    assert!(world.events(&child).await.contains(&EventKind::Damaged));
    create(&service, named("another")).await;
    let all = service.stored().await.unwrap();
    let mut damaged = Vec::new();
    for stored in &all {
        damaged.extend(service.verify(stored).await.unwrap().unwrap().damaged);
    }
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    assert!(damaged[0].file.ends_with("root/note"));
    flip(&file);
    service.create(on_layer).await.unwrap();
    assert_eq!(service.figures().await.unwrap().damaged["saved_state"], 0);
}

#[tokio::test(start_paused = true)]
async fn the_background_finds_damage_and_refuses_what_it_found() {
    let mut world = World::new().await;
    world.settings.scrub_bytes_per_second = Some(u64::MAX);
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    flip(&base_file(&world).await);
    // The background read begins a minute after the start; reading takes real time.
    tokio::time::sleep(Duration::from_secs(61)).await;
    tokio::time::resume();
    eventually("it is found", || async { service.figures().await.unwrap().damaged["image"] == 1 }).await;
    names(&service.create(from("base")).await.unwrap_err(), "rootfs/etc/hello");
    eventually("and says so", || async { world.events(&id).await.contains(&EventKind::Damaged) }).await;
    assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Running);
    service.stop().await;
}

#[tokio::test]
async fn no_snapshot_is_made_of_a_damaged_sleep_image() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    service.suspend(&id).await.unwrap();
    let sound = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    let sandbox = service.describe(&id).await.unwrap().sandbox;
    let image = sandbox.state.image().unwrap().saved_state.clone();
    let saved_states = world.directory.path().join("data/saved_states");
    let memory = |saved_state: &str| saved_states.join(saved_state).join(dorm_engine_fake::IMAGE_MEMORY);
    // Where the file system cannot share blocks, the record says that the snapshot is not a second
    // copy.
    let is_one_file = {
        use std::os::unix::fs::MetadataExt as _;
        let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
        inode(memory(image.as_str())) == inode(memory(sound.saved_state.as_str()))
    };
    assert_eq!(sound.shares_data, is_one_file);
    assert_eq!(world.store.snapshot(&sound.id).await.unwrap().unwrap().shares_data, is_one_file);

    flip(&memory(image.as_str()));
    let refused = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap_err();
    names(&refused, "memory.json");
    assert_eq!(refused.code(), Code::Damaged);
    let snapshots = service.snapshots().await.unwrap();
    assert!(snapshots.iter().any(|snapshot| matches!(snapshot.status, SnapshotStatus::Failed(_))));
    assert!(world.events(&id).await.contains(&EventKind::Damaged));
    // The memory of its parked run is not damaged.
    service.resume(&id, Initiator::User).await.unwrap();
    world.is_sound().await;
}
