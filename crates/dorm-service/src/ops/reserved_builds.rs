//! Reserved builds: they have an id, a template and resource limits before their steps are known.
//! Clients of E2B request a build first, upload its files, and then give the steps.

use std::time::Duration;

use dorm_lifecycle::{BuildId, Egress, Variables};
use dorm_ports::Login;
use dorm_store::{
    BuildFailure, BuildLogin, BuildPlan, BuildRecord, BuildResources, BuildState, BuildTemplate, Code, FailureRecord,
    Recipe,
};

use crate::error::{BuildProblem, ServiceError};
use crate::shared::{Service, Shared};

/// How long a reserved build waits for its steps.
const RESERVED: Duration = Duration::from_secs(3600);
/// The time limit of a step.
const STEP_LIMIT: Duration = Duration::from_secs(1800);

/// The steps of a reserved build, and how they are carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildSteps {
    /// The steps.
    pub recipe: Recipe,
    /// A line for `/bin/sh` that becomes the entrypoint of the image.
    pub start_command: Option<String>,
    /// A line for `/bin/sh` that exits with 0 as soon as a started image is ready.
    pub ready_command: Option<String>,
    /// Whether results of earlier builds are used.
    pub is_cached: bool,
    /// The login for the registry of the base image.
    pub login: Option<Login>,
}

impl Service {
    /// Reserves a build of a template, whose steps are given by [`Service::start_build`] within an
    /// hour. Until then the contexts of the project are kept.
    ///
    /// # Errors
    ///
    /// `Build` for a template that cannot be, or too many builds.
    pub async fn reserve_build(
        &self,
        template: BuildTemplate,
        resources: BuildResources,
    ) -> Result<BuildRecord, ServiceError> {
        let plan = BuildPlan {
            recipe: Recipe::Awaited,
            context: None,
            tag: None,
            start_command: None,
            ready_command: None,
            is_cached: true,
            step_limit: STEP_LIMIT,
            resources,
            egress: Egress::Public,
            template: Some(template),
            login: None,
        };
        self.may_be_named_so(&plan).await?;
        self.insert_build(plan, BuildState::Reserved).await
    }

    /// Gives a reserved build its steps, so that it waits for its turn. A repeated request with the
    /// same steps changes nothing.
    ///
    /// # Errors
    ///
    /// `Build` if there is no such build, if it has other steps already, for steps that cannot be
    /// carried out, or a context that does not exist: the build is still reserved then.
    pub async fn start_build(&self, id: &BuildId, steps: BuildSteps) -> Result<BuildRecord, ServiceError> {
        let reserved = self.own_build(id).await?;
        let BuildSteps { recipe, start_command, ready_command, is_cached, login } = steps;
        let plan = BuildPlan { recipe, start_command, ready_command, is_cached, ..reserved.plan };
        self.may_be_built(&plan).await?;
        let shared = &self.shared;
        let _turn = shared.builds.turn.lock().await;
        let mut build = self.own_build(id).await?;
        match build.state {
            BuildState::Reserved => {}
            BuildState::Queued
            | BuildState::Running
            | BuildState::Finishing
            | BuildState::Succeeded
            | BuildState::Failed(_)
            | BuildState::Cancelled => {
                let is_repeated = BuildPlan { login: None, ..build.plan.clone() } == plan;
                return if is_repeated { Ok(self.shown(build)) } else { Err(BuildProblem::Started(id.clone()).into()) };
            }
        }
        self.has_contexts(&plan).await?;
        self.has_place(&BuildState::Queued).await?;
        let plan = BuildPlan { login: login.map(|login| shared.seal_login(login)), ..plan };
        (build.plan, build.state, build.caller) = (plan, BuildState::Queued, self.caller());
        shared.write_build(build.clone()).await?;
        shared.builds.news.notify_waiters();
        Ok(self.shown(build))
    }

    /// Ends builds whose steps were not given in time.
    pub(crate) async fn end_reserved_builds(&self) -> Result<(), ServiceError> {
        let shared = &self.shared;
        let _turn = shared.builds.turn.lock().await;
        let now = shared.now();
        for mut build in shared.store.builds().await? {
            if build.state != BuildState::Reserved || now.since(build.created) < RESERVED {
                continue;
            }
            let failure = FailureRecord::new(Code::TimedOut, "its steps were not given within an hour");
            build.state = BuildState::Failed(BuildFailure { step: None, exit_code: None, failure });
            build.ended = Some(now);
            shared.write_build(build).await?;
        }
        Ok(())
    }
}

/// The name under which the password of a login is sealed.
const LOGIN: &str = "registry login";

impl Shared {
    /// Returns a login in the form in which it is recorded.
    fn seal_login(&self, login: Login) -> BuildLogin {
        let Login { user, password } = login;
        let mut sealed = self.seal_secrets(Variables([(LOGIN.to_owned(), password)].into()));
        BuildLogin { user, password: sealed.0.remove(LOGIN).unwrap_or_default() }
    }

    /// Returns the login of a build.
    ///
    /// # Errors
    ///
    /// `Build` if the key for secrets was lost.
    pub(crate) fn open_login(&self, login: &BuildLogin) -> Result<Login, ServiceError> {
        let BuildLogin { user, password } = login.clone();
        match self.open_secret(LOGIN, &password) {
            Ok(password) => Ok(Login { user, password }),
            Err(error) => {
                Err(BuildProblem::Bad(format!("the login for its base image cannot be read: {error}")).into())
            }
        }
    }
}
