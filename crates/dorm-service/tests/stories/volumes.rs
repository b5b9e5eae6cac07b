//! Volumes: leases follow from records, and what a daemon that died has begun is brought to its end.

use dorm_lifecycle::{Actor, RunId, VolumeId, Writers};
use dorm_service::{AttachVolume, Code};
use dorm_store::{Change, Store as _, VolumeRecord, VolumeStatus};

use crate::world::{World, create, named};

#[tokio::test]
async fn the_next_daemon_finds_leases_where_they_were_and_ends_what_was_begun() {
    let world = World::new().await;
    let service = world.daemon().await;
    let made = service.create_volume("data".parse().unwrap(), 64 << 20, Writers::One).await.unwrap();
    let attach = AttachVolume::new("data", "/data".parse().unwrap());
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
    let refused = service.resume(&id, Actor::User).await.unwrap_err();
    assert!(refused.message().contains("two"), "{}", refused.message());
    service.terminate(&two).await.unwrap();
    service.resume(&id, Actor::User).await.unwrap();
    world.is_sound().await;
}
