//! Requests about builds and templates.

use std::time::Duration;

use dorm_build::{Command, Step};
use dorm_lifecycle::{BuildId, Egress, StateName};
use dorm_service::{BuildSteps, CreateFrom, CreateSpec, ServiceError};
use dorm_store::{
    BuildPlan, BuildRecord, BuildResources, BuildState, BuildStepState, BuildTemplate, PlannedStep, Recipe,
};

use super::{Action, Client};
use crate::model::{Making, Misfortune};

/// How long a caller waits for the end of a build. Longer than all its steps may take.
const PATIENCE: Duration = Duration::from_secs(1800);

impl Making {
    fn said(self) -> String {
        format!("one-{}", self.number)
    }

    fn tag(self) -> String {
        format!("made-{}", self.number)
    }

    fn plan(self) -> BuildPlan {
        let number = self.number.to_string();
        let mut lines = vec![vec!["echo".to_owned(), self.said()], vec!["touch".to_owned(), format!("/{number}")]];
        if self.fails {
            lines.push(vec!["false".to_owned()]);
        }
        let step = |argv| PlannedStep::from(Step::Run(Command::Argv(argv)));
        let template = template(self.number).filter(|_| self.is_template);
        BuildPlan {
            recipe: Recipe::Steps { from: "base".to_owned(), steps: lines.into_iter().map(step).collect() },
            context: None,
            tag: template.is_none().then(|| self.tag()),
            start_command: template.is_some().then(|| "cat".to_owned()),
            ready_command: None,
            is_cached: self.is_cached,
            step_limit: Duration::from_secs(60),
            resources: BuildResources::default(),
            egress: Egress::Public,
            template,
            login: None,
        }
    }
}

fn template(number: u64) -> Option<BuildTemplate> {
    let name = format!("web-{number}").parse().ok()?;
    Some(BuildTemplate { name, tags: vec!["latest".to_owned()], resources: None, variables: Default::default() })
}

impl Client {
    pub(super) fn choose_build(&mut self) -> Action {
        let builds = self.world.model.builds();
        let number = self.random.below(2);
        match (self.random.below(6), self.random.pick(&builds)) {
            (0, Some(build)) => Action::CancelBuild(build.clone()),
            (1..3, Some(build)) => Action::AwaitBuild(build.clone()),
            (3, Some(_)) => Action::CreateFromTemplate(number),
            _ => Action::Build(Making {
                number,
                fails: self.random.chance(15),
                is_template: self.random.chance(30),
                is_cached: self.random.chance(60),
                is_reserved: self.random.chance(50),
            }),
        }
    }

    pub(super) async fn use_build(&mut self, action: &Action, since: u64) {
        let answer = match action {
            Action::Build(making) => self.request_build(*making).await.map(|build| {
                if self.world.model.build(&build.id).is_none() {
                    self.world.trace.wrong(format_args!("{action:?} is told of {}, which is not recorded", build.id));
                }
                self.world.model.build_begun(&build.id, *making);
            }),
            Action::CancelBuild(id) => {
                self.world.model.cancel_asked(id);
                self.service.cancel_build(id).await.map(drop)
            }
            Action::AwaitBuild(id) => self.await_build(id).await,
            Action::CreateFromTemplate(number) => {
                let Ok(template) = format!("web-{number}").parse() else { return };
                let answer = self.service.create(CreateSpec::new(CreateFrom::Template(template))).await;
                return self.viewed(action, answer, since, |sandbox| sandbox.state.name() == StateName::Running);
            }
            _ => return,
        };
        if let Err(error) = answer {
            self.refused(action, &error);
        }
    }

    /// Requests a build, or reserves one and gives it its steps afterwards.
    async fn request_build(&self, making: Making) -> Result<BuildRecord, ServiceError> {
        let plan = making.plan();
        let (Some(template), true) = (plan.template.clone(), making.is_reserved) else {
            return self.service.create_build(plan).await;
        };
        let reserved = self.service.reserve_build(template, plan.resources).await?;
        let BuildPlan { recipe, start_command, ready_command, is_cached, .. } = plan;
        self.service
            .start_build(&reserved.id, BuildSteps { recipe, start_command, ready_command, is_cached, login: None })
            .await
    }

    async fn await_build(&mut self, id: &BuildId) -> Result<(), ServiceError> {
        let build = self.service.await_build(id, PATIENCE).await?;
        self.note(format_args!("told: build {id} is {:?}", build.state));
        match &build.state {
            BuildState::Succeeded => self.has_made(&build).await,
            BuildState::Cancelled if self.world.model.is_cancel_asked(id) => Ok(()),
            BuildState::Cancelled => {
                self.world.trace.wrong(format_args!("build {id} is cancelled and nobody asked for it"));
                Ok(())
            }
            BuildState::Failed(failure) => {
                let may_fail = self.world.model.making(id).is_none_or(|making| making.fails);
                if self.world.model.misfortune() == Misfortune::OnlyDeaths && !may_fail {
                    let reason = &failure.failure.reason;
                    self.world.trace.wrong(format_args!("build {id} failed although nothing went wrong: {reason}"));
                }
                Ok(())
            }
            // Its client may have died before it gave the steps.
            BuildState::Reserved => Ok(()),
            BuildState::Queued | BuildState::Running | BuildState::Finishing => {
                if self.world.model.misfortune() == Misfortune::OnlyDeaths {
                    self.world.trace.wrong(format_args!("build {id} does not end"));
                }
                Ok(())
            }
        }
    }

    /// Checks what a build that has succeeded has made.
    async fn has_made(&mut self, build: &BuildRecord) -> Result<(), ServiceError> {
        let Some(making) = self.world.model.making(&build.id) else { return Ok(()) };
        if making.fails {
            self.world.trace.wrong(format_args!("build {} succeeded although a step of it fails", build.id));
        }
        let ran = build.steps.first().is_some_and(|step| step.state == BuildStepState::Done);
        let (page, _) = self.service.build_log(&build.id, 0, 1000, Duration::ZERO).await?;
        if ran && !page.lines.iter().any(|line| line.text == making.said()) {
            self.world.trace.wrong(format_args!("the log of build {} lacks the output of its first step", build.id));
        }
        match making.is_template {
            true => self.service.template(&format!("web-{}", making.number)).await.map(drop),
            false => self.service.image(&making.tag()).await.map(drop),
        }
        .inspect_err(|error| {
            self.world.trace.wrong(format_args!("what build {} made is not there: {}", build.id, error.message()));
        })
    }
}
