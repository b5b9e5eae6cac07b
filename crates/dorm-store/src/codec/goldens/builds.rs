//! Golden builds and templates.

use std::time::Duration;

use dorm_build::{Command, Copy, Step};
use dorm_lifecycle::{BuildId, Digest, Egress, FirstProgram, ProjectId, Resources, SandboxId, SnapshotId, TemplateId};

use super::{at, egress_rules};
use crate::{
    BuildFailure, BuildLogin, BuildPlan, BuildRecord, BuildResources, BuildState, BuildStep, BuildStepState,
    BuildTemplate, BuildWork, Code, FailureRecord, PlannedStep, Recipe, TemplateRecord, TemplateSource,
    TemplateVersion,
};

fn text(text: &str) -> String {
    text.to_owned()
}

fn digest(digit: &str) -> Digest {
    digit.repeat(64).parse().unwrap()
}

fn plan() -> BuildPlan {
    BuildPlan {
        recipe: Recipe::Dockerfile {
            text: text("FROM base\nARG X\nRUN make\n"),
            arguments: [(text("X"), text("1"))].into(),
        },
        context: Some(digest("1")),
        tag: Some(text("app")),
        start_command: Some(text("serve")),
        ready_command: Some(text("ready")),
        is_cached: true,
        step_limit: Duration::from_secs(1800),
        resources: BuildResources { cpu_millis: Some(500), memory_bytes: Some(1 << 30), disk_bytes: Some(8 << 30) },
        egress: egress_rules(),
        template: Some(BuildTemplate {
            name: "app".parse().unwrap(),
            tags: vec![text("latest"), text("v1")],
            resources: Some(Resources::default()),
            variables: [(text("LANG"), text("C"))].into(),
        }),
        login: Some(BuildLogin { user: text("ann"), password: text("dorm1:0:x") }),
    }
}

/// Every kind of step.
fn planned() -> Vec<PlannedStep> {
    let all = [
        Step::Run(Command::Shell(text("a b"))),
        Step::Run(Command::Login(text("a b"))),
        Step::Run(Command::Argv(vec![text("a"), text("b")])),
        Step::Copy(Copy::new(vec![text("src")], text("/srv/"))),
        Step::Copy(Copy {
            owner: Some(text("app:app")),
            mode: Some(0o640),
            ..Copy::new(vec![text("etc")], text("/etc/app"))
        }),
        Step::Env(text("A"), text("1")),
        Step::Workdir(text("/srv")),
        Step::User(text("app")),
        Step::Entrypoint(vec![text("a")]),
        Step::Cmd(vec![text("b")]),
    ];
    let mut steps = all.map(PlannedStep::from).to_vec();
    steps.push(PlannedStep { context: Some(digest("4")), is_forced: true, ..steps[3].clone() });
    steps.push(PlannedStep { user: Some(text("app")), line: Some(3), ..steps[0].clone() });
    steps
}

/// A step in every state.
fn done_and_others() -> Vec<BuildStep> {
    let done = BuildStep {
        title: text("RUN make"),
        line: Some(3),
        key: Some("a".repeat(64)),
        state: BuildStepState::Done,
        snapshot: Some(SnapshotId::from_random([4; 20])),
        began: Some(at(1_790_000_001_000)),
        ended: Some(at(1_790_000_002_000)),
    };
    let waiting = BuildStep {
        line: None,
        key: None,
        state: BuildStepState::Waiting,
        snapshot: None,
        began: None,
        ended: None,
        ..done.clone()
    };
    let steps = [BuildStepState::Running, BuildStepState::Cached, BuildStepState::Failed];
    let steps = steps.map(|state| BuildStep { state, ..done.clone() });
    [vec![done, waiting], steps.into()].concat()
}

pub(super) fn builds() -> Vec<(String, BuildRecord)> {
    let running = BuildRecord {
        id: BuildId::from_random([21; 20]),
        project: ProjectId::local(),
        plan: plan(),
        base: Some(digest("2")),
        steps: done_and_others(),
        work: Some(BuildWork { sandbox: SandboxId::from_random([1; 20]), snapshot: SnapshotId::from_random([5; 20]) }),
        state: BuildState::Running,
        cancel: true,
        caller: super::callers::key(),
        image: Some(digest("3")),
        is_tried: true,
        snapshot: Some(SnapshotId::from_random([6; 20])),
        created: at(1_790_000_000_000),
        began: Some(at(1_790_000_000_500)),
        ended: Some(at(1_790_000_003_000)),
    };
    let queued = BuildRecord {
        plan: BuildPlan {
            recipe: Recipe::Steps { from: text("base"), steps: planned() },
            context: None,
            tag: None,
            start_command: None,
            ready_command: None,
            is_cached: false,
            resources: BuildResources::default(),
            egress: Egress::Public,
            template: None,
            login: None,
            ..running.plan.clone()
        },
        base: None,
        steps: Vec::new(),
        work: None,
        state: BuildState::Queued,
        cancel: false,
        caller: None,
        image: None,
        is_tried: false,
        snapshot: None,
        began: None,
        ended: None,
        ..running.clone()
    };
    let failed = BuildFailure {
        step: Some(1),
        exit_code: Some(2),
        failure: FailureRecord::new(Code::Failed, "the command exited with code 2"),
    };
    let elsewhere = BuildFailure { step: None, exit_code: None, ..failed.clone() };
    let of = |name: &str, state| (text(name), BuildRecord { state, ..running.clone() });
    let awaited = BuildPlan { recipe: Recipe::Awaited, template: plan().template, ..queued.plan.clone() };
    let reserved = BuildRecord { plan: awaited, state: BuildState::Reserved, ..queued.clone() };
    vec![
        (text("build-reserved"), reserved),
        of("build", BuildState::Running),
        (text("build-queued"), queued),
        of("build-finishing", BuildState::Finishing),
        of("build-succeeded", BuildState::Succeeded),
        of("build-failed", BuildState::Failed(failed)),
        of("build-failed-elsewhere", BuildState::Failed(elsewhere)),
        of("build-cancelled", BuildState::Cancelled),
    ]
}

pub(super) fn templates() -> Vec<(String, TemplateRecord)> {
    let of_image = TemplateVersion {
        source: TemplateSource::Image("0".repeat(64).parse().unwrap()),
        resources: None,
        variables: [("LANG".to_owned(), "C".to_owned())].into(),
        program: Some(FirstProgram::OfImage),
        build: None,
        created: at(1_790_000_000_000),
    };
    let of_snapshot = TemplateVersion {
        source: TemplateSource::Snapshot(SnapshotId::from_random([4; 20])),
        resources: Some(Resources::default()),
        program: None,
        build: Some(BuildId::from_random([21; 20])),
        ..of_image.clone()
    };
    let template = TemplateRecord {
        id: TemplateId::from_random([22; 20]),
        project: ProjectId::local(),
        name: "app".parse().unwrap(),
        is_public: true,
        tags: [("latest".to_owned(), of_snapshot), ("v1".to_owned(), of_image)].into(),
        created: at(1_790_000_000_000),
    };
    vec![("template".to_owned(), template)]
}
