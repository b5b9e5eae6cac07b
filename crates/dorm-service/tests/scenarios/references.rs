//! Scenarios with two data directories that share a directory of images: neither loses an image
//! that its records need.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dorm_engine_fake::FakeHost;
use dorm_lifecycle::{Digest, SnapshotKind};
use dorm_service::{Code, Parts, Service, ServiceError, Volumes};
use dorm_steps::{Steps, Stopped};
use dorm_storage::{Owner, Storage, StorageError};
use dorm_store::SteppedStore;
use dorm_store::memory::MemoryStore;

use crate::world::{World, create, eventually, named};

/// The parts of one data directory.
struct Side {
    id: &'static str,
    data: PathBuf,
    images: PathBuf,
    host: FakeHost,
    store: MemoryStore,
}

impl Side {
    fn new(world: &World, id: &'static str) -> Self {
        let (data, images) = (world.directory.path().join(id), world.directory.path().join("images"));
        Self { id, data, images, host: FakeHost::new(), store: MemoryStore::new() }
    }

    fn unowned(&self) -> Storage {
        Storage::open(&self.data, &self.images).unwrap()
    }

    fn storage(&self) -> Storage {
        self.unowned().owned_by(Owner { id: self.id.to_owned(), data: self.data.clone() }).unwrap()
    }

    fn parts(&self, world: &World) -> Parts {
        Parts {
            volumes: Volumes::new(self.data.join("volumes"), dorm_service::Limiting::Never),
            store: Arc::new(self.store.clone()),
            engine: self.host.open(),
            storage: self.storage(),
            ..world.parts()
        }
    }

    async fn daemon(&self, world: &World) -> Service {
        Service::open(self.parts(world)).await.unwrap().0
    }

    fn refers(&self, image: &Digest) -> bool {
        self.images.join("references").join(self.id).join(image.as_str()).exists()
    }
}

async fn base(world: &World) -> Digest {
    world.storage().resolve("base").await.unwrap().digest
}

async fn refused(service: &Service, image: &Digest) -> ServiceError {
    let refused = service.remove_image(image).await.unwrap_err();
    assert!(matches!(refused, ServiceError::Storage(StorageError::Referred { .. })), "{refused:?}");
    assert_eq!(refused.code(), Code::Conflict);
    refused
}

#[tokio::test]
async fn an_image_stays_as_long_as_another_data_directory_has_a_sandbox_or_a_snapshot_on_it() {
    let world = World::new().await;
    let (ours, theirs) = (Side::new(&world, "ours"), Side::new(&world, "theirs"));
    let (here, there) = (ours.daemon(&world).await, theirs.daemon(&world).await);
    let image = base(&world).await;
    let id = create(&there, named("web")).await;
    let told = refused(&here, &image).await.message();
    assert!(told.contains(theirs.data.to_str().unwrap()), "{told}");
    let listed = here.items().await.unwrap();
    let why = listed.iter().find(|item| item.id == image.as_str()).unwrap().why.join("; ");
    assert!(why.contains("refers to it"), "{why}");
    let snapshot = there.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap().id;
    there.terminate(&id).await.unwrap();
    there.remove_image(&image).await.unwrap_err();
    refused(&here, &image).await;
    there.delete_snapshot(&snapshot).await.unwrap();
    eventually("the last reference is dropped", async || !theirs.refers(&image)).await;
    here.remove_image(&image).await.unwrap();
    assert!(world.storage().images().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_daemon_removes_an_image_whose_last_sandbox_was_its_own() {
    let world = World::new().await;
    let ours = Side::new(&world, "ours");
    let here = ours.daemon(&world).await;
    let image = base(&world).await;
    let id = create(&here, named("web")).await;
    let told = here.remove_image(&image).await.unwrap_err().message();
    assert!(told.contains(id.as_str()), "{told}");
    here.terminate(&id).await.unwrap();
    here.remove_image(&image).await.unwrap();
    assert!(!ours.refers(&image));
}

#[tokio::test]
async fn data_from_before_there_were_references_has_them_when_its_daemon_serves() {
    let world = World::new().await;
    let (ours, theirs) = (Side::new(&world, "ours"), Side::new(&world, "theirs"));
    let old = Parts { storage: theirs.unowned(), ..theirs.parts(&world) };
    let (there, _) = Service::open(old).await.unwrap();
    let image = base(&world).await;
    create(&there, named("web")).await;
    assert!(!theirs.refers(&image));
    there.stop().await;
    let _there = theirs.daemon(&world).await;
    assert!(theirs.refers(&image));
    refused(&ours.daemon(&world).await, &image).await;
}

/// Refuses commits as soon as a reference exists.
#[derive(Debug)]
struct Refusing {
    reference: PathBuf,
    armed: AtomicBool,
}

impl Steps for Refusing {
    fn reach(&self, step: &'static str) -> Result<(), Stopped> {
        let refuses = step == "store: about to commit" && self.armed.load(Ordering::SeqCst) && self.reference.exists();
        if refuses { Err(Stopped { step, full: false }) } else { Ok(()) }
    }
}

#[tokio::test]
async fn a_reference_is_there_before_the_record_and_one_without_a_record_goes_at_the_next_start() {
    let world = World::new().await;
    let ours = Side::new(&world, "ours");
    let image = base(&world).await;
    let reference = ours.images.join("references/ours").join(image.as_str());
    let steps = Arc::new(Refusing { reference, armed: AtomicBool::new(true) });
    let store = SteppedStore::new(Arc::new(ours.store.clone()), steps.clone());
    let (here, _) = Service::open(Parts { store: Arc::new(store), ..ours.parts(&world) }).await.unwrap();
    // The reference is created before the record that needs it.
    assert_eq!(here.create(named("web")).await.unwrap_err().code(), Code::StoreFailed);
    steps.armed.store(false, Ordering::SeqCst);
    assert!(ours.refers(&image), "as a death between the two leaves it");
    here.stop().await;
    let _here = ours.daemon(&world).await;
    assert!(!ours.refers(&image));
}

#[tokio::test]
async fn the_id_decides_whose_references_they_are_and_those_of_a_directory_that_is_gone_can_be_deleted() {
    let world = World::new().await;
    let (ours, mut theirs) = (Side::new(&world, "ours"), Side::new(&world, "theirs"));
    let here = ours.daemon(&world).await;
    let image = base(&world).await;
    let there = theirs.daemon(&world).await;
    create(&there, named("web")).await;
    there.stop().await;
    // The data directory is moved.
    let moved = world.directory.path().join("moved");
    std::fs::rename(&theirs.data, &moved).unwrap();
    theirs.data = moved.clone();
    let there = theirs.daemon(&world).await;
    let told = refused(&here, &image).await.message();
    assert!(told.contains(moved.to_str().unwrap()) && !told.contains("does not exist"), "{told}");
    there.stop().await;
    // The data directory is missing, or only not mounted: the daemon cannot know.
    std::fs::remove_dir_all(&moved).unwrap();
    let told = refused(&here, &image).await.message();
    let references = theirs.images.join("references/theirs");
    assert!(told.contains("does not exist") && told.contains(references.to_str().unwrap()), "{told}");
    std::fs::remove_dir_all(references).unwrap();
    here.remove_image(&image).await.unwrap();
}

fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn references_that_came_with_a_copy_of_the_images_hold_nothing_as_long_as_the_original_is_there() {
    let world = World::new().await;
    let (ours, theirs) = (Side::new(&world, "ours"), Side::new(&world, "theirs"));
    let image = base(&world).await;
    let there = theirs.daemon(&world).await;
    create(&there, named("web")).await;
    let copied = world.directory.path().join("copied");
    copy(&theirs.images, &copied);
    let here = Side { images: copied, ..ours }.daemon(&world).await;
    let original = world.directory.path().join("away");
    std::fs::rename(&theirs.images, &original).unwrap();
    refused(&here, &image).await;
    std::fs::rename(&original, &theirs.images).unwrap();
    here.remove_image(&image).await.unwrap();
    assert!(theirs.refers(&image));
    assert!(world.storage().image(&image).await.is_ok());
}
