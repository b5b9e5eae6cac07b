//! Forks, and snapshots that are deleted automatically.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{EventKind, Initiator, SandboxId, SnapshotKind, StateName, Variables};
use dorm_service::{
    CheckpointSpec, Code, CreateFrom, CreateSpec, FORK_MAX, ForkChildSpec, ForkSpec, Residence, SecretSpec,
    SecretSpecs, Service,
};
use dorm_store::{OnPartialFailure, SandboxFilter, SnapshotStatus, Store as _};
use futures_util::StreamExt as _;

use crate::world::{Counter, World, create, eventually, named, state};

fn children(count: usize, on_partial_failure: OnPartialFailure) -> ForkSpec {
    ForkSpec {
        children: vec![ForkChildSpec::default(); count],
        on_partial_failure,
        volumes: dorm_service::FollowingVolumes::Same,
    }
}

fn worker(name: &str) -> ForkChildSpec {
    ForkChildSpec { name: Some(name.parse().unwrap()), ..ForkChildSpec::default() }
}

async fn no_snapshot_is_left(service: &Service) {
    eventually("the fork's snapshot is gone", || async { service.snapshots().await.unwrap().is_empty() }).await;
}

async fn living(world: &World) -> Vec<SandboxId> {
    let all = world.store.sandboxes(&SandboxFilter::default()).await.unwrap();
    let living = all.into_iter().filter(|record| record.sandbox.state.name() != StateName::Terminated);
    living.map(|record| record.sandbox.id).collect()
}

#[tokio::test]
async fn children_continue_from_one_moment_and_diverge() {
    let world = World::new().await;
    let service = world.daemon().await;
    let mut asked = named("web");
    asked.variables = BTreeMap::from([("COLOUR".to_owned(), "red".to_owned()), ("SIZE".to_owned(), "1".to_owned())]);
    asked.labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    let id = create(&service, asked).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 1");
    let mut own = worker("second");
    own.variables = BTreeMap::from([("COLOUR".to_owned(), "blue".to_owned())]);
    own.labels = BTreeMap::from([("role".to_owned(), "b".to_owned())]);
    let asked = ForkSpec {
        children: vec![worker("first"), own, ForkChildSpec::default()],
        on_partial_failure: OnPartialFailure::Keep,
        volumes: dorm_service::FollowingVolumes::Same,
    };
    let made: Vec<_> = service.fork(&id, asked).await.unwrap().into_iter().map(Result::unwrap).collect();
    let names: Vec<_> = made.iter().map(|view| view.sandbox.spec.name.as_ref().map(|name| name.as_str())).collect();
    assert_eq!(names, [Some("first"), Some("second"), None], "in the order they were asked for");
    for view in &made {
        let mut of_child = counter;
        assert_eq!(of_child.ask(&service, &view.sandbox.id).await.unwrap(), "x 2");
        assert_eq!(of_child.ask(&service, &view.sandbox.id).await.unwrap(), "x 3");
    }
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2", "the source continues");
    let second = &made[1].sandbox.spec;
    let variable = |name: &str| second.variables.0.get(name).map(String::as_str);
    assert_eq!((variable("COLOUR"), variable("SIZE")), (Some("blue"), Some("1")));
    assert_eq!(second.labels.keys().collect::<Vec<_>>(), ["role", "team"]);
    assert!(world.events(&id).await.contains(&EventKind::Forked));
    no_snapshot_is_left(&service).await;
    world.is_sound().await;
}

#[tokio::test]
async fn secrets_follow_only_when_they_are_named() {
    let world = World::new().await;
    let service = world.daemon().await;
    let secrets = [("TOKEN", "hunter2"), ("KEY", "hunter3")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut asked = named("web");
    asked.variables.insert("TOKEN".to_owned(), "none".to_owned());
    asked.secrets = Variables(secrets.into());
    let id = create(&service, asked).await;
    let child = |secrets: &[(&str, SecretSpec)]| ForkChildSpec {
        secrets: secrets.iter().map(|(name, asked)| ((*name).to_owned(), asked.clone())).collect(),
        ..ForkChildSpec::default()
    };
    let other = child(&[("KEY", SecretSpec::Value("hunter4".to_owned()))]);
    let children = vec![child(&[]), child(&[("TOKEN", SecretSpec::Kept)]), other];
    let made = service
        .fork(
            &id,
            ForkSpec {
                children,
                on_partial_failure: OnPartialFailure::RollBack,
                volumes: dorm_service::FollowingVolumes::Same,
            },
        )
        .await
        .unwrap();
    let mut told = vec![printed(&service, &id).await];
    for view in made {
        told.push(printed(&service, &view.unwrap().sandbox.id).await);
    }
    assert_eq!(told, ["hunter2 hunter3", "none", "hunter2", "none hunter4"]);
    let clone = service.clone_sandbox(&id, None).await.unwrap().clone.sandbox.id;
    assert_eq!(printed(&service, &clone).await, "none");
    let kept = SecretSpecs::from([("KEY".to_owned(), SecretSpec::Kept)]);
    let clone = service
        .clone_with(
            &id,
            ForkChildSpec { secrets: kept, ..ForkChildSpec::default() },
            dorm_service::FollowingVolumes::Same,
        )
        .await
        .unwrap()
        .clone
        .sandbox
        .id;
    assert_eq!(printed(&service, &clone).await, "none hunter3");

    let missing = vec![child(&[("OTHER", SecretSpec::Kept)])];
    let refused = service
        .fork(
            &id,
            ForkSpec {
                children: missing,
                on_partial_failure: OnPartialFailure::Keep,
                volumes: dorm_service::FollowingVolumes::Same,
            },
        )
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("no secret 'OTHER'"), "{}", refused.message());

    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    let view = service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(printed(&service, &id).await, "hunter2 hunter3", "its own come back with it");
    let events = world.store.events(&dorm_store::EventFilter::default()).await.unwrap();
    assert!(!format!("{view:?} {events:?}").contains("hunter"), "{view:?}");
}

/// Returns the values of `TOKEN` and `KEY` in a process that is started now.
async fn printed(service: &Service, id: &SandboxId) -> String {
    let (agent, _in_use) = service.agent(id, dorm_service::Use::Exec).await.unwrap();
    let words = ["sh", "-c", "echo $TOKEN $KEY"].map(|word| dorm_agent_client::GuestString::new(word).unwrap());
    let started = agent.start(&dorm_agent_client::ProcessSpec::new(words.to_vec())).await.unwrap();
    let mut output = agent.output(started.process, dorm_agent_client::Offsets { stdout: 0, stderr: 0 }).await.unwrap();
    let mut text = Vec::new();
    while let Some(item) = output.next().await {
        if let dorm_agent_client::Output::Stdout { bytes, .. } = item.unwrap() {
            text.extend_from_slice(&bytes);
        }
    }
    String::from_utf8(text).unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_suspended_source_does_not_wake_for_a_fork() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let mut counter = Counter::start(&service, &id, "x").await;
    counter.ask(&service, &id).await.unwrap();
    service.suspend(&id).await.unwrap();
    service.evict(&id).await.unwrap();
    let made = service.fork(&id, children(2, OnPartialFailure::RollBack)).await.unwrap();
    for child in made {
        let mut of_child = counter;
        assert_eq!(of_child.ask(&service, &child.unwrap().sandbox.id).await.unwrap(), "x 2");
    }
    let source = service.describe(&id).await.unwrap();
    assert_eq!((state(&source), source.residence), (StateName::Suspended, Residence::Evicted));
    no_snapshot_is_left(&service).await;
    service.resume(&id, Initiator::User).await.unwrap();
    assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2");
    world.is_sound().await;
}

#[tokio::test]
async fn when_one_child_of_a_fork_that_rolls_back_fails_none_is_left() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    world.host.faults().plan(Operation::Restore, 3, Moment::Before, Fault::Fail);
    let failed = service.fork(&id, children(5, OnPartialFailure::RollBack)).await.unwrap_err();
    assert_eq!(failed.code(), Code::Failed);
    assert!(failed.message().contains("1 of 5 children could not be created"), "{}", failed.message());
    assert_eq!(living(&world).await, std::slice::from_ref(&id));
    no_snapshot_is_left(&service).await;
    world.is_sound().await;
    world.host.faults().plan(Operation::Restore, 3, Moment::Before, Fault::Fail);
    let made = service.fork(&id, children(5, OnPartialFailure::Keep)).await.unwrap();
    assert_eq!(made.iter().filter(|child| child.is_ok()).count(), 4, "the others stay");
    assert_eq!(living(&world).await.len(), 5);
    no_snapshot_is_left(&service).await;
    world.is_sound().await;
}

#[tokio::test]
async fn a_fork_that_cannot_be_made_changes_nothing() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    for count in [0, FORK_MAX + 1] {
        let refused = service.fork(&id, children(count, OnPartialFailure::Keep)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    let twice = ForkSpec {
        children: vec![worker("a"), worker("a")],
        on_partial_failure: OnPartialFailure::Keep,
        volumes: dorm_service::FollowingVolumes::Same,
    };
    assert_eq!(service.fork(&id, twice).await.unwrap_err().code(), Code::InvalidArgument);
    let taken = ForkSpec {
        children: vec![worker("b"), worker("web")],
        on_partial_failure: OnPartialFailure::Keep,
        volumes: dorm_service::FollowingVolumes::Same,
    };
    assert_eq!(service.fork(&id, taken).await.unwrap_err().code(), Code::Conflict);
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Fail);
    assert_eq!(service.fork(&id, children(2, OnPartialFailure::Keep)).await.unwrap_err().code(), Code::Failed);
    assert_eq!(living(&world).await, std::slice::from_ref(&id));
    no_snapshot_is_left(&service).await;
    world.is_sound().await;
    service.terminate(&id).await.unwrap();
    assert_eq!(service.fork(&id, children(2, OnPartialFailure::Keep)).await.unwrap_err().code(), Code::Gone);
}

#[tokio::test]
async fn a_daemon_that_dies_in_the_middle_of_a_fork_of_twenty_leaves_all_children_or_no_child() {
    for (call, nth) in [(Operation::Save, 1), (Operation::Restore, 1), (Operation::Restore, 11)] {
        let world = World::new().await;
        // A runtime of its own, so that the daemon can be killed with all its tasks.
        let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (parts, faults) = (world.parts(), world.host.faults().clone());
        let (tell, told) = tokio::sync::oneshot::channel();
        doomed.spawn(async move {
            let (service, _) = Service::open(parts).await.unwrap();
            let id = create(&service, named("web")).await;
            let mut counter = Counter::start(&service, &id, "x").await;
            counter.ask(&service, &id).await.unwrap();
            faults.plan(call, nth, Moment::After, Fault::Hang);
            let _ = tell.send((id.clone(), counter));
            drop(service.fork(&id, children(20, OnPartialFailure::RollBack)).await);
        });
        let (id, mut counter) = told.await.unwrap();
        eventually("it hangs", || async { world.host.faults().struck(call) == 1 }).await;
        // A task that is still running must not change the records after the next daemon has read
        // them.
        let ended = tokio::task::spawn_blocking(move || doomed.shutdown_timeout(Duration::from_secs(60)));
        ended.await.unwrap();
        world.host.open();
        let service = world.daemon().await;
        eventually("nobody but the source lives", || async { living(&world).await == [id.clone()] }).await;
        no_snapshot_is_left(&service).await;
        eventually("it is settled", || async { state(&service.describe(&id).await.unwrap()) == StateName::Running })
            .await;
        eventually("the fork is closed", || async { world.store.open_operations().await.unwrap().is_empty() }).await;
        world.is_sound().await;
        assert_eq!(counter.ask(&service, &id).await.unwrap(), "x 2", "{call:?} {nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_goes_at_its_time_and_another_when_nobody_uses_it() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let settings = CheckpointSpec {
        kind: SnapshotKind::Memory,
        name: None,
        labels: BTreeMap::from([("why".to_owned(), "test".to_owned())]),
        expires: Some(Duration::from_secs(3600)),
    };
    let expiring = service.checkpoint_as(&id, settings).await.unwrap();
    assert_eq!(expiring.labels.get("why").map(String::as_str), Some("test"));
    let kept = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3500)).await;
    assert_eq!(service.snapshots().await.unwrap().len(), 2);
    // The expiry of the snapshot is kept across a restart.
    service.stop().await;
    let service = world.daemon().await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    eventually("it is gone", || async { service.snapshots().await.unwrap().len() == 1 }).await;
    assert_eq!(service.snapshot(&kept.id).await.unwrap().status, SnapshotStatus::Completed);

    world.host.faults().next(Operation::Restore, Moment::Before, Fault::Hang);
    let starting = {
        let (service, snapshot) = (service.clone(), kept.id.clone());
        tokio::spawn(async move { service.create(CreateSpec::new(CreateFrom::Snapshot(snapshot))).await })
    };
    eventually("one is starting", || async { world.host.faults().struck(Operation::Restore) == 1 }).await;
    let refused = service.delete_snapshot(&kept.id).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    service.delete_snapshot_when_free(&kept.id).await.unwrap();
    let late = service.create(CreateSpec::new(CreateFrom::Snapshot(kept.id.clone()))).await.unwrap_err();
    assert_eq!(late.code(), Code::Conflict, "nothing starts from it any more");
    world.host.faults().release();
    starting.await.unwrap().unwrap();
    no_snapshot_is_left(&service).await;
    world.is_sound().await;
}
