//! Names of snapshots, under which they serve as images.

use dorm_lifecycle::{Egress, Origin, ProjectId, SandboxId, SnapshotKind};
use dorm_ports::{Logins, RemoteSpec, Transport};
use dorm_service::{
    CheckpointSpec, Code, CreateFrom, CreateSpec, NamedSource, PullPolicy, Service, ServiceError, TemplateSpec,
};
use dorm_storage::StorageError;
use dorm_store::{ProjectBudgets, SnapshotRecord, SnapshotStatus, StoreError};

use crate::world::{World, base, create, named};

async fn take(service: &Service, id: &SandboxId, name: &str) -> Result<SnapshotRecord, ServiceError> {
    let name = Some(name.parse().unwrap());
    service.checkpoint_as(id, CheckpointSpec { name, ..CheckpointSpec::default() }).await
}

fn image(name: &str) -> CreateSpec {
    CreateSpec::new(CreateFrom::Image(name.to_owned()))
}

fn is_missing(error: &ServiceError) -> bool {
    matches!(error, ServiceError::Storage(StorageError::NoImage { .. }))
}

#[tokio::test]
async fn a_snapshot_serves_as_an_image_under_its_name() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, CreateSpec { egress: Some(Egress::closed()), ..named("web") }).await;
    for (name, kind) in [("my-snap", SnapshotKind::Filesystem), ("my-snap:v2", SnapshotKind::Memory)] {
        let settings = CheckpointSpec { kind, name: Some(name.parse().unwrap()), ..CheckpointSpec::default() };
        let snapshot = service.checkpoint_as(&id, settings).await.unwrap();
        let made = service.create(image(name)).await.unwrap().sandbox;
        assert_eq!(made.origin.snapshot(), Some(&snapshot.id));
        assert_eq!(matches!(made.origin, Origin::Snapshot { .. }), kind == SnapshotKind::Memory);
        assert_eq!(made.spec.egress, Egress::closed(), "{name}");
    }
    assert!(is_missing(&service.create(image("my-snap:latest")).await.unwrap_err()), "no tag is added");
    world.is_sound().await;
}

#[tokio::test]
async fn a_name_is_free_when_its_snapshot_is_deleted_and_not_before() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let first = take(&service, &id, "my-snap").await.unwrap();
    for _ in 0..2 {
        let taken = take(&service, &id, "my-snap").await.unwrap_err();
        assert_eq!(taken.code(), Code::Conflict);
        assert_eq!(taken.message(), format!("the name 'my-snap' is taken by snapshot {}", first.id));
        assert!(matches!(taken, ServiceError::Store(StoreError::SnapshotNameTaken { .. })), "{taken:?}");
    }
    assert_eq!(service.snapshots().await.unwrap().len(), 1, "a refused request leaves nothing");
    service.delete_snapshot(&first.id).await.unwrap();
    assert!(is_missing(&service.create(image("my-snap")).await.unwrap_err()));
    let second = take(&service, &id, "my-snap").await.unwrap();
    let made = service.create(image("my-snap")).await.unwrap().sandbox;
    assert_eq!(made.origin.snapshot(), Some(&second.id));
    // The sandbox stands on its files, so that it is deleted later; its name is free at once.
    service.delete_snapshot_when_free(&second.id).await.unwrap();
    assert!(is_missing(&service.create(image("my-snap")).await.unwrap_err()));
    take(&service, &id, "my-snap").await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn a_name_hides_no_image_and_no_template() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let template = TemplateSpec {
        name: "app".parse().unwrap(),
        tags: vec!["latest".to_owned(), "v1".to_owned()],
        from: CreateFrom::Image("base".to_owned()),
        resources: None,
        variables: Default::default(),
        program: None,
    };
    service.put_template(template).await.unwrap();
    for (name, of) in [("base", "an image"), ("app", "a template"), ("app:v1", "a template")] {
        let refused = take(&service, &id, name).await.unwrap_err();
        assert_eq!(refused.code(), Code::Conflict);
        assert!(refused.message().ends_with(&format!("that is the name of {of}")), "{}", refused.message());
    }
    assert_eq!(service.snapshots().await.unwrap().len(), 0);
    take(&service, &id, "app:v2").await.unwrap();
}

#[tokio::test]
async fn no_image_gets_the_name_of_a_snapshot_and_a_tag_goes_first() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let snapshot = take(&service, &id, "my-snap").await.unwrap();
    let digest = service.image("base").await.unwrap().digest;
    let refused = service.tag_image(&digest, "my-snap").await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    let source = world.directory.path().join("source");
    assert_eq!(service.import_image(&source, Some("my-snap"), |_| {}).await.unwrap_err().code(), Code::Conflict);
    assert_eq!(service.create(image("my-snap")).await.unwrap().sandbox.origin.snapshot(), Some(&snapshot.id));
    // A tag that comes past the check, such as one for all projects, goes first.
    world.storage().tag(&digest, "my-snap").await.unwrap();
    assert_eq!(service.create(image("my-snap")).await.unwrap().sandbox.origin, Origin::Image);
}

#[tokio::test]
async fn the_name_of_another_project_is_as_good_as_none() {
    let world = World::new().await;
    let service = world.daemon().await;
    let other: ProjectId = "other".parse().unwrap();
    service.create_project(other.clone(), ProjectBudgets::default()).await.unwrap();
    let elsewhere = service.for_project(&other).unwrap();
    let id = create(&elsewhere, base()).await;
    let theirs = take(&elsewhere, &id, "my-snap").await.unwrap();
    let told = |error: ServiceError, name: &str| error.message().replace(name, "NAME");
    let (known, unknown) = (service.create(image("my-snap")).await, service.create(image("no-snap")).await);
    assert_eq!(told(known.unwrap_err(), "my-snap"), told(unknown.unwrap_err(), "no-snap"));
    assert_eq!(service.snapshot_id("my-snap").await.unwrap(), None);
    let own = create(&service, base()).await;
    let ours = take(&service, &own, "my-snap").await.unwrap();
    for (service, snapshot) in [(&service, ours), (&elsewhere, theirs)] {
        assert_eq!(service.create(image("my-snap")).await.unwrap().sandbox.origin.snapshot(), Some(&snapshot.id));
    }
}

#[tokio::test]
async fn a_name_is_looked_up_before_a_registry_unless_that_is_asked_for() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, base()).await;
    let snapshot = take(&service, &id, "my-snap").await.unwrap();
    let found = async |policy| {
        let (reference, transport, logins) = ("my-snap".to_owned(), Transport::Secure, Logins::Daemon);
        let asked = RemoteSpec { reference, architecture: None, transport, logins, login: None };
        service.find_source(asked, policy, |_| {}).await
    };
    for policy in [PullPolicy::Missing, PullPolicy::Never] {
        let NamedSource::Snapshot(found) = found(policy).await.unwrap() else { panic!("not a snapshot") };
        assert_eq!(found.id, snapshot.id);
    }
    assert!(found(PullPolicy::Always).await.is_err(), "there is no registry");
}

#[tokio::test]
async fn a_snapshot_that_is_being_taken_holds_its_name() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let name = || Some("my-snap".parse().unwrap());
    let settings = CheckpointSpec { kind: SnapshotKind::Memory, name: name(), ..CheckpointSpec::default() };
    let begun = service.begin_checkpoint(&id, settings.clone()).await.unwrap();
    assert_eq!((begun.name, begun.status), (name(), SnapshotStatus::InProgress));
    assert_eq!(service.checkpoint_as(&id, settings).await.unwrap_err().code(), Code::Conflict);
    let source = CreateFrom::Image("my-snap".to_owned());
    assert_eq!(service.source_named(source).await.unwrap(), CreateFrom::Snapshot(begun.id));
}
