//! Builds: they belong to the daemon, are continued by the next one, and leave nothing else.

use std::time::Duration;

use bytes::Bytes;
use dorm_build::{Command, Copy, Step};
use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Caller, Credential, Egress, ProjectId, StateName};
use dorm_service::{BuildProblem, Code, CreateFrom, CreateSpec, Service, ServiceError};
use dorm_storage::LogStream;
use dorm_store::{
    BuildPlan, BuildRecord, BuildResources, BuildState, BuildStepState, BuildTemplate, PlannedStep, ProjectBudgets,
    Recipe, SandboxFilter, Store as _, TemplateSource,
};
use futures_util::stream;

use crate::world::{World, eventually};

fn run(line: &str) -> Step {
    Step::Run(Command::Argv(line.split(' ').map(str::to_owned).collect()))
}

fn plan(tag: &str, steps: Vec<Step>) -> BuildPlan {
    let steps = steps.into_iter().map(PlannedStep::from);
    BuildPlan {
        recipe: Recipe::Steps { from: "base".to_owned(), steps: steps.collect() },
        context: None,
        tag: Some(tag.to_owned()),
        start_command: None,
        ready_command: None,
        is_cached: true,
        step_limit: Duration::from_secs(60),
        resources: BuildResources::default(),
        egress: Egress::Public,
        template: None,
        login: None,
    }
}

async fn end(service: &Service, build: &BuildRecord) -> BuildRecord {
    for _ in 0..100 {
        let build = service.await_build(&build.id, Duration::from_secs(600)).await.unwrap();
        if build.state.has_ended() {
            return build;
        }
    }
    panic!("the build does not end");
}

async fn log(service: &Service, build: &BuildRecord) -> Vec<String> {
    let (page, _) = service.build_log(&build.id, 0, 1000, Duration::ZERO).await.unwrap();
    page.lines.into_iter().map(|line| line.text).collect()
}

fn failure(build: &BuildRecord) -> (Option<u64>, Option<i32>, String) {
    let BuildState::Failed(failure) = &build.state else { panic!("{:?}", build.state) };
    (failure.step, failure.exit_code, failure.failure.reason.clone())
}

/// Checks that no sandbox of a build is left.
async fn is_clean(world: &World) {
    let all = world.store.sandboxes(&SandboxFilter::default()).await.unwrap();
    let left = all.iter().filter(|record| record.sandbox.state.name() != StateName::Terminated);
    assert_eq!(left.count(), 0);
    world.is_sound().await;
}

fn states(build: &BuildRecord) -> Vec<BuildStepState> {
    build.steps.iter().map(|step| step.state).collect()
}

#[tokio::test]
async fn an_image_is_built_from_steps_and_their_results_are_used_again() {
    let world = World::new().await;
    let service = world.daemon().await;
    let steps = vec![run("echo hello"), Step::Env("A".to_owned(), "1".to_owned()), run("touch /made")];
    let first = end(&service, &service.create_build(plan("made", steps.clone())).await.unwrap()).await;
    assert_eq!(first.state, BuildState::Succeeded, "{:?}", log(&service, &first).await);
    assert_eq!(states(&first), [BuildStepState::Done; 3]);
    let image = service.image("made").await.unwrap();
    assert_eq!((Some(&image.digest), &image.config.env), (first.image.as_ref(), &vec!["A=1".to_owned()]));
    let lines = log(&service, &first).await;
    assert!(lines.iter().any(|line| line == "hello") && lines.iter().any(|line| line.starts_with("[1/3] RUN")));
    let second = end(&service, &service.create_build(plan("made", steps.clone())).await.unwrap()).await;
    assert_eq!(states(&second), [BuildStepState::Cached, BuildStepState::Done, BuildStepState::Cached]);
    let forced = BuildPlan { is_cached: false, ..plan("made", steps) };
    let third = end(&service, &service.create_build(forced).await.unwrap()).await;
    assert_eq!(states(&third), [BuildStepState::Done; 3]);
    is_clean(&world).await;
}

#[tokio::test]
async fn a_step_that_fails_is_named_with_its_exit_code_and_those_before_it_are_kept() {
    let world = World::new().await;
    let service = world.daemon().await;
    let build = service.create_build(plan("made", vec![run("true"), run("false")])).await.unwrap();
    let build = end(&service, &build).await;
    assert_eq!(failure(&build), (Some(1), Some(1), "the command exited with code 1".to_owned()));
    assert_eq!(states(&build), [BuildStepState::Done, BuildStepState::Failed]);
    assert!(service.image("made").await.is_err());
    let missing = BuildPlan { recipe: Recipe::Steps { from: "nowhere".into(), steps: vec![] }, ..plan("x", vec![]) };
    let build = end(&service, &service.create_build(missing).await.unwrap()).await;
    let (step, _, reason) = failure(&build);
    assert!(step.is_none() && reason.contains("nowhere"), "{reason}");
    is_clean(&world).await;
}

#[tokio::test]
async fn the_next_daemon_continues_after_the_last_finished_step() {
    let world = World::new().await;
    let (service, life) = world.mortal().await;
    let caller = Caller { door: "api".parse().unwrap(), credential: Credential::OwnerKey };
    let asked = plan("made", vec![run("echo one"), run("sleep 30"), run("echo two")]);
    let build = service.as_caller(Some(caller.clone())).create_build(asked).await.unwrap();
    eventually("the second step runs", || async {
        states(&service.describe_build(&build.id).await.unwrap()).get(1) == Some(&BuildStepState::Running)
    })
    .await;
    world.kill(&life);
    drop(service);
    let service = world.daemon().await;
    tokio::time::pause();
    let build = end(&service, &build).await;
    assert_eq!(build.state, BuildState::Succeeded, "{:?}", log(&service, &build).await);
    let lines = log(&service, &build).await;
    assert_eq!(lines.iter().filter(|line| *line == "one").count(), 1, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| *line == "two").count(), 1, "{lines:?}");
    tokio::time::resume();
    is_clean(&world).await;
    // Each sandbox of it was made for its caller, also those of the second daemon.
    let all = world.store.sandboxes(&SandboxFilter::default()).await.unwrap();
    assert!(all.len() >= 3 && all.iter().all(|record| record.sandbox.created_by == Some(caller.clone())));
}

#[tokio::test]
async fn a_build_is_cancelled_while_it_waits_and_while_it_runs() {
    let world = World::new().await;
    let service = world.daemon().await;
    let begin = async |tag: &str| service.create_build(plan(tag, vec![run("sleep 1000")])).await.unwrap();
    let builds = [begin("a").await, begin("b").await, begin("c").await, begin("d").await];
    let waiting = async || {
        let mut waiting = Vec::new();
        for build in &builds {
            if service.describe_build(&build.id).await.unwrap().state == BuildState::Queued {
                waiting.push(build.id.clone());
            }
        }
        waiting
    };
    eventually("all but one of them run", async || waiting().await.len() == 1).await;
    let waiting = waiting().await.remove(0);
    let cancelled = service.cancel_build(&waiting).await.unwrap();
    assert_eq!(cancelled.state, BuildState::Cancelled, "the last place is for another project");
    for build in builds.iter().filter(|build| build.id != waiting) {
        service.cancel_build(&build.id).await.unwrap();
        assert_eq!(end(&service, build).await.state, BuildState::Cancelled);
        assert_eq!(service.cancel_build(&build.id).await.unwrap().state, BuildState::Cancelled);
    }
    is_clean(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_does_not_end_is_ended_at_its_time_limit() {
    let world = World::new().await;
    let service = world.daemon().await;
    let build = service.create_build(plan("made", vec![run("sleep 100000")])).await.unwrap();
    let (step, _, reason) = failure(&end(&service, &build).await);
    assert!(step == Some(0) && reason.contains("time"), "{reason}");
    is_clean(&world).await;
}

#[tokio::test]
async fn a_full_disk_during_a_step_fails_the_build_by_name() {
    let world = World::new().await;
    let service = world.daemon().await;
    world.host.faults().always(Operation::Save, Moment::Before, Fault::NoRoom);
    let build = service.create_build(plan("made", vec![run("true")])).await.unwrap();
    let (step, _, reason) = failure(&end(&service, &build).await);
    assert_eq!(step, Some(0), "{reason}");
    world.host.faults().clear();
    let build = end(&service, &service.create_build(plan("made", vec![run("true")])).await.unwrap()).await;
    assert_eq!(build.state, BuildState::Succeeded);
    is_clean(&world).await;
}

#[tokio::test]
async fn two_builds_of_one_name_both_succeed_and_the_later_one_has_the_name() {
    let world = World::new().await;
    let service = world.daemon().await;
    let first = service.create_build(plan("made", vec![run("touch /one")])).await.unwrap();
    let second = service.create_build(plan("made", vec![run("touch /two")])).await.unwrap();
    let (first, second) = (end(&service, &first).await, end(&service, &second).await);
    assert_eq!((&first.state, &second.state), (&BuildState::Succeeded, &BuildState::Succeeded));
    let made = service.image("made").await.unwrap().digest;
    assert!([first.image, second.image].contains(&Some(made)));
    is_clean(&world).await;
}

/// Returns an archive with one file, `file`.
pub(crate) fn upload(content: &'static [u8]) -> Vec<u8> {
    let mut builder = Vec::new();
    let mut header = [0_u8; 512];
    header[..4].copy_from_slice(b"file");
    header[100..107].copy_from_slice(b"0000644");
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[136..147].copy_from_slice(b"00000000000");
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[156] = b'0';
    header[257..263].copy_from_slice(b"ustar\0");
    header[263..265].copy_from_slice(b"00");
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    builder.extend_from_slice(&header);
    builder.extend_from_slice(content);
    builder.resize(builder.len().next_multiple_of(512) + 1024, 0);
    builder
}

#[tokio::test]
async fn a_context_is_of_one_project_and_goes_with_its_build() {
    let world = World::new().await;
    let service = world.daemon().await;
    let key = "a".repeat(64).parse().unwrap();
    let copy = Step::Copy(Copy::new(vec!["file".to_owned()], "/srv/".to_owned()));
    let with = |tag: &str| BuildPlan {
        context: Some("a".repeat(64).parse().unwrap()),
        ..plan(tag, vec![copy.clone(), run("cat /srv/file")])
    };
    let refused = service.create_build(with("made")).await.unwrap_err();
    assert!(matches!(refused, ServiceError::Build(BuildProblem::NoContext(_))), "{refused}");
    // A client that goes away in the middle leaves nothing.
    let cut = upload(b"content")[..600].to_vec();
    let pieces = stream::iter([Ok(Bytes::from(cut)), Err(std::io::ErrorKind::ConnectionReset.into())]);
    assert!(service.upload_context(&key, pieces, None).await.is_err());
    assert!(service.context(&key).await.is_err());
    let pieces = stream::iter([Ok(Bytes::from(upload(b"content")))]);
    let uploaded = service.upload_context(&key, pieces, None).await.unwrap();
    assert_eq!((uploaded.entries, uploaded.bytes), (1, 7));
    let other: ProjectId = "other".parse().unwrap();
    service.create_project(other.clone(), ProjectBudgets::default()).await.unwrap();
    let other = service.for_project(&other).unwrap();
    let refused = other.create_build(with("made")).await.unwrap_err();
    assert!(matches!(refused, ServiceError::Build(BuildProblem::NoContext(_))), "{refused}");
    let build = end(&service, &service.create_build(with("made")).await.unwrap()).await;
    assert_eq!(build.state, BuildState::Succeeded, "{:?}", log(&service, &build).await);
    assert!(log(&service, &build).await.iter().any(|line| line == "content"));
    eventually("the context is removed", || async { service.context(&key).await.is_err() }).await;
    is_clean(&world).await;
}

#[tokio::test]
async fn images_and_contexts_count_as_disk_of_their_project() {
    let world = World::new().await;
    let local = world.daemon().await;
    let id: ProjectId = "one".parse().unwrap();
    local.create_project(id.clone(), ProjectBudgets::default()).await.unwrap();
    let one = local.for_project(&id).unwrap();
    let used = async || local.describe_project(&id).await.unwrap().used.disk_bytes;
    assert_eq!(used().await, 0, "images of the daemon are not theirs");
    let key = "a".repeat(64).parse().unwrap();
    let pieces = stream::iter([Ok(Bytes::from(upload(b"content")))]);
    one.upload_context(&key, pieces, None).await.unwrap();
    let with_context = used().await;
    assert!(with_context >= 7, "{with_context}");
    let built = end(&one, &one.create_build(plan("made", vec![])).await.unwrap()).await;
    assert_eq!(built.state, BuildState::Succeeded, "{:?}", log(&one, &built).await);
    assert_eq!(used().await, with_context + one.image("made").await.unwrap().bytes);
    let budgets = ProjectBudgets { disk_bytes: Some(used().await), ..ProjectBudgets::default() };
    local.set_project_budgets(&id, budgets).await.unwrap();
    let build = end(&one, &one.create_build(plan("more", vec![run("touch /more")])).await.unwrap()).await;
    let (_, _, reason) = failure(&build);
    assert!(reason.contains("has a budget of"), "{reason}");
    let pieces = stream::iter([Ok(Bytes::from(upload(b"content")))]);
    let refused = one.upload_context(&"b".repeat(64).parse().unwrap(), pieces, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::NoRoom, "{refused}");
}

#[tokio::test]
async fn projects_build_for_themselves_and_see_nothing_of_each_other() {
    let world = World::new().await;
    let local = world.daemon().await;
    let mut projects = Vec::new();
    for name in ["one", "two"] {
        let id: ProjectId = name.parse().unwrap();
        local.create_project(id.clone(), ProjectBudgets::default()).await.unwrap();
        projects.push(local.for_project(&id).unwrap());
    }
    let [one, two] = &projects[..] else { panic!() };
    let build = one.create_build(plan("made", vec![run("touch /secret")])).await.unwrap();
    let build = end(one, &build).await;
    assert_eq!(build.state, BuildState::Succeeded, "{:?}", log(one, &build).await);
    let image = one.image("made").await.unwrap();
    assert_eq!(image.tags, ["made"]);
    let digest = image.digest.to_string();
    for reference in ["made", &digest, &digest[..12], "@one/made"] {
        let error = two.image(reference).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound, "{reference}: {error}");
        assert!(!error.message().replace(reference, "").contains("one"), "{error}");
    }
    let seen = |images: Vec<dorm_storage::Image>| images.into_iter().flat_map(|image| image.tags).collect::<Vec<_>>();
    assert_eq!(seen(two.images().await.unwrap()), ["base"]);
    assert_eq!(seen(one.images().await.unwrap()).len(), 2);
    assert!(two.describe_build(&build.id).await.is_err() && two.cancel_build(&build.id).await.is_err());
    assert!(two.build_log(&build.id, 0, 10, Duration::ZERO).await.is_err());
    assert!(two.builds().await.unwrap().is_empty());
    assert!(two.delete_image("base").await.is_err(), "what is shared is not theirs to delete");
    // The same steps are the same image; its name in one project says nothing in the other.
    let same = end(two, &two.create_build(plan("mine", vec![run("touch /secret")])).await.unwrap()).await;
    assert_eq!(states(&same), [BuildStepState::Done], "results of another project are not used");
    assert_eq!(two.image("mine").await.unwrap().tags, ["mine"]);
    one.delete_image("made").await.unwrap();
    assert!(one.image("made").await.is_err() && two.image("mine").await.is_ok());
    is_clean(&world).await;
}

#[tokio::test]
async fn a_template_has_its_program_running_and_keeps_its_snapshot_while_a_tag_needs_it() {
    let world = World::new().await;
    let service = world.daemon().await;
    let template = |tags: &[&str]| BuildPlan {
        tag: None,
        start_command: Some("cat".to_owned()),
        template: Some(BuildTemplate {
            name: "web".parse().unwrap(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            resources: None,
            variables: [("A".to_owned(), "1".to_owned())].into(),
        }),
        ..plan("", vec![])
    };
    let build = end(&service, &service.create_build(template(&["latest"])).await.unwrap()).await;
    assert_eq!(build.state, BuildState::Succeeded, "{:?}", log(&service, &build).await);
    let snapshot = build.snapshot.clone().unwrap();
    let found = service.template("web").await.unwrap();
    assert_eq!(found.tags["latest"].source, TemplateSource::Snapshot(snapshot.clone()));
    let refused = service.delete_snapshot(&snapshot).await.unwrap_err();
    assert!(refused.message().contains("template web:latest"), "{refused}");
    let from = |text: &str| CreateSpec::new(CreateFrom::Template(text.parse().unwrap()));
    let view = service.create(from("web")).await.unwrap();
    assert_eq!(view.sandbox.spec.variables.0["A"], "1");
    assert_eq!(view.sandbox.origin.snapshot(), Some(&snapshot));
    service.terminate(&view.sandbox.id).await.unwrap();
    for missing in ["web:v2", "nothing"] {
        let error = service.create(from(missing)).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound, "{error}");
    }
    let other: ProjectId = "other".parse().unwrap();
    service.create_project(other.clone(), ProjectBudgets::default()).await.unwrap();
    let other = service.for_project(&other).unwrap();
    assert_eq!(other.create(from("web")).await.unwrap_err().code(), Code::NotFound);
    assert!(other.templates().await.unwrap().is_empty());
    // A further tag keeps the snapshot when the first one is moved.
    service.tag_template(&"web".parse().unwrap(), vec!["v1".to_owned()]).await.unwrap();
    let moved = end(&service, &service.create_build(template(&["latest"])).await.unwrap()).await;
    assert_ne!(moved.snapshot, build.snapshot);
    assert!(service.delete_snapshot(&snapshot).await.is_err());
    service.remove_template("web", Some("v1")).await.unwrap();
    eventually("the snapshot is deleted", || async { service.snapshot(&snapshot).await.is_err() }).await;
    service.remove_template("web", None).await.unwrap();
    let last = moved.snapshot.unwrap();
    eventually("the last snapshot is deleted", || async { service.snapshot(&last).await.is_err() }).await;
    is_clean(&world).await;
}

#[tokio::test]
async fn lines_of_a_log_have_their_step_and_stream() {
    let world = World::new().await;
    let service = world.daemon().await;
    let build = end(&service, &service.create_build(plan("made", vec![run("echo hello")])).await.unwrap()).await;
    let (page, _) = service.build_log(&build.id, 0, 1000, Duration::ZERO).await.unwrap();
    let hello = page.lines.iter().find(|line| line.text == "hello").unwrap();
    assert_eq!((hello.step, hello.stream), (Some(0), LogStream::Stdout));
    let (rest, _) = service.build_log(&build.id, page.next, 1000, Duration::from_secs(600)).await.unwrap();
    assert!(rest.lines.is_empty(), "the log of an ended build is not waited for");
}
