//! Builds and templates.

use std::time::Duration;

use dorm_api_types as wire;
use dorm_build::{Command, Copy, Step, octal_mode};
use dorm_lifecycle as life;
use dorm_lifecycle::IdError;
use dorm_service::DEFAULT_TAG;
use dorm_storage::{LogLine, LogStream};
use dorm_store::{
    BuildFailure, BuildPlan, BuildRecord, BuildResources, BuildState, BuildStep, BuildStepState, BuildTemplate,
    PlannedStep, Recipe, TemplateRecord, TemplateSource, TemplateVersion,
};

use super::{Convert, Of, time};
use crate::error::ApiError;
use crate::extract::seconds;

/// The time limit of a step without another.
const STEP_LIMIT: Duration = Duration::from_secs(1800);

/// The plan of a requested build.
pub(crate) fn plan(asked: wire::CreateBuild) -> Result<BuildPlan, ApiError> {
    let recipe = match (asked.dockerfile, asked.from) {
        (Some(text), None) if asked.steps.is_empty() => Recipe::Dockerfile { text, arguments: asked.arguments },
        (None, Some(from)) if asked.arguments.is_empty() => {
            let steps = asked.steps.into_iter().map(steps).collect::<Result<Vec<_>, _>>()?;
            Recipe::Steps { from, steps: steps.into_iter().flatten().collect() }
        }
        _ => {
            let what = "give either dockerfile, with arguments, or from, with steps";
            return Err(ApiError::invalid(what, ""));
        }
    };
    let resources = asked.resources.unwrap_or_default();
    if resources.processes.is_some() {
        return Err(ApiError::invalid("the number of processes of a step cannot be set", "omit resources.processes"));
    }
    Ok(BuildPlan {
        recipe,
        context: asked.context.map(|hash| digest("context", &hash)).transpose()?,
        tag: asked.tag,
        start_command: asked.start_command,
        ready_command: asked.ready_command,
        is_cached: !asked.force,
        step_limit: asked.step_timeout_secs.map_or(Ok(STEP_LIMIT), |limit| seconds("step_timeout_secs", limit))?,
        resources: BuildResources {
            cpu_millis: resources.cpu_millis,
            memory_bytes: resources.memory_bytes,
            disk_bytes: resources.disk_bytes,
        },
        egress: asked.egress.map_or(life::Egress::Public, Convert::convert),
        template: asked.template.map(template).transpose()?,
        login: None,
    })
}

/// A hash that a client has chosen.
pub(crate) fn digest(field: &str, text: &str) -> Result<life::Digest, ApiError> {
    text.parse().map_err(|_| {
        let what = format!("{field} is '{text}', which is not a hash: give 64 lower-case hexadecimal digits");
        ApiError::invalid(what, "use the SHA-256 or BLAKE3 hash of the files")
    })
}

fn template(asked: wire::BuildTemplate) -> Result<BuildTemplate, ApiError> {
    let wire::BuildTemplate { name, tags, resources, env } = asked;
    Ok(BuildTemplate {
        name: template_name(&name)?,
        tags: tags_or_default(tags),
        resources: resources.map(|asked| super::resources(asked, life::Resources::default())),
        variables: env,
    })
}

/// The name of a template.
pub(crate) fn template_name(name: &str) -> Result<life::TemplateName, ApiError> {
    name.parse().map_err(|error: IdError| ApiError::invalid(error.to_string(), ""))
}

/// The tags of a request, or the default one.
pub(crate) fn tags_or_default(tags: Vec<String>) -> Vec<String> {
    if tags.is_empty() { vec![DEFAULT_TAG.to_owned()] } else { tags }
}

fn steps(asked: wire::BuildStepRequest) -> Result<Vec<PlannedStep>, ApiError> {
    let wire::BuildStepRequest { run, run_login, argv, copy, env, workdir, user, context, force } = asked;
    let context = context.map(|hash| digest("context", &hash)).transpose()?;
    let mut found = Vec::new();
    found.extend(run.map(|line| vec![Step::Run(Command::Shell(line))]));
    found.extend(run_login.map(|line| vec![Step::Run(Command::Login(line))]));
    found.extend(argv.map(|argv| vec![Step::Run(Command::Argv(argv))]));
    if let Some(wire::BuildCopy { from, to, owner, mode }) = copy {
        let mode = mode.as_deref().map(octal_mode).transpose();
        let mode = mode.map_err(|error| ApiError::invalid(error.to_string(), ""))?;
        found.push(vec![Step::Copy(Copy { from, to, owner, mode })]);
    }
    found.extend(env.map(|env| env.into_iter().map(|(name, value)| Step::Env(name, value)).collect()));
    found.extend(workdir.map(|path| vec![Step::Workdir(path)]));
    found.extend(user.map(|user| vec![Step::User(user)]));
    let planned = |step| PlannedStep { context: context.clone(), is_forced: force, ..PlannedStep::from(step) };
    match <[Vec<Step>; 1]>::try_from(found) {
        Ok([steps]) => Ok(steps.into_iter().map(planned).collect()),
        Err(found) => {
            let what = format!("a step has {} instructions, and needs exactly one", found.len());
            Err(ApiError::invalid(what, "give one of run, run_login, argv, copy, env, workdir and user"))
        }
    }
}

impl Of<BuildRecord> for wire::Build {
    fn of(build: BuildRecord) -> Self {
        let step = build.steps.iter().position(|step| step.state == BuildStepState::Running);
        let failure = match &build.state {
            BuildState::Failed(failure) => Some(failure.clone().convert()),
            BuildState::Reserved
            | BuildState::Queued
            | BuildState::Running
            | BuildState::Finishing
            | BuildState::Succeeded
            | BuildState::Cancelled => None,
        };
        let template = build.plan.template.as_ref();
        // An image that is not named yet may be removed again.
        let is_done = build.state == BuildState::Succeeded;
        Self {
            id: build.id.to_string(),
            project: build.project.to_string(),
            cancelling: build.cancel && !build.state.has_ended(),
            state: (&build.state).convert(),
            template: template.map(|template| template.name.to_string()),
            template_tags: template.map(|template| template.tags.clone()).unwrap_or_default(),
            tag: build.plan.tag,
            base: build.base.map(|base| base.to_string()),
            steps: build.steps.into_iter().map(Convert::convert).collect(),
            step: step.map(|step| step as u64),
            image: build.image.filter(|_| is_done).map(|image| image.to_string()),
            snapshot: build.snapshot.filter(|_| is_done).map(|snapshot| snapshot.to_string()),
            failure,
            caller: build.caller.map(Convert::convert),
            created_at: time(build.created),
            began_at: build.began.map(time),
            ended_at: build.ended.map(time),
        }
    }
}

impl Of<&BuildState> for wire::BuildState {
    fn of(state: &BuildState) -> Self {
        match state {
            BuildState::Reserved => Self::Reserved,
            BuildState::Queued => Self::Queued,
            BuildState::Running | BuildState::Finishing => Self::Running,
            BuildState::Succeeded => Self::Succeeded,
            BuildState::Failed(_) => Self::Failed,
            BuildState::Cancelled => Self::Cancelled,
        }
    }
}

impl Of<BuildFailure> for wire::BuildFailure {
    fn of(failure: BuildFailure) -> Self {
        let BuildFailure { step, exit_code, failure } = failure;
        Self { code: failure.code.as_str().to_owned(), reason: failure.reason, step, exit_code }
    }
}

impl Of<BuildStep> for wire::BuildStep {
    fn of(step: BuildStep) -> Self {
        let BuildStep { title, line, key, state, snapshot, began, ended } = step;
        let state = match state {
            BuildStepState::Waiting => wire::BuildStepState::Waiting,
            BuildStepState::Running => wire::BuildStepState::Running,
            BuildStepState::Cached => wire::BuildStepState::Cached,
            BuildStepState::Done => wire::BuildStepState::Done,
            BuildStepState::Failed => wire::BuildStepState::Failed,
        };
        let snapshot = snapshot.map(|snapshot| snapshot.to_string());
        Self { title, line, key, state, snapshot, began_at: began.map(time), ended_at: ended.map(time) }
    }
}

impl Of<(u64, LogLine)> for wire::BuildLogLine {
    fn of((offset, line): (u64, LogLine)) -> Self {
        let stream = match line.stream {
            LogStream::Build => wire::BuildLogStream::Build,
            LogStream::Stdout => wire::BuildLogStream::Stdout,
            LogStream::Stderr => wire::BuildLogStream::Stderr,
        };
        Self { offset, at: time(line.at()), step: line.step, stream, text: line.text }
    }
}

impl Of<TemplateRecord> for wire::Template {
    fn of(template: TemplateRecord) -> Self {
        let TemplateRecord { id, project, name, is_public: _, tags, created } = template;
        Self {
            id: id.to_string(),
            project: project.to_string(),
            name: name.to_string(),
            tags: tags.into_iter().map(|(tag, version)| (tag, version.convert())).collect(),
            created_at: time(created),
        }
    }
}

impl Of<TemplateVersion> for wire::TemplateVersion {
    fn of(version: TemplateVersion) -> Self {
        let TemplateVersion { source, resources, variables, program, build, created } = version;
        let (image, snapshot) = match source {
            TemplateSource::Image(image) => (Some(image.to_string()), None),
            TemplateSource::Snapshot(snapshot) => (None, Some(snapshot.to_string())),
        };
        Self {
            image,
            snapshot,
            resources: resources.map(Convert::convert),
            env: variables.into_keys().collect(),
            start: program.map(Convert::convert),
            build: build.map(|build| build.to_string()),
            created_at: time(created),
        }
    }
}
