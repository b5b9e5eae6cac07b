//! Requests for environments.

use std::time::Duration;

use dorm_agent_client::{GuestString, Output, ProcessSpec, ProcessStatus};
use dorm_lifecycle::SandboxId;
use dorm_lifecycle::environment::{Key, OnBroken, OnLeave, Policy, SetupStep, SnapshotWhen};
use dorm_service::{
    CommandInput, CreateFrom, EnsureSpec, EnvironmentProblem, RunOutcome, ServiceError, Use, WorkspaceSpec,
};
use futures_util::StreamExt as _;

use super::{Action, Client};
use crate::model::{Misfortune, Wanted};

impl Wanted {
    fn key(self) -> String {
        format!("env-{}", self.number)
    }

    fn spec(self) -> EnsureSpec {
        let line = |line: String| SetupStep::Serial(line);
        let mut setup = vec![line(format!("echo {} >> /set-up", self.workspace)), line("sleep 0.01".to_owned())];
        if self.fails {
            setup.push(line("false".to_owned()));
        }
        EnsureSpec {
            key: Some(Key::Own(self.key())),
            client_key: None,
            workspace: WorkspaceSpec {
                from: CreateFrom::Image("base".to_owned()),
                resources: None,
                egress: None,
                variables: Default::default(),
                directory: "/workspace".to_owned(),
                user: None,
                code: None,
                setup,
                start: Some("sleep 1000000".to_owned()),
                ready: None,
                step_limit: Duration::from_secs(600),
            },
            secrets: Default::default(),
            values: Default::default(),
            token: None,
            policy: Policy {
                snapshot: if self.takes { SnapshotWhen::AfterSetup } else { SnapshotWhen::Never },
                on_broken: OnBroken::Next,
                ..Policy::default()
            },
            labels: Default::default(),
            on_leave: if self.stays { OnLeave::Continue } else { OnLeave::Cancel },
            lease: None,
        }
    }
}

impl Client {
    pub(super) fn choose_environment(&mut self) -> Action {
        let number = self.random.below(3);
        match self.random.below(20) {
            0 => Action::CancelEnvironment(number),
            1 => Action::RemoveEnvironment(number),
            2 | 3 => Action::EndEnvironment(number),
            4..7 => Action::SuspendEnvironment(number),
            7 => Action::ReleaseEnvironment(number),
            _ => Action::Ensure(Wanted {
                number,
                workspace: if self.random.chance(80) { 0 } else { 1 },
                fails: self.random.chance(5),
                takes: self.random.chance(85),
                stays: self.random.chance(80),
            }),
        }
    }

    pub(super) async fn use_environment(&mut self, action: &Action) {
        let sandbox = |number: &u64| self.world.model.environment_sandbox(&format!("env-{number}"));
        let answer = match action {
            Action::Ensure(wanted) => return self.ensure(action, *wanted).await,
            Action::CancelEnvironment(number) => {
                self.world.model.may_cancel_environments();
                self.service.cancel_environment(&format!("env-{number}")).await.map(drop)
            }
            Action::RemoveEnvironment(number) => {
                self.world.model.may_cancel_environments();
                self.service.remove_environment(&format!("env-{number}")).await
            }
            Action::ReleaseEnvironment(number) => {
                self.service.release_lease(&format!("env-{number}"), None, RunOutcome::Completed).await.map(drop)
            }
            Action::EndEnvironment(number) => {
                let Some(id) = sandbox(number) else { return };
                self.world.model.terminate_asked(&id);
                self.service.terminate(&id).await.map(drop)
            }
            Action::SuspendEnvironment(number) => {
                let Some(id) = sandbox(number) else { return };
                self.service.suspend(&id).await.map(drop)
            }
            _ => return,
        };
        if let Err(error) = answer {
            self.refused(action, &error);
        }
    }

    async fn ensure(&mut self, action: &Action, wanted: Wanted) {
        if !wanted.stays {
            self.world.model.may_cancel_environments();
        }
        match self.service.ensure(wanted.spec(), &|_| {}).await {
            Ok(ensured) => {
                let id = ensured.sandbox.sandbox.id.clone();
                self.note(format_args!("told: {id} is {:?} for {}", ensured.by, wanted.key()));
                if wanted.fails {
                    self.world.trace.wrong(format_args!("{action:?} succeeded although a step of it fails"));
                }
                // Others end, suspend and remove it meanwhile.
                if let Ok(said) = self.set_up(&id).await
                    && said != format!("{}\n", wanted.workspace)
                {
                    self.world
                        .trace
                        .wrong(format_args!("{id} was handed out for {wanted:?} and was set up as {said:?}"));
                }
                if let Ok(started) = self.started(&id).await
                    && started > 1
                {
                    self.world.trace.wrong(format_args!("the start command of {id} runs {started} times"));
                }
            }
            Err(ServiceError::Environment(problem)) => {
                self.note(format_args!("told: {problem}"));
                let is_expected = match &problem {
                    EnvironmentProblem::Failed { failure, .. } => wanted.fails && failure.step == Some(2),
                    EnvironmentProblem::Cancelled(_) | EnvironmentProblem::Removed(_) => {
                        self.world.model.are_environments_cancelled()
                    }
                    _ => false,
                };
                if !is_expected && self.world.model.misfortune() == Misfortune::OnlyDeaths {
                    self.world.trace.wrong(format_args!("{action:?} failed although nothing went wrong: {problem}"));
                }
            }
            Err(error) => self.refused(action, &error),
        }
    }

    /// Returns how often the start command of a sandbox runs.
    async fn started(&self, id: &SandboxId) -> Result<usize, ServiceError> {
        let (agent, _in_use) = self.service.agent(id, Use::Process).await?;
        let is_it = |status: &ProcessStatus| status.exit.is_none() && status.label.as_deref() == Some("dorm.start");
        Ok(agent.processes_that(None, 10, is_it).await?.items.len())
    }

    /// Returns what the setups of a sandbox have written.
    async fn set_up(&self, id: &SandboxId) -> Result<String, ServiceError> {
        let words = ["cat", "/set-up"].into_iter().filter_map(|word| GuestString::new(word).ok());
        let spec = ProcessSpec::new(words.collect());
        let mut execution = self.service.exec(id, spec, CommandInput::Empty, None).await?;
        let mut said = Vec::new();
        while let Some(output) = execution.next().await {
            if let Output::Stdout { bytes, .. } = output? {
                said.extend_from_slice(&bytes);
            }
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}
