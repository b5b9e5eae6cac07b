//! Volumes: leases follow from records, and the next daemon finishes what a dead one has begun.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dorm_lifecycle::{Initiator, Name, ProjectId, RunId, VolumeId, Writers};
use dorm_service::{AttachmentSpec, Code, CreateSpec, Parts, PortSecret, Service, TopMode};
use dorm_steps::{Steps, Stopped};
use dorm_store::{Change, ProjectBudgets, Store as _, VolumeRecord, VolumeStatus};

use crate::world::{World, counting, create, named};

#[tokio::test]
async fn the_next_daemon_finds_leases_where_they_were_and_ends_what_was_begun() {
    let world = World::new().await;
    let service = world.daemon().await;
    let made = service.create_volume("data".parse().unwrap(), 64 << 20, Writers::One).await.unwrap();
    let attach = AttachmentSpec::new("data", "/data".parse().unwrap());
    let mut asked = named("web");
    asked.attachments = vec![attach.clone()];
    let id = create(&service, asked).await;
    let run = RunId { sandbox: id.clone(), generation: 1 };
    assert_eq!(world.host.volumes_inside(&run), [("/data".to_owned(), "/.dorm-volumes/0".to_owned())]);
    let half = VolumeRecord {
        id: VolumeId::from_random([9; 20]),
        name: "half".parse().unwrap(),
        status: VolumeStatus::Creating,
        ..made.volume
    };
    world.store.commit(Change { volumes: vec![half], ..Change::default() }).await.unwrap();
    service.stop().await;
    let service = world.daemon().await;
    let names: Vec<_> = service.volumes().await.unwrap().into_iter().map(|view| view.volume.name.to_string()).collect();
    assert_eq!(names, ["data"]);
    let mut second = named("two");
    second.attachments = vec![attach];
    let refused = service.create(second.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    assert!(refused.message().contains("web"), "{}", refused.message());
    service.suspend(&id).await.unwrap();
    let two = create(&service, second).await;
    let refused = service.resume(&id, Initiator::User).await.unwrap_err();
    assert!(refused.message().contains("two"), "{}", refused.message());
    service.terminate(&two).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn a_volume_that_a_restored_record_says_is_being_created_keeps_its_files() {
    let world = World::new().await;
    let service = world.daemon().await;
    let made = service.create_volume("data".parse().unwrap(), 64 << 20, Writers::One).await.unwrap().volume;
    let (mut new, using) = service.write_volume("data", "kept").await.unwrap();
    new.take().unwrap().write_all(b"for months").unwrap();
    new.finish().unwrap();
    drop(using);
    service.stop().await;
    let older = VolumeRecord { status: VolumeStatus::Creating, ..made.clone() };
    world.store.commit(Change { volumes: vec![older], ..Change::default() }).await.unwrap();
    let service = world.daemon().await;
    assert_eq!(service.volume("data").await.unwrap().volume, made);
    let (mut file, _using) = service.read_volume("data", "kept").await.unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "for months");
}

/// Fails the step after the sync of a volume, as long as it is armed.
#[derive(Debug)]
struct Unsynced(AtomicBool);

impl Steps for Unsynced {
    fn reach(&self, step: &'static str) -> Result<(), Stopped> {
        let refuses = step == "volume: synced" && self.0.load(Ordering::SeqCst);
        if refuses { Err(Stopped { step, full: false }) } else { Ok(()) }
    }
}

#[tokio::test]
async fn nobody_is_suspended_whose_volumes_cannot_be_synced() {
    let world = World::new().await;
    let unsynced = Arc::new(Unsynced(AtomicBool::new(true)));
    let directory = world.directory.path().join("data/volumes");
    let volumes = dorm_service::Volumes::with_steps(directory, dorm_service::Limiting::Never, unsynced.clone());
    let (service, _) = Service::open(Parts { volumes, ..world.parts() }).await.unwrap();
    service.create_volume("data".parse().unwrap(), 64 << 20, Writers::One).await.unwrap();
    let (id, mut counter) = counting(&service).await;
    service.attach(&id, AttachmentSpec::new("data", "/data".parse().unwrap())).await.unwrap();
    let refused = service.suspend(&id).await.unwrap_err().message();
    assert!(refused.contains("volume: synced"), "{refused}");
    // The failed suspend has left nothing behind, and the guest continues.
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.is_sound().await;
    unsynced.0.store(false, Ordering::SeqCst);
    service.suspend(&id).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 3");
}

#[tokio::test]
async fn one_that_sleeps_is_terminated_while_somebody_else_has_its_volume() {
    let world = World::new().await;
    let service = world.daemon().await;
    service.create_volume("data".parse().unwrap(), 64 << 20, Writers::One).await.unwrap();
    let with_volume = |name| {
        let attachments = vec![AttachmentSpec::new("data", "/data".parse().unwrap())];
        CreateSpec { attachments, ..named(name) }
    };
    let asked = create(&service, with_volume("asked")).await;
    service.suspend(&asked).await.unwrap();
    let holder = create(&service, with_volume("holder")).await;
    service.terminate(&asked).await.unwrap();
    service.suspend(&holder).await.unwrap();
    service.resume(&holder, Initiator::User).await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn a_volume_is_found_by_its_id_in_any_project_and_its_tokens_never_change() {
    let mut world = World::new().await;
    world.settings.port_secret = Some(PortSecret([7; 32]));
    let service = world.daemon().await;
    let team: ProjectId = "team".parse().unwrap();
    service.create_project(team.clone(), ProjectBudgets::default()).await.unwrap();
    let of_team = service.for_project(&team).unwrap();
    let make = async |name: &str| {
        let made = of_team.create_volume_with(name.parse().unwrap(), 64 << 20, Writers::Many, TopMode::Everyone);
        made.await.unwrap().volume.id
    };
    let (one, two) = (make("one").await, make("two").await);
    let tokens = [service.volume_token(&one, "a"), service.volume_token(&one, "b"), service.volume_token(&two, "a")];
    assert!(tokens[0] != tokens[1] && tokens[0] != tokens[2]);
    assert_eq!(service.volume_with_id(&one).await.unwrap_err().code(), Code::NotFound);
    service.stop().await;
    let service = world.daemon().await;
    assert_eq!(service.volume_token(&one, "a"), tokens[0]);
    let of_volume = service.of_volume(&one).await.unwrap();
    assert_eq!(*of_volume.project(), team);
    assert_eq!(of_volume.stat_volume_entry(&one, &"/".parse().unwrap()).await.unwrap().mode, 0o777);
    of_volume.remove_volume_with_id(&one).await.unwrap();
    let gone = service.of_volume(&one).await.err().map(|error| error.code());
    assert_eq!(gone, Some(Code::NotFound));
    world.is_sound().await;
}

#[tokio::test]
async fn a_volume_that_is_named_like_the_id_of_another_is_not_taken_for_it() {
    let world = World::new().await;
    let service = world.daemon().await;
    let make = async |name: &str| service.create_volume(name.parse().unwrap(), 64 << 20, Writers::One).await.unwrap();
    // An id that begins with a letter is also a name.
    let mut number = 0;
    let named = loop {
        let made = make(&format!("n{number}")).await.volume.id;
        if made.as_str().parse::<Name>().is_ok() {
            break made;
        }
        number += 1;
    };
    let twin = make(named.as_str()).await.volume.id;
    assert_eq!(service.volume(named.as_str()).await.unwrap().volume.id, twin);
    assert_eq!(service.volume_with_id(&named).await.unwrap().volume.id, named);
    service.remove_volume_with_id(&named).await.unwrap();
    assert_eq!(service.volume_with_id(&twin).await.unwrap().volume.name.as_str(), named.as_str());
}
