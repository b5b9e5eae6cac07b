//! Sandboxes that are created with the program of their image: that is one operation, and no
//! sandbox runs without the program.

use std::time::Duration;

use dorm_agent_client::ProcessStatus;
use dorm_lifecycle::{EventKind, FirstProgram, SandboxId, SnapshotKind, State, StateName};
use dorm_service::{Code, CreateFrom, CreateSpec, SandboxView, Service, ServiceError, TemplateSpec, Use};
use dorm_storage::ImageConfig;
use dorm_store::{EventFilter, SandboxFilter, Store as _};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::world::{World, eventually, state};

/// Returns a world with an image that has this command and this ready command.
async fn world(command: &[&str], ready: Option<&str>) -> World {
    let world = World::new().await;
    let config = ImageConfig {
        command: command.iter().map(|&word| word.to_owned()).collect(),
        ready: ready.map(str::to_owned),
        ..ImageConfig::default()
    };
    let storage = world.storage();
    let base = storage.resolve("base").await.unwrap();
    let image = storage.compose_image(&base.digest, None, config, None, |_| {}).await.unwrap();
    storage.tag(&image.digest, "app").await.unwrap();
    world
}

fn app() -> CreateSpec {
    CreateSpec { program: Some(FirstProgram::OfImage), ..CreateSpec::new(CreateFrom::Image("app".into())) }
}

fn creating(service: &Service) -> JoinHandle<Result<SandboxView, ServiceError>> {
    let service = service.clone();
    tokio::spawn(async move { service.create(app()).await })
}

/// Returns the only sandbox, if there is one.
async fn only(world: &World) -> Option<(SandboxId, State)> {
    let mut all = world.store.sandboxes(&SandboxFilter::default()).await.unwrap().into_iter();
    let record = all.next()?;
    assert!(all.next().is_none(), "there is one sandbox");
    Some((record.sandbox.id, record.sandbox.state))
}

/// Returns the only sandbox as soon as its program is being started.
async fn pending(world: &World) -> SandboxId {
    eventually("its run has begun", || async { !world.host.runs().is_empty() }).await;
    // After this time, its program has been started.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (id, state) = only(world).await.unwrap();
    assert!(matches!(state, State::Pending { program: FirstProgram::OfImage, .. }), "{state:?}");
    id
}

async fn processes(service: &Service, id: &SandboxId) -> Vec<ProcessStatus> {
    let (agent, _in_use) = service.agent(id, Use::Process).await.unwrap();
    agent.processes().await.unwrap()
}

async fn runs_its_program(service: &Service, id: &SandboxId) {
    let all = processes(service, id).await;
    let labels: Vec<_> = all.iter().filter_map(|process| process.label.as_deref()).collect();
    assert_eq!(labels, ["start"], "{all:?}");
}

/// Checks that the only sandbox is terminated, that its last event contains `why`, and that nothing
/// of it is left.
async fn is_gone(world: &World, why: &str) {
    let (id, state) = only(world).await.unwrap();
    assert_eq!(state.name(), StateName::Terminated);
    assert_eq!(world.events(&id).await, [EventKind::Created, EventKind::StartFailed, EventKind::Terminated]);
    let filter = EventFilter { sandbox: Some(id), newest: 1, ..EventFilter::default() };
    let last = world.store.events(&filter).await.unwrap().remove(0).event.detail.unwrap();
    assert!(last.contains(why), "{last}");
    assert!(world.host.runs().is_empty());
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_is_created_with_its_program_runs_it() {
    for ready in [None, Some("true")] {
        let world = world(&["sleep", "1000000"], ready).await;
        let service = world.daemon().await;
        let view = service.create(app()).await.unwrap();
        assert_eq!(state(&view), StateName::Running);
        runs_its_program(&service, &view.sandbox.id).await;
        assert_eq!(world.events(&view.sandbox.id).await, [EventKind::Created, EventKind::Started]);
        world.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn when_its_program_cannot_be_started_the_caller_is_told_and_nothing_runs() {
    let world = world(&["no-such-program"], None).await;
    let service = world.daemon().await;
    let failed = service.create(app()).await.unwrap_err();
    assert_eq!(failed.code(), Code::Failed);
    let gone = StateName::Terminated;
    assert!(matches!(&failed, ServiceError::OperationFailed { state, .. } if *state == gone), "{failed:?}");
    assert!(failed.message().contains("starting its image's program"), "{}", failed.message());
    is_gone(&world, "starting its image's program").await;
}

#[tokio::test(start_paused = true)]
async fn when_its_program_is_never_ready_nothing_runs_in_the_end() {
    let world = world(&["sleep", "1000000"], Some("echo not yet; false")).await;
    let service = world.daemon().await;
    let began = Instant::now();
    let failed = service.create(app()).await.unwrap_err();
    assert!(failed.message().contains("did not exit with status 0 within 300 s: not yet"), "{}", failed.message());
    assert_eq!(began.elapsed().as_secs() / 60, 5);
    is_gone(&world, "did not exit with status 0").await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_says_nothing_about_what_to_start_makes_no_record() {
    let world = world(&[], None).await;
    let service = world.daemon().await;
    let refused = service.create(app()).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(only(&world).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_leaves_a_sandbox_that_runs_its_program() {
    let world = world(&["sleep", "1000000"], Some("sleep 20")).await;
    let service = world.daemon().await;
    let caller = creating(&service);
    let id = pending(&world).await;
    caller.abort();
    eventually("it runs", || async { state(&service.describe(&id).await.unwrap()) == StateName::Running }).await;
    runs_its_program(&service, &id).await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_ends_before_the_program_is_ready_leaves_it_to_the_next_one() {
    let world = world(&["sleep", "1000000"], Some("sleep 20")).await;
    let service = world.daemon().await;
    let caller = creating(&service);
    let id = pending(&world).await;
    let left = service.stop_within(Duration::ZERO).await;
    assert!(left[0].contains(id.as_str()) && left[0].contains("pending"), "{left:?}");
    assert_eq!(caller.await.unwrap().unwrap_err().code(), Code::Unavailable);
    drop(service);
    let service = world.daemon().await;
    eventually("it runs", || async { state(&service.describe(&id).await.unwrap()) == StateName::Running }).await;
    runs_its_program(&service, &id).await;
    assert_eq!(world.host.runs().len(), 1);
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_terminated_at_once_while_its_program_gets_ready() {
    let world = world(&["sleep", "1000000"], Some("sleep 100000")).await;
    let service = world.daemon().await;
    let caller = creating(&service);
    let id = pending(&world).await;
    let began = Instant::now();
    assert_eq!(state(&service.terminate(&id).await.unwrap()), StateName::Terminated);
    assert!(began.elapsed() < Duration::from_secs(1));
    let told = caller.await.unwrap().unwrap_err();
    assert!(told.message().contains("it was terminated before"), "{}", told.message());
    is_gone(&world, "it was terminated before").await;
}

/// Returns the labels of the processes in a new sandbox, and the program that its record names.
async fn started(service: &Service, asked: CreateSpec) -> (Vec<Option<String>>, FirstProgram) {
    let sandbox = service.create(asked).await.unwrap().sandbox;
    let labels = processes(service, &sandbox.id).await.into_iter().map(|process| process.label).collect();
    (labels, sandbox.spec.program)
}

#[tokio::test(start_paused = true)]
async fn a_boot_from_files_starts_the_program_of_the_source_again() {
    let world = world(&["sleep", "1000000"], None).await;
    let service = world.daemon().await;
    let id = service.create(app()).await.unwrap().sandbox.id;
    let files = service.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap();
    service.terminate(&id).await.unwrap();
    let from = || CreateSpec::new(CreateFrom::Snapshot(files.id.clone()));
    let start = || vec![Some("start".to_owned())];
    assert_eq!(started(&service, from()).await, (start(), FirstProgram::OfImage));
    let without = CreateSpec { program: Some(FirstProgram::None), ..from() };
    assert_eq!(started(&service, without).await, (Vec::new(), FirstProgram::None));
    // Also after a restart of the source, which takes the same way.
    let restarted = service.restart(&id, None).await.unwrap().sandbox.sandbox;
    assert_eq!(restarted.spec.program, FirstProgram::OfImage);
    runs_its_program(&service, &restarted.id).await;
    world.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn memory_has_the_program_already_and_files_of_it_start_it() {
    let world = world(&["sleep", "1000000"], None).await;
    let service = world.daemon().await;
    let id = service.create(app()).await.unwrap().sandbox.id;
    let memory = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    let from = |id| CreateSpec::new(CreateFrom::Snapshot(id));
    let start = || vec![Some("start".to_owned())];
    assert_eq!(started(&service, from(memory.id.clone())).await, (start(), FirstProgram::OfImage));
    let child = service.clone_sandbox(&id, None).await.unwrap().clone.sandbox;
    assert_eq!(child.spec.program, FirstProgram::OfImage);
    let files = service.checkpoint(&child.id, SnapshotKind::Filesystem).await.unwrap();
    assert_eq!(started(&service, from(files.id)).await, (start(), FirstProgram::OfImage));
}

#[tokio::test(start_paused = true)]
async fn what_a_template_says_about_the_program_goes_before_what_its_snapshot_carries() {
    let world = world(&["sleep", "1000000"], None).await;
    let service = world.daemon().await;
    let with = service.create(app()).await.unwrap().sandbox.id;
    let without = service.create(CreateSpec { program: None, ..app() }).await.unwrap().sandbox.id;
    let cases = [
        (&with, None, FirstProgram::OfImage),
        (&with, Some(FirstProgram::None), FirstProgram::None),
        (&without, None, FirstProgram::None),
        (&without, Some(FirstProgram::OfImage), FirstProgram::OfImage),
    ];
    for (source, program, expected) in cases {
        let snapshot = service.checkpoint(source, SnapshotKind::Filesystem).await.unwrap();
        let template = TemplateSpec {
            name: "ready".parse().unwrap(),
            tags: vec!["latest".to_owned()],
            from: CreateFrom::Snapshot(snapshot.id),
            resources: None,
            variables: Default::default(),
            program,
        };
        service.put_template(template).await.unwrap();
        let asked = CreateSpec::new(CreateFrom::Template("ready".parse().unwrap()));
        assert_eq!(started(&service, asked).await.1, expected, "{program:?}");
    }
}
