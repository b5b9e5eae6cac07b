//! The base image of a build, its steps, and the keys of their results.

use std::sync::Arc;

use dorm_build::context::Selected;
use dorm_build::{BuildError, Kept, Keys, Placed, Settings, Step};
use dorm_ports::{Logins, RemoteSpec, Transport};
use dorm_storage::{Image, ImageConfig, StoredContext};
use dorm_store::{BuildPlan, BuildStep, BuildStepState, Code, Recipe};

use super::{Builder, Stop};
use crate::build_plan::{context_of, kept, steps, title};
use crate::error::BuildProblem;
use crate::ops::pull::PullPolicy;

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
        let Settings(Kept { env, workdir, workdir_owner: _, user, entrypoint, cmd }) = self.settings.clone();
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
        let login = self.record.plan.login.as_ref().map(|login| self.service.shared.open_login(login)).transpose();
        let login = login.map_err(|error| self.stop(error))?;
        let (transport, logins) = (Transport::Secure, Logins::Daemon);
        let asked = RemoteSpec { reference: from, architecture: None, transport, logins, login };
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
                    let line = placed.line.map(|line| format!("line {line}: ")).unwrap_or_default();
                    let named = |error| format!("{line}{}: {error}", title(&placed.step));
                    let refused = |error| Stop::failed(Code::InvalidArgument, named(error)).at(at);
                    let selected = context.context.select(&copy.from).map_err(refused)?;
                    Some((context, selected))
                }
                _ => None,
            };
            let hash = files.as_ref().map(|(_, selected)| selected.hash.as_str());
            let mut before = settings.clone();
            if let Some(user) = &placed.user {
                before.0.user = Some(user.clone());
            }
            let key = keys.next(&placed, &before, hash).map(|key| key.to_string());
            settings.apply(&placed.step).map_err(|error| wrong(error).at(at))?;
            let is_forced = match &self.record.plan.recipe {
                Recipe::Steps { steps, .. } => steps.get(at).is_some_and(|step| step.is_forced),
                Recipe::Dockerfile { .. } | Recipe::Awaited => false,
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
        let Some(key) = context_of(&self.record.plan, at) else {
            return Err(Stop::failed(Code::InvalidArgument, "it copies files, and there is no context"));
        };
        let found = self.service.shared.storage.context(self.service.project(), key).await;
        let found = found.map_err(|error| self.stop(error.into()))?;
        found.map(Arc::new).ok_or_else(|| self.stop(BuildProblem::NoContext(key.clone()).into()))
    }
}
