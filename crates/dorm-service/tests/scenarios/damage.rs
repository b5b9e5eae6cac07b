//! Images that are damaged, missing or from another engine: they are refused by name before any
//! guest code runs, and the sandbox's settings decide what follows.

use std::fs;
use std::path::PathBuf;

use dorm_agent_client::GuestPath;
use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{
    EventKind, Initiator, OnUnrestorable, Restored, SandboxId, SavedStateId, SleepRetention, SnapshotKind, StateName,
};
use dorm_service::{Code, CreateSpec, Service, ServiceError, Use};

use crate::world::{Counter, World, create, named, read, state, write};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Damage {
    Cut,
    Emptied,
    Flipped,
    Removed,
}

const DAMAGES: [Damage; 4] = [Damage::Cut, Damage::Emptied, Damage::Flipped, Damage::Removed];

/// Damages the largest file of a saved state, and returns its path and its original content.
pub(crate) fn damage(world: &World, saved_state: &SavedStateId, damage: Damage) -> (PathBuf, Vec<u8>) {
    let directory = world.directory.path().join("data/saved_states").join(saved_state.as_str());
    let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.file_name().unwrap() != "manifest.json");
    files.sort_by_key(|path| fs::metadata(path).unwrap().len());
    let path = files.pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let mut content = whole.clone();
    match damage {
        Damage::Cut => drop(content.pop()),
        Damage::Emptied => content.clear(),
        Damage::Flipped => content[whole.len() / 2] ^= 1,
        Damage::Removed => {}
    }
    match damage {
        Damage::Removed => fs::remove_file(&path).unwrap(),
        Damage::Cut | Damage::Emptied | Damage::Flipped => fs::write(&path, content).unwrap(),
    }
    (path, whole)
}

/// Returns a sandbox that is only on disk after `sleeps` sleeps, with a counter that advances by
/// one before each.
async fn slept(service: &Service, retention: SleepRetention, sleeps: u64) -> (SandboxId, Counter) {
    let id = create(service, CreateSpec { retention, ..named("web") }).await;
    let mut counter = Counter::start(service, &id, "x").await;
    for sleep in 1..=sleeps {
        service.resume(&id, Initiator::User).await.unwrap();
        assert_eq!(counter.ask(service, &id).await.unwrap(), format!("x {sleep}"));
        service.suspend(&id).await.unwrap();
    }
    service.evict(&id).await.unwrap();
    (id, counter)
}

async fn newest(service: &Service, id: &SandboxId) -> SavedStateId {
    service.describe(id).await.unwrap().sandbox.state.image().unwrap().saved_state.clone()
}

#[tokio::test]
async fn a_damaged_image_is_refused_by_name_and_wakes_when_it_is_whole_again() {
    for kind in DAMAGES {
        let world = World::new().await;
        let service = world.daemon().await;
        let (id, mut counter) = slept(&service, SleepRetention::default(), 1).await;
        let (path, whole) = damage(&world, &newest(&service, &id).await, kind);
        let restores = world.host.faults().calls(Operation::Restore);
        let refused = service.resume(&id, Initiator::User).await.unwrap_err();
        assert_eq!(refused.code(), Code::Damaged);
        let file = path.file_name().unwrap().to_str().unwrap();
        assert!(refused.message().contains(file), "{kind:?}: {}", refused.message());
        assert_eq!(world.host.faults().calls(Operation::Restore), restores, "{kind:?}: the engine was asked");
        assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Suspended);
        fs::write(&path, whole).unwrap();
        let view = service.resume(&id, Initiator::User).await.unwrap();
        assert_eq!(view.sandbox.restored, Restored::Memory { generation: Some(1) });
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2", "{kind:?}");
        world.is_sound().await;
    }
}

#[tokio::test]
async fn the_older_generation_is_used_when_it_is_kept_and_the_answer_says_so() {
    let world = World::new().await;
    let service = world.daemon().await;
    let retention = SleepRetention { generations: 3, ..SleepRetention::default() };
    let (id, counter) = slept(&service, retention, 5).await;
    let sandbox = service.describe(&id).await.unwrap().sandbox;
    assert_eq!(sandbox.older.iter().map(|image| image.generation).collect::<Vec<_>>(), [4, 3]);
    world.is_sound().await;
    damage(&world, &newest(&service, &id).await, Damage::Flipped);
    damage(&world, &sandbox.older[0].saved_state, Damage::Removed);
    let view = service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(view.sandbox.restored, Restored::Memory { generation: Some(3) });
    // The counter continues from its value in generation 3.
    let mut counter = counter.heard_until("x 3\n", 3);
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 4");
    assert!(world.events(&id).await.contains(&EventKind::Degraded));
    service.suspend(&id).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 5");
}

#[tokio::test]
async fn it_boots_afresh_only_when_its_owner_allows_that() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, _) = slept(&service, SleepRetention::default(), 1).await;
    service.resume(&id, Initiator::User).await.unwrap();
    let (agent, in_use) = service.agent(&id, Use::Exec).await.unwrap();
    write(&agent, "/old", "old").await;
    drop(in_use);
    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    let saved_state = newest(&service, &id).await;
    damage(&world, &saved_state, Damage::Emptied);
    service.resume(&id, Initiator::User).await.unwrap_err();
    let allowed = SleepRetention { on_unrestorable: OnUnrestorable::Fresh, ..SleepRetention::default() };
    service.set_retention(&id, allowed).await.unwrap();
    let view = service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!((view.sandbox.restored, view.sandbox.generation), (Restored::Nothing, 4));
    let (agent, in_use) = service.agent(&id, Use::Exec).await.unwrap();
    assert!(agent.stat(&GuestPath::new("/old").unwrap()).await.is_err(), "nothing of it is left");
    write(&agent, "/new", "new").await;
    drop(in_use);
    // The saved state that could not be restored is kept until a newer one is durable.
    assert_eq!(service.describe(&id).await.unwrap().sandbox.saved_states().collect::<Vec<_>>(), [&saved_state]);
    world.is_sound().await;
    service.suspend(&id).await.unwrap();
    world.is_sound().await;
    service.evict(&id).await.unwrap();
    let view = service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(view.sandbox.restored, Restored::Memory { generation: Some(4) });
    let (agent, _in_use) = service.agent(&id, Use::Exec).await.unwrap();
    assert_eq!(read(&agent, "/new").await, "new");
}

#[tokio::test]
async fn a_snapshot_of_an_image_that_is_gone_says_what_the_disk_says() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (id, _) = slept(&service, SleepRetention::default(), 1).await;
    let directory = world.directory.path().join("data/saved_states").join(newest(&service, &id).await.as_str());
    fs::rename(&directory, world.directory.path().join("away")).unwrap();
    let refused = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap_err();
    let ServiceError::OperationFailed { failure, .. } = &refused else { panic!("{refused:?}") };
    assert!(matches!(failure.cause(), Some(ServiceError::Storage(_))), "{failure:?}");
    assert_eq!(refused.code(), Code::Damaged, "the caller named a sandbox that is there");
    fs::rename(world.directory.path().join("away"), &directory).unwrap();
    service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn an_engine_that_fails_is_no_reason_to_use_an_older_image() {
    let world = World::new().await;
    let service = world.daemon().await;
    let retention = SleepRetention { generations: 2, on_unrestorable: OnUnrestorable::Fresh };
    let (id, mut counter) = slept(&service, retention, 2).await;
    for fault in [Fault::Fail, Fault::NoRoom] {
        world.host.faults().next(Operation::Restore, Moment::Before, fault);
        service.resume(&id, Initiator::User).await.unwrap_err();
        assert_eq!(state(&service.describe(&id).await.unwrap()), StateName::Suspended);
    }
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 3");
    world.is_sound().await;
}
