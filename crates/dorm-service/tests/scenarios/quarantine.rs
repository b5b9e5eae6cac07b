//! One thing that cannot be read or removed does not stop the rest: it is reported, and kept with
//! everything that it needs.

use std::fs;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Initiator, ProjectId, SandboxId, SavedStateId, SnapshotKind, StateName};
use dorm_ports::SecretValue;
use dorm_service::{
    CheckpointSpec, Code, CreateFrom, CreateSpec, LostSecrets, PoolSpec, SecretsKey, Service, ServiceError,
    TemplateSpec, Verdict,
};
use dorm_store::{Change, ProjectBudgets, RowKind, SandboxFilter, Store as _, StoreError};

use crate::pools::one_worker;
use crate::world::{Counter, World, create, eventually, named, state};

fn is_unreadable(error: &ServiceError, id: &str) -> bool {
    let names_it = error.message().contains(id) && error.next_step().contains("dorm repair");
    error.code() == Code::Unreadable && names_it
}

fn saved_states(world: &World) -> Vec<String> {
    let names = fs::read_dir(world.directory.path().join("data/saved_states")).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn image_of(service: &Service, id: &SandboxId) -> SavedStateId {
    service.describe(id).await.unwrap().sandbox.state.image().unwrap().saved_state.clone()
}

#[tokio::test]
async fn an_unreadable_record_is_named_and_all_others_are_served() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (bad, good) = (create(&service, named("bad")).await, create(&service, named("good")).await);
    let mut counter = Counter::start(&service, &good, "x").await;
    assert_eq!(counter.ask(&service, &good).await.unwrap(), "x 1");
    let run = service.describe(&bad).await.unwrap().sandbox.run_id();
    service.suspend(&good).await.unwrap();
    let snapshot = service.checkpoint(&bad, SnapshotKind::Memory).await.unwrap();
    service.stop().await;
    world.store.spoil(RowKind::Sandbox, bad.as_str(), "{\"v\":1,");
    world.store.spoil(RowKind::Snapshot, snapshot.id.as_str(), "");

    let (service, report) = world.daemon_and_report().await;
    for id in [bad.as_str(), snapshot.id.as_str(), &run.to_string()] {
        assert!(report.lines.iter().any(|line| line.contains(id)), "{id}: {:?}", report.lines);
    }
    service.resume(&good, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &good).await.unwrap(), "x 2");
    // Its run continues, and its name stays taken.
    assert!(world.host.runs().iter().any(|(one, _)| *one == run));
    for reference in [bad.as_str(), "bad"] {
        let error = service.find(reference).await.unwrap_err();
        assert!(is_unreadable(&error, bad.as_str()), "{error:?}");
    }
    assert!(is_unreadable(&service.why(&bad).await.unwrap_err(), bad.as_str()));
    assert!(is_unreadable(&service.describe(&bad).await.unwrap_err(), bad.as_str()));
    assert!(is_unreadable(&service.suspend(&bad).await.unwrap_err(), bad.as_str()));
    assert!(is_unreadable(&service.snapshot(&snapshot.id).await.unwrap_err(), snapshot.id.as_str()));
    let refused = service.create(named("bad")).await.unwrap_err();
    let is_taken = matches!(refused, ServiceError::Store(StoreError::NameTaken { .. } | StoreError::Unreadable { .. }));
    assert!(is_taken, "{refused:?}");
    let listed = service.list(&SandboxFilter::default()).await.unwrap();
    assert_eq!(listed.iter().map(|view| view.sandbox.id.clone()).collect::<Vec<_>>(), [good]);
    assert_eq!(service.unreadable().await.unwrap().len(), 2);
    let figures = service.figures().await.unwrap();
    assert_eq!(figures.quarantined.into_iter().collect::<Vec<_>>(), [(RowKind::Sandbox, 1), (RowKind::Snapshot, 1)]);
}

#[tokio::test]
async fn nothing_is_deleted_that_an_unreadable_record_may_need() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (bad, good) = (create(&service, named("bad")).await, create(&service, named("good")).await);
    let files = CheckpointSpec { kind: SnapshotKind::Filesystem, ..CheckpointSpec::default() };
    let layer = service.checkpoint_as(&bad, files).await.unwrap();
    service.suspend(&bad).await.unwrap();
    let image = image_of(&service, &bad).await;
    service.stop().await;
    let record = world.store.sandbox(&bad).await.unwrap().unwrap();
    // The state that a daemon leaves if it dies after it has recorded a deletion and before it
    // deletes anything.
    let doomed = SavedStateId::from_random([9; 20]);
    fs::create_dir(world.directory.path().join("data/saved_states").join(doomed.as_str())).unwrap();
    world.store.commit(Change { discard: vec![doomed.clone()], ..Change::default() }).await.unwrap();
    world.store.spoil(RowKind::Sandbox, bad.as_str(), "not a word of it is left");

    let service = world.daemon().await;
    let refused = service.delete_snapshot(&layer.id).await.unwrap_err();
    assert!(refused.code() == Code::Conflict && refused.message().contains(bad.as_str()), "{refused:?}");
    let base = service.describe(&good).await.unwrap().sandbox.spec.image;
    service.terminate(&good).await.unwrap();
    let refused = service.remove_image(&base).await.unwrap_err();
    assert!(refused.message().contains(bad.as_str()), "{refused:?}");
    assert!(service.collect().await.unwrap().is_empty());
    let told = service.items().await.unwrap();
    for id in [image.as_str(), doomed.as_str()] {
        let item = told.iter().find(|item| item.id == id).unwrap();
        assert!(item.verdict == Verdict::Kept && item.why[0].contains(bad.as_str()), "{item:?}");
        assert!(saved_states(&world).contains(&id.to_owned()));
    }
    service.stop().await;

    // Once the record is repaired, the next daemon continues where this one could not.
    world.store.commit(Change { sandboxes: vec![record], ..Change::default() }).await.unwrap();
    let service = world.daemon().await;
    assert!(!saved_states(&world).contains(&doomed.to_string()));
    service.resume(&bad, Initiator::User).await.unwrap();
    service.delete_snapshot(&layer.id).await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn what_an_unreadable_sandbox_was_doing_is_left_as_it_is() {
    let world = World::new().await;
    let service = world.daemon().await;
    let bad = create(&service, named("bad")).await;
    world.host.faults().next(Operation::Save, Moment::After, Fault::Hang);
    let hanging = {
        let (service, bad) = (service.clone(), bad.clone());
        tokio::spawn(async move { drop(service.suspend(&bad).await) })
    };
    eventually("it hangs", || async { world.host.faults().struck(Operation::Save) == 1 }).await;
    hanging.abort();
    world.host.open();
    drop(service);
    let record = world.store.sandbox(&bad).await.unwrap().unwrap();
    assert_eq!(record.sandbox.state.name(), StateName::Suspending);
    let before = saved_states(&world);
    world.store.spoil_one_byte(RowKind::Sandbox, bad.as_str());

    let service = world.daemon().await;
    assert_eq!((saved_states(&world), world.store.open_operations().await.unwrap().len()), (before, 1));
    assert_eq!(world.host.runs().len(), 1);
    service.stop().await;
    world.store.commit(Change { sandboxes: vec![record], ..Change::default() }).await.unwrap();
    let service = world.daemon().await;
    eventually("it runs", || async { state(&service.describe(&bad).await.unwrap()) == StateName::Running }).await;
    world.is_sound().await;
}

#[tokio::test]
async fn a_clean_up_that_fails_keeps_no_daemon_from_starting() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (one, other) = (create(&service, named("one")).await, create(&service, named("other")).await);
    world.host.faults().next(Operation::Save, Moment::After, Fault::Hang);
    let hanging = {
        let (service, one) = (service.clone(), one.clone());
        tokio::spawn(async move { drop(service.suspend(&one).await) })
    };
    eventually("it hangs", || async { world.host.faults().struck(Operation::Save) == 1 }).await;
    hanging.abort();
    world.host.open();
    drop(service);
    // The saved state that it has written cannot be removed: a file has the name to which its
    // directory would be renamed.
    let saved_state = world.store.open_operations().await.unwrap()[0].saved_state.clone().unwrap();
    let bar = world.directory.path().join("data/saved_states").join(format!("{saved_state}.gone"));
    fs::write(&bar, "").unwrap();
    world.host.faults().next(Operation::Sweep, Moment::Before, Fault::Fail);

    let (service, report) = world.daemon_and_report().await;
    let postponed = report.lines.iter().filter(|line| line.contains("retried at the next start")).count();
    assert!(postponed >= 2, "{:?}", report.lines);
    eventually("it runs", || async { state(&service.describe(&one).await.unwrap()) == StateName::Running }).await;
    service.suspend(&other).await.unwrap();
    service.stop().await;
    fs::remove_file(&bar).unwrap();
    let service = world.daemon().await;
    service.resume(&other, Initiator::User).await.unwrap();
    world.is_sound().await;
}

#[tokio::test]
async fn a_manifest_or_an_image_that_cannot_be_read_is_refused_by_name_and_hides_no_other() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (bad, good) = (create(&service, named("bad")).await, create(&service, named("good")).await);
    for id in [&bad, &good] {
        service.suspend(id).await.unwrap();
        service.evict(id).await.unwrap();
    }
    let image = image_of(&service, &bad).await;
    let base = service.describe(&bad).await.unwrap().sandbox.spec.image;
    service.stop().await;
    let data = world.directory.path().join("data");
    fs::write(data.join("saved_states").join(image.as_str()).join("manifest.json"), "{").unwrap();
    let source = world.directory.path().join("other");
    fs::create_dir_all(source.join("etc")).unwrap();
    fs::write(source.join("etc/other"), "other").unwrap();
    let other = world.storage().import(&source, Some("other"), |_| {}).await.unwrap().digest;
    fs::write(world.directory.path().join("images").join(other.as_str()).join("image.json"), "{").unwrap();
    fs::write(world.directory.path().join("images/tags/odd"), [0xff, 0xfe]).unwrap();

    let service = world.daemon().await;
    let refused = service.resume(&bad, Initiator::User).await.unwrap_err();
    assert!(refused.message().contains(image.as_str()), "{refused:?}");
    service.resume(&good, Initiator::User).await.unwrap();
    let listed = service.storage().images().await.unwrap();
    assert_eq!(listed.into_iter().map(|image| image.digest).collect::<Vec<_>>(), [base]);
    let from_other = CreateSpec::new(CreateFrom::Image("other".into()));
    let refused = service.create(from_other).await.unwrap_err();
    assert!(refused.message().contains(other.as_str()), "{refused:?}");
    let told: Vec<_> = service.storage().unreadable().await.unwrap().into_iter().map(|(what, _)| what).collect();
    assert_eq!(told, [format!("saved state {image}"), format!("image {other}")]);
    assert!(service.items().await.unwrap().iter().any(|item| item.id == image.as_str()));
}

fn template(from: CreateFrom) -> TemplateSpec {
    TemplateSpec {
        name: "web".parse().unwrap(),
        tags: vec!["latest".to_owned()],
        from,
        resources: None,
        variables: Default::default(),
        program: None,
    }
}

#[tokio::test]
async fn an_unreadable_template_keeps_its_snapshot_and_its_name() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("source")).await;
    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    let put = service.put_template(template(CreateFrom::Snapshot(snapshot.id.clone()))).await.unwrap();
    service.delete_snapshot_when_free(&snapshot.id).await.unwrap();
    let base = service.describe(&id).await.unwrap().sandbox.spec.image;
    service.terminate(&id).await.unwrap();
    service.stop().await;
    let record = world.store.templates().await.unwrap().remove(0);
    world.store.spoil(RowKind::Template, put.id.as_str(), "{\"v\":1,");

    let service = world.daemon().await;
    let refused = service.delete_snapshot(&snapshot.id).await.unwrap_err();
    assert!(refused.code() == Code::Conflict && refused.message().contains(put.id.as_str()), "{refused:?}");
    let refused = service.remove_image(&base).await.unwrap_err();
    assert!(refused.message().contains(put.id.as_str()), "{refused:?}");
    let refused = service.put_template(template(CreateFrom::Image("base".to_owned()))).await.unwrap_err();
    assert!(is_unreadable(&refused, put.id.as_str()), "{refused:?}");
    service.stop().await;

    world.store.commit(Change { templates: vec![record], ..Change::default() }).await.unwrap();
    let service = world.daemon().await;
    assert!(saved_states(&world).contains(&snapshot.saved_state.to_string()));
    service.remove_template("web", None).await.unwrap();
    eventually("the snapshot is deleted", || async { service.snapshot(&snapshot.id).await.is_err() }).await;
    world.is_sound().await;
}

#[tokio::test]
async fn an_unreadable_project_or_pool_is_not_replaced() {
    let mut world = World::new().await;
    world.settings.secrets_key = Some(SecretsKey::new([1; 32], LostSecrets::Refuse));
    let service = world.daemon().await;
    let value = SecretValue::new("correct-horse-battery".to_owned());
    let (one, two) = ("ONE".parse().unwrap(), "TWO".parse().unwrap());
    service.set_secret(&one, &value).await.unwrap();
    let other: ProjectId = "other".parse().unwrap();
    service.create_project(other.clone(), ProjectBudgets::default()).await.unwrap();
    let pool = || PoolSpec { ready: 0, ..one_worker() };
    let made = service.create_pool(pool()).await.unwrap().pool;
    service.stop().await;
    world.store.spoil_one_byte(RowKind::Project, "local");
    world.store.spoil_one_byte(RowKind::Project, "other");
    world.store.spoil_one_byte(RowKind::Pool, made.id.as_str());

    let service = world.daemon().await;
    let local = ProjectId::local();
    assert!(is_unreadable(&service.set_secret(&two, &value).await.unwrap_err(), "local"));
    assert!(is_unreadable(&service.remove_secret(&one).await.unwrap_err(), "local"));
    let refused = service.set_project_budgets(&local, ProjectBudgets::default()).await.unwrap_err();
    assert!(is_unreadable(&refused, "local"), "{refused:?}");
    let refused = service.create_project(other, ProjectBudgets::default()).await.unwrap_err();
    assert!(is_unreadable(&refused, "other"), "{refused:?}");
    assert!(is_unreadable(&service.create_pool(pool()).await.unwrap_err(), made.id.as_str()));
    assert_eq!(service.unreadable().await.unwrap().len(), 3);
}
