//! Reserved builds: they have an id and a template before their steps are known.

use std::time::Duration;

use bytes::Bytes;
use dorm_build::{Command, Copy, Step};
use dorm_lifecycle::{Digest, ProjectId};
use dorm_ports::Login;
use dorm_service::{BuildSteps, Code, LostSecrets, SecretsKey, Service};
use dorm_store::{
    BuildRecord, BuildResources, BuildState, BuildTemplate, PlannedStep, ProjectBudgets, Recipe, Store as _,
};
use futures_util::stream;

use crate::builds::upload;
use crate::world::{World, eventually};

fn template(name: &str) -> BuildTemplate {
    let (name, tags) = (name.parse().unwrap(), vec!["default".to_owned()]);
    BuildTemplate { name, tags, resources: None, variables: Default::default() }
}

fn steps(all: Vec<PlannedStep>) -> BuildSteps {
    let recipe = Recipe::Steps { from: "base".to_owned(), steps: all };
    BuildSteps { recipe, start_command: None, ready_command: None, is_cached: true, login: None }
}

fn run(line: &str) -> PlannedStep {
    Step::Run(Command::Argv(line.split(' ').map(str::to_owned).collect())).into()
}

async fn reserve(service: &Service, name: &str) -> BuildRecord {
    service.reserve_build(template(name), BuildResources::default()).await.unwrap()
}

async fn end(service: &Service, build: &BuildRecord) -> BuildRecord {
    service.await_build(&build.id, Duration::from_secs(600)).await.unwrap()
}

#[tokio::test]
async fn a_reserved_build_waits_for_its_steps_also_across_a_restart() {
    let world = World::new().await;
    let (service, life) = world.mortal().await;
    let build = reserve(&service, "team/web_1").await;
    let id = service.id_of_template(&"team/web_1".parse().unwrap()).await.unwrap();
    assert_eq!(build.state, BuildState::Reserved);
    world.kill(&life);
    drop(service);
    let service = world.daemon().await;
    assert_eq!(service.describe_build(&build.id).await.unwrap().state, BuildState::Reserved);
    let asked = steps(vec![run("touch /made")]);
    assert_eq!(service.start_build(&build.id, asked.clone()).await.unwrap().state, BuildState::Queued);
    // A client that has not heard the answer sends the request again.
    service.start_build(&build.id, asked).await.unwrap();
    let built = end(&service, &build).await;
    assert_eq!(built.state, BuildState::Succeeded);
    assert_eq!(service.template("team/web_1").await.unwrap().id, id, "the id was known before");
    let refused = service.start_build(&build.id, steps(vec![run("true")])).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict, "{refused}");
    world.is_sound().await;
}

#[tokio::test]
async fn steps_that_cannot_be_carried_out_leave_a_build_reserved() {
    let world = World::new().await;
    let service = world.daemon().await;
    let build = reserve(&service, "web").await;
    let key: Digest = "a".repeat(64).parse().unwrap();
    let copy = Step::Copy(Copy::new(vec!["a".to_owned()], "/a".to_owned()));
    let missing = PlannedStep { context: Some(key), ..copy.into() };
    assert_eq!(service.start_build(&build.id, steps(vec![missing])).await.unwrap_err().code(), Code::NotFound);
    let bad = steps(vec![Step::Workdir(String::new()).into()]);
    assert_eq!(service.start_build(&build.id, bad).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(service.describe_build(&build.id).await.unwrap().state, BuildState::Reserved);
    let cancelled = service.cancel_build(&build.id).await.unwrap();
    assert_eq!(cancelled.state, BuildState::Cancelled);
    let bad = BuildTemplate { tags: vec!["a b".to_owned()], ..template("web") };
    assert!(service.reserve_build(bad, BuildResources::default()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_build_without_steps_fails_after_an_hour_and_keeps_contexts_until_then() {
    let world = World::new().await;
    let service = world.daemon().await;
    let key: Digest = "b".repeat(64).parse().unwrap();
    let build = reserve(&service, "web").await;
    let other = reserve(&service, "other").await;
    let bytes = Bytes::from(upload(b"hi"));
    service.upload_context(&key, stream::iter([Ok(bytes)]), None).await.unwrap();
    let copy = Step::Copy(Copy::new(vec!["file".to_owned()], "/a".to_owned()));
    let step = PlannedStep { context: Some(key.clone()), user: None, line: Some(1), ..copy.into() };
    service.start_build(&build.id, steps(vec![step])).await.unwrap();
    assert_eq!(end(&service, &build).await.state, BuildState::Succeeded);
    assert!(service.context(&key).await.is_ok(), "the other client may have been told that it is there");
    tokio::time::sleep(Duration::from_secs(3700)).await;
    eventually("it fails", || async { service.describe_build(&other.id).await.unwrap().state.has_ended() }).await;
    let BuildState::Failed(failure) = service.describe_build(&other.id).await.unwrap().state else { panic!() };
    assert_eq!(failure.failure.code, Code::TimedOut);
    world.is_sound().await;
}

#[tokio::test]
async fn the_password_for_a_registry_is_recorded_sealed_and_forgotten_at_the_end() {
    let mut world = World::new().await;
    world.settings.secrets_key = Some(SecretsKey::new([1; 32], LostSecrets::Refuse));
    let service = world.daemon().await;
    let build = reserve(&service, "web").await;
    let login = Some(Login { user: "ann".to_owned(), password: "hunter2".to_owned() });
    service.start_build(&build.id, BuildSteps { login, ..steps(vec![run("true")]) }).await.unwrap();
    let recorded = world.store.build(&build.id).await.unwrap().unwrap();
    assert!(!format!("{recorded:?}").contains("hunter2") || recorded.state.has_ended());
    assert_eq!(end(&service, &build).await.state, BuildState::Succeeded);
    assert_eq!(world.store.build(&build.id).await.unwrap().unwrap().plan.login, None);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_permits_one_upload_to_one_project_for_an_hour() {
    let world = World::new().await;
    let service = world.daemon().await;
    let (key, other_key): (Digest, Digest) = ("a".repeat(64).parse().unwrap(), "b".repeat(64).parse().unwrap());
    let ticket = service.upload_ticket(&key);
    let project: ProjectId = "other".parse().unwrap();
    service.create_project(project.clone(), ProjectBudgets::default()).await.unwrap();
    assert!(service.is_upload_ticket(&key, &ticket));
    assert!(!service.is_upload_ticket(&other_key, &ticket));
    assert!(!service.for_project(&project).unwrap().is_upload_ticket(&key, &ticket));
    for bad in ["", ".", "1.x", "9999999999999.x"] {
        assert!(!service.is_upload_ticket(&key, bad), "{bad}");
    }
    tokio::time::sleep(Duration::from_secs(3601)).await;
    assert!(!service.is_upload_ticket(&key, &ticket));
}
