//! What a build does: its base image, its steps, and the keys of their results.

use std::sync::Arc;

use dorm_build::context::Selected;
use dorm_build::{BuildError, Kept, Keys, Placed, Plan, Settings, Step, from_dockerfile};
use dorm_lifecycle::Digest;
use dorm_ports::{Logins, RemoteSpec, Transport};
use dorm_storage::{Image, ImageConfig, StoredContext};
use dorm_store::{BuildPlan, BuildStep, BuildStepState, Code, Recipe};

use super::{Builder, Stop};
use crate::error::{BuildProblem, ServiceError};
use crate::ops::pull::PullPolicy;

/// The largest number of steps.
const STEPS_MAX: usize = 1000;

/// A step, the settings when it starts, and the key under which its files are kept.
pub(super) struct Stage {
    pub(super) placed: Placed,
    pub(super) before: Settings,
    pub(super) files: Option<(Arc<StoredContext>, Selected)>,
    pub(super) key: Option<String>,
    is_forced: bool,
}

/// All steps, and what they come to.
pub(super) struct Stages {
    pub(super) all: Vec<Stage>,
    settings: Settings,
    keys: Keys,
}

impl Stages {
    /// Returns the position of the first step that runs although its result may be known.
    pub(super) fn first_forced(&self) -> usize {
        self.all.iter().position(|stage| stage.is_forced).unwrap_or(self.all.len())
    }

    /// Returns the configuration of the new image, and the key of the build.
    pub(super) fn finish(&self, base: &Image, plan: &BuildPlan) -> (ImageConfig, String) {
        let Settings(Kept { env, workdir, user, entrypoint, cmd }) = self.settings.clone();
        let config = ImageConfig {
            entrypoint: entrypoint.unwrap_or_default(),
            command: cmd.unwrap_or_default(),
            env: env.into_iter().map(|(name, value)| format!("{name}={value}")).collect(),
            directory: workdir,
            user,
            ports: base.config.ports.clone(),
            ready: plan.ready_command.clone().or(base.config.ready.clone()),
            architecture: base.config.architecture.clone(),
        };
        let text = serde_json::to_string(&config).unwrap_or_default();
        (config, self.keys.clone().finish(&text).to_string())
    }
}

/// Rejects a plan that cannot be carried out whatever its base image is.
pub(crate) fn check(plan: &BuildPlan) -> Result<(), ServiceError> {
    let parsed = steps(plan, &Kept::default()).map_err(|error| BuildProblem::Bad(error.to_string()))?;
    let mut settings = Settings::default();
    for placed in &parsed.steps {
        settings.apply(&placed.step).map_err(|error| BuildProblem::Bad(error.to_string()))?;
    }
    if parsed.steps.len() > STEPS_MAX {
        return Err(BuildProblem::Bad(format!("it has more than {STEPS_MAX} steps")).into());
    }
    let copies = parsed.steps.iter().enumerate().filter(|(_, placed)| matches!(placed.step, Step::Copy(_)));
    for (at, _) in copies {
        if context(plan, at).is_none() {
            return Err(BuildProblem::Bad("a step copies files, and there is no context".to_owned()).into());
        }
    }
    Ok(())
}

/// Returns the steps of a plan.
fn steps(plan: &BuildPlan, base: &Kept) -> Result<Plan, BuildError> {
    let mut steps = match &plan.recipe {
        Recipe::Dockerfile { text, arguments } => from_dockerfile(text, arguments, base)?,
        Recipe::Steps { from, steps } => {
            let placed = |step: &Step| Placed { line: None, step: step.clone(), arguments: Default::default() };
            Plan { from: from.clone(), steps: steps.iter().map(|planned| placed(&planned.step)).collect() }
        }
    };
    if let Some(line) = &plan.start_command {
        let step = Step::Entrypoint(vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()]);
        steps.steps.push(Placed { line: None, step, arguments: Default::default() });
    }
    Ok(steps)
}

/// Returns the context of a step.
fn context(plan: &BuildPlan, at: usize) -> Option<&Digest> {
    let own = match &plan.recipe {
        Recipe::Steps { steps, .. } => steps.get(at).and_then(|step| step.context.as_ref()),
        Recipe::Dockerfile { .. } => None,
    };
    own.or(plan.context.as_ref())
}

/// Returns the settings of an image.
fn kept(config: &ImageConfig) -> Kept {
    let words = |words: &Vec<String>| Some(words.clone()).filter(|words| !words.is_empty());
    let pair = |line: &String| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Kept {
        env: config.env.iter().filter_map(pair).collect(),
        workdir: config.directory.clone(),
        user: config.user.clone(),
        entrypoint: words(&config.entrypoint),
        cmd: words(&config.command),
    }
}

impl Builder {
    /// Returns the base image, which is pulled if it is missing.
    pub(super) async fn base(&mut self) -> Result<Image, Stop> {
        if let Some(base) = &self.record.base {
            let found = self.service.shared.storage.image(base).await;
            return found.map_err(|error| self.stop(error.into()));
        }
        let plan = steps(&self.record.plan, &Kept::default());
        let from = plan.map_err(|error| Stop::failed(Code::InvalidArgument, error.to_string()))?.from;
        self.diary.say(None, &format!("FROM {from}")).await;
        let asked =
            RemoteSpec { reference: from, architecture: None, transport: Transport::Secure, logins: Logins::Daemon };
        let found = self.unless(self.service.find_image(asked, PullPolicy::Missing, |_| ())).await?;
        let image = found.map_err(|error| self.stop(error))?;
        let base = image.digest.clone();
        self.update(|record| record.base = Some(base)).await?;
        Ok(image)
    }

    /// Returns everything that is known before a step runs, and records the steps.
    pub(super) async fn plan(&mut self, base: &Image) -> Result<Stages, Stop> {
        let wrong = |error: BuildError| Stop::failed(Code::InvalidArgument, error.to_string());
        let brought = kept(&base.config);
        let plan = steps(&self.record.plan, &brought).map_err(wrong)?;
        let mut settings = Settings(brought);
        let mut keys = Keys::begin(base.digest.as_str());
        let mut all = Vec::new();
        for (at, placed) in plan.steps.into_iter().enumerate() {
            let files = match &placed.step {
                Step::Copy(copy) => {
                    let context = self.context_of(at).await.map_err(|stop| stop.at(at))?;
                    let selected = context.context.select(&copy.from).map_err(|error| wrong(error).at(at))?;
                    Some((context, selected))
                }
                _ => None,
            };
            let hash = files.as_ref().map(|(_, selected)| selected.hash.as_str());
            let key = keys.next(&placed, &settings, hash).map(|key| key.to_string());
            let before = settings.clone();
            settings.apply(&placed.step).map_err(|error| wrong(error).at(at))?;
            let is_forced = match &self.record.plan.recipe {
                Recipe::Steps { steps, .. } => steps.get(at).is_some_and(|step| step.is_forced),
                Recipe::Dockerfile { .. } => false,
            };
            all.push(Stage { placed, before, files, key, is_forced });
        }
        if self.record.steps.is_empty() && !all.is_empty() {
            let steps = all.iter().map(|stage| BuildStep {
                title: title(&stage.placed.step),
                line: stage.placed.line.map(|line| line as u64),
                key: stage.key.clone(),
                state: BuildStepState::Waiting,
                snapshot: None,
                began: None,
                ended: None,
            });
            let steps = steps.collect();
            self.update(|record| record.steps = steps).await?;
        }
        Ok(Stages { all, settings, keys })
    }

    async fn context_of(&self, at: usize) -> Result<Arc<StoredContext>, Stop> {
        let Some(key) = context(&self.record.plan, at) else {
            return Err(Stop::failed(Code::InvalidArgument, "it copies files, and there is no context"));
        };
        let found = self.service.shared.storage.context(self.service.project(), key).await;
        let found = found.map_err(|error| self.stop(error.into()))?;
        found.map(Arc::new).ok_or_else(|| self.stop(BuildProblem::NoContext(key.clone()).into()))
    }
}

/// Returns a step as one line.
fn title(step: &Step) -> String {
    let text = match step {
        Step::Run(dorm_build::Command::Shell(line)) => format!("RUN {line}"),
        Step::Run(dorm_build::Command::Argv(argv)) => format!("RUN {argv:?}"),
        Step::Copy(copy) => format!("COPY {} {}", copy.from.join(" "), copy.to),
        Step::Env(name, value) => format!("ENV {name}={value}"),
        Step::Workdir(path) => format!("WORKDIR {path}"),
        Step::User(user) => format!("USER {user}"),
        Step::Entrypoint(argv) => format!("ENTRYPOINT {argv:?}"),
        Step::Cmd(argv) => format!("CMD {argv:?}"),
    };
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
