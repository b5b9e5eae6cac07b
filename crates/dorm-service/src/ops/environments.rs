//! Environments: one request gets a sandbox by a key, whatever state it is in.
//!
//! ```text
//! resolve the definition ─► turn of the environment ─┬─ live ──────────────► answer
//!                                                    ├─ suspended ─► resume ─► answer
//!                                                    └─ otherwise ─► record an attempt ─► follow it ─► answer
//! ```
//!
//! An attempt is carried out by `crate::environments`, whether or not a caller stays. All callers
//! that ask meanwhile follow the same attempt.

mod facts;
mod follow;
pub(crate) mod leases;
mod records;

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_lifecycle::environment::{
    Base, Choice, Code, Considered, Decision, Key, OnDrift, OnLeave, Policy, SetupStep, SnapshotOf, SnapshotWhen, Way,
    Workspace, decide,
};
use dorm_lifecycle::{Egress, Initiator, Resources, SandboxId, SecretName, SnapshotKind, Timeouts, Variables};
use dorm_ports::{SecretValue, Vault as _};
use dorm_store::{
    Attempt, AttemptEnd, AttemptResult, Change, EnvironmentLease, EnvironmentRecord, Made, Phase, RestoredFrom,
    SetupStepRecord, StoreError,
};
use tokio::time::Instant;

use super::create::{CreateFrom, CreateSpec};
use crate::error::{EnvironmentProblem, ServiceError};
use crate::retention::REQUESTS_KEPT;
use crate::shared::Service;
use crate::view::SandboxView;

pub use follow::EnsureProgress;
use follow::Waiter;

/// The label of snapshots after a setup; its value is the key of the workspace.
pub(crate) const WORKSPACE_LABEL: &str = "dorm.workspace";
/// The largest number of environments of a project.
pub const ENVIRONMENTS_MAX: usize = 10_000;
/// The longest lease.
pub const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A request for an environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnsureSpec {
    /// Its key; without one, the environment is for this request alone.
    pub key: Option<Key>,
    /// The key that a client library has computed for it.
    pub client_key: Option<String>,
    /// The definition of what its sandbox has.
    pub workspace: WorkspaceSpec,
    /// The secrets of the project for every process in its sandbox, by the name of their variable.
    pub secrets: BTreeMap<String, SecretName>,
    /// Secrets for every process in its sandbox that the request gives as values.
    pub values: Variables,
    /// The token for the clone of its code.
    pub token: Option<TokenSpec>,
    /// How it is found again, and what becomes of it.
    pub policy: Policy,
    /// The labels of its sandbox.
    pub labels: BTreeMap<String, String>,
    /// Rule for an attempt if no caller waits for it any more.
    pub on_leave: OnLeave,
    /// How long the lease lasts that the request takes; none for no lease.
    pub lease: Option<Duration>,
}

/// The definition of what a sandbox of an environment has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkspaceSpec {
    /// The image, snapshot or template that it starts from.
    pub from: CreateFrom,
    /// Its resource limits; by default those of the template or snapshot, or the general defaults.
    pub resources: Option<Resources>,
    /// Where it may connect to.
    pub egress: Option<Egress>,
    /// Environment variables of every process in it.
    pub variables: BTreeMap<String, String>,
    /// The directory of the code, in which the commands run.
    pub directory: String,
    /// The user who runs the commands.
    pub user: Option<String>,
    /// The code.
    pub code: Option<Code>,
    /// The setup, in order.
    pub setup: Vec<SetupStep>,
    /// A line for `/bin/sh` that is started at each boot from files and left running.
    pub start: Option<String>,
    /// A line for `/bin/sh` that exits with 0 once everything is ready.
    pub ready: Option<String>,
    /// The time limit of each step.
    pub step_limit: Duration,
}

/// A token for the clone of a repository.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenSpec {
    /// That of a secret of the project.
    Secret(SecretName),
    /// This one.
    Value(SecretValue),
}

impl std::fmt::Debug for TokenSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Secret(name) => f.debug_tuple("Secret").field(name).finish(),
            Self::Value(_) => f.write_str("Value(..)"),
        }
    }
}

/// The way on which a sandbox was had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnsuredBy {
    /// It was running.
    Live,
    /// It was resumed.
    Resumed,
    /// It was restored from a snapshot.
    Restored,
    /// It was created and set up.
    Created,
}

/// The result of a request for an environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ensured {
    /// The environment.
    pub environment: EnvironmentRecord,
    /// Its sandbox.
    pub sandbox: SandboxView,
    /// The way on which it was had.
    pub by: EnsuredBy,
    /// The ways that were considered, in order, with the reasons against those not taken.
    pub considered: Vec<Considered>,
    /// The snapshot that it was restored from.
    pub restored: Option<RestoredFrom>,
    /// Losses: everything that was there before and is not any more.
    pub lost: Vec<String>,
    /// The parts of the definition that are not as recorded, if the sandbox was kept even so.
    pub drift: Vec<String>,
    /// The phases, with the time of each.
    pub phases: Vec<Phase>,
    /// The steps of the setup, if there was one.
    pub steps: Vec<SetupStepRecord>,
    /// Why the snapshot after the setup could not be taken.
    pub snapshot_failure: Option<dorm_store::FailureRecord>,
    /// Whether the attempt had been begun by an earlier request.
    pub joined: bool,
    /// The lease that the request has taken.
    pub lease: Option<EnvironmentLease>,
}

/// The effect that a request for an environment would have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnsureExplanation {
    /// The environment, if there is one with the key.
    pub environment: Option<EnvironmentRecord>,
    /// The ways that would be considered, and the choice.
    pub decision: Decision,
    /// The parts of the definition that are not as recorded.
    pub drift: Vec<&'static str>,
    /// The SHA-256 of the definition: environments with the same share snapshots after the setup.
    pub workspace: String,
}

/// A request whose definition is resolved.
struct Asked {
    spec: EnsureSpec,
    key: Key,
    workspace: Workspace,
    /// The key under which snapshots of the workspace are found.
    workspace_key: String,
}

/// The turn of an environment: its record is decided about.
type Turn = tokio::sync::OwnedMutexGuard<()>;
/// A snapshot or project cannot be deleted meanwhile.
pub(crate) type Staying = tokio::sync::OwnedRwLockReadGuard<()>;

/// The result of one look at an environment.
enum Look {
    Ready(Box<Ensured>),
    Resume {
        record: Box<EnvironmentRecord>,
        sandbox: SandboxId,
        considered: Vec<Considered>,
        drift: Vec<String>,
    },
    Follow {
        waiter: Waiter,
        joined: bool,
        /// How the definition of the attempt differs from that of the request. The record is of the
        /// next attempt as soon as that has begun.
        differences: Vec<&'static str>,
    },
    /// The record is being worked on: look again after its next change.
    Wait,
}

impl Service {
    /// Returns the sandbox of an environment: the running one, else the suspended one resumed, else
    /// one restored from a snapshot, else a new one that is set up. For one key there is only ever
    /// one sandbox, however many callers ask.
    ///
    /// # Errors
    ///
    /// `Environment` for an invalid request, for drift that is refused, for something broken, and
    /// if making it failed or [`Service::cancel_environment`] cancelled it; those of
    /// [`Service::resume`].
    pub async fn ensure(
        &self,
        spec: EnsureSpec,
        progress: &(dyn Fn(EnsureProgress) + Send + Sync),
    ) -> Result<Ensured, ServiceError> {
        self.exists()?;
        let lease = spec.lease;
        if let Some(earlier) = self.ensured_earlier().await?
            && let Some(ensured) = self.leased(earlier, lease).await?
        {
            return Ok(ensured);
        }
        let asked = self.asked_for(spec).await?;
        let mut broken = None;
        loop {
            let changes = self.shared.environments.changes();
            let ensured = match self.look(&asked, broken.as_ref(), progress).await? {
                Look::Ready(ensured) => *ensured,
                Look::Resume { record, sandbox, considered, drift } => {
                    match self.resume_of(&asked, &record, &sandbox).await? {
                        Ok((view, phases)) => {
                            let lost = facts::lost_by_resume(&view.sandbox);
                            let ensured = existing(*record, view, (EnsuredBy::Resumed, considered), drift, phases);
                            Ensured { lost, ..ensured }
                        }
                        // The next look finds it terminated, or passes over it.
                        Err(reason) => {
                            broken = Some((sandbox, reason));
                            continue;
                        }
                    }
                }
                Look::Follow { waiter, joined, differences } => {
                    let followed = self.follow_attempt(waiter, progress).await?;
                    let Some((record, end)) = followed else { continue };
                    let is_of_another = !differences.is_empty();
                    // The failure of another definition says nothing about this one.
                    let is_of_no_use = match end.result {
                        AttemptResult::Ready => is_of_another && asked.spec.policy.on_drift != OnDrift::Keep,
                        AttemptResult::Failed(_) => is_of_another && joined,
                        // All its callers had left: this one joined too late.
                        AttemptResult::Cancelled => !end.attempt.cancel,
                    };
                    if is_of_no_use {
                        continue;
                    }
                    let drift = differences.into_iter().map(str::to_owned).collect();
                    match self.made_by(record, end, joined, drift).await? {
                        Some(ensured) => ensured,
                        // It was terminated meanwhile.
                        None => continue,
                    }
                }
                Look::Wait => {
                    self.changes_after(changes).await?;
                    continue;
                }
            };
            if let Some(ensured) = self.leased(ensured, lease).await? {
                return Ok(ensured);
            }
        }
    }

    /// Returns what the first request with this idempotency key has got, if its sandbox is still
    /// that of the environment.
    async fn ensured_earlier(&self) -> Result<Option<Ensured>, ServiceError> {
        let Some(Made::Environment(id)) = self.earlier() else { return Ok(None) };
        let record = self.shared.store.environment(id).await?.filter(|record| !record.removed);
        let record = record.ok_or_else(|| ServiceError::made_is_gone("environment", id))?;
        let Some(end) = record.last.clone().filter(|end| record.sandbox.as_ref() == Some(&end.attempt.sandbox)) else {
            return Ok(None);
        };
        match end.result {
            AttemptResult::Ready => self.made_by(record, end, false, Vec::new()).await,
            AttemptResult::Failed(_) | AttemptResult::Cancelled => Ok(None),
        }
    }

    /// Returns what [`Service::ensure`] would do, and changes nothing.
    ///
    /// # Errors
    ///
    /// `Environment` for an invalid request.
    pub async fn explain_ensure(&self, spec: EnsureSpec) -> Result<EnsureExplanation, ServiceError> {
        self.exists()?;
        let asked = self.asked_for(spec).await?;
        let record = self.environment_of(&asked).await?;
        let (facts, _used) = self.facts(&asked, record.as_ref(), None).await?;
        Ok(EnsureExplanation {
            decision: decide(&facts, &asked.spec.policy),
            drift: facts.drift,
            environment: record.map(|record| self.shown_environment(record)),
            workspace: asked.workspace_key,
        })
    }

    /// Resolves and checks a request.
    async fn asked_for(&self, spec: EnsureSpec) -> Result<Asked, ServiceError> {
        let key = match (&spec.key, self.earlier()) {
            (Some(key), _) => key.clone(),
            (None, Some(Made::Environment(id))) => Key::Once(id.clone()),
            (None, _) => Key::Once(self.shared.ids().environment()),
        };
        key.check().map_err(EnvironmentProblem::from)?;
        check_spec(&spec)?;
        for name in spec.secrets.values() {
            self.project_secret(name)?;
        }
        if let Some(TokenSpec::Secret(name)) = &spec.token {
            self.project_secret(name)?;
        }
        let workspace = self.resolved(&spec).await?;
        workspace.check().map_err(EnvironmentProblem::from)?;
        let workspace_key = dorm_store::workspace_hash(&workspace, spec.policy.snapshot_kind);
        Ok(Asked { spec, key, workspace, workspace_key })
    }

    /// Returns the workspace of a request, with what its names stand for now.
    async fn resolved(&self, spec: &EnsureSpec) -> Result<Workspace, ServiceError> {
        let asked = spec.workspace.clone();
        let create =
            CreateSpec { resources: asked.resources, variables: asked.variables, ..CreateSpec::new(asked.from) };
        let create = self.of_template(create).await?;
        let (base, least) = match self.source_named(create.from).await? {
            CreateFrom::Image(reference) => (Base::Image(self.image(&reference).await?.digest), Resources::default()),
            CreateFrom::Snapshot(id) => {
                let snapshot = self.complete(&id).await?;
                if snapshot.kind == SnapshotKind::Memory
                    && create.resources.is_some_and(|asked| asked != snapshot.resources)
                {
                    let what = "the resource limits (cpu, memory, disk, processes)";
                    return Err(ServiceError::FixedBySnapshot { snapshot: id, what });
                }
                (Base::Snapshot(id), snapshot.resources)
            }
            CreateFrom::Template(template) => return Err(template.missing()),
        };
        let resources = create.resources.unwrap_or(least);
        resources.check()?;
        if let Some(egress) = &asked.egress {
            egress.check().map_err(dorm_lifecycle::SpecError::from)?;
        }
        Ok(Workspace {
            base,
            resources,
            egress: asked.egress,
            variables: create.variables,
            directory: asked.directory,
            user: asked.user,
            code: asked.code,
            setup: asked.setup,
            start: asked.start,
            ready: asked.ready,
            step_limit: asked.step_limit,
        })
    }

    /// Looks at what exists, and begins an attempt if that is needed.
    async fn look(
        &self,
        asked: &Asked,
        broken: Option<&(SandboxId, String)>,
        progress: &(dyn Fn(EnsureProgress) + Send + Sync),
    ) -> Result<Look, ServiceError> {
        let Some(found) = self.environment_of(asked).await? else { return self.first_attempt(asked, progress).await };
        let turn = self.shared.environments.turns.of(&found.id).lock_owned().await;
        let Some(record) = self.shared.store.environment(&found.id).await?.filter(|one| one.key == found.key) else {
            return Ok(Look::Wait);
        };
        if let Some(attempt) = &record.attempt {
            if attempt.cancel || self.shared.environments.is_cancelled(&record.id, &attempt.id) {
                return Ok(Look::Wait);
            }
            // A caller that joins an attempt cannot make it end with its callers.
            let on_leave = if attempt.on_leave == OnLeave::Continue { OnLeave::Continue } else { asked.spec.on_leave };
            let waiter = Waiter::new(&self.shared, &record.id, &attempt.id, on_leave);
            let differences = record.workspace.differences(&asked.workspace);
            self.join(record, asked, turn).await?;
            return Ok(Look::Follow { waiter, joined: true, differences });
        }
        if record.ending.is_some() {
            return Ok(Look::Wait);
        }
        let (facts, used) = self.facts(asked, Some(&record), broken).await?;
        let drift: Vec<String> = facts.drift.iter().map(|word| (*word).to_owned()).collect();
        let Decision { considered, choice } = decide(&facts, &asked.spec.policy);
        progress(EnsureProgress::Considered(considered.clone()));
        let refused = |way, reason| EnvironmentProblem::Broken { environment: record.id.clone(), way, reason };
        match choice {
            Choice::RefuseDrift => {
                let (environment, differences) = (record.id.clone(), facts.drift);
                Err(EnvironmentProblem::Drift { environment, differences }.into())
            }
            Choice::RefuseBroken(reason) => {
                let way = considered.last().map_or(Way::Live, |last| last.way);
                Err(refused(way, reason).into())
            }
            Choice::Live | Choice::Resume => {
                let record = self.with_policy(record, asked, turn).await?;
                let Some(sandbox) = record.sandbox.clone() else { return Ok(Look::Wait) };
                if choice == Choice::Resume {
                    return Ok(Look::Resume { record: Box::new(record), sandbox, considered, drift });
                }
                let view = self.describe(&sandbox).await?;
                let ensured = existing(record, view, (EnsuredBy::Live, considered), drift, Vec::new());
                Ok(Look::Ready(Box::new(ensured)))
            }
            Choice::Restore { .. } | Choice::Create => {
                let attempt = self.attempt(asked, considered, drift, (restore_of(choice), Some(&record)))?;
                // A snapshot of its own is of the workspace on record.
                let is_own = attempt.restore.as_ref().is_some_and(|restored| restored.of == Some(SnapshotOf::Own));
                let record = EnvironmentRecord {
                    client_key: asked.spec.client_key.clone().or(record.client_key),
                    workspace: if is_own { record.workspace } else { asked.workspace.clone() },
                    policy: asked.spec.policy.clone(),
                    secrets: asked.spec.secrets.clone(),
                    values: self.sealed_values(asked, Some(&record.values)),
                    labels: asked.spec.labels.clone(),
                    attempt: Some(attempt.clone()),
                    ..record
                };
                self.begin_attempt(record, attempt, asked, (Vec::new(), (turn, self.staying().await?, used))).await
            }
        }
    }

    /// Keeps the project and its snapshots from being deleted until a decision is recorded.
    pub(crate) async fn staying(&self) -> Result<Staying, ServiceError> {
        let staying = self.shared.holding.clone().read_owned().await;
        self.exists()?;
        Ok(staying)
    }

    /// Records a new environment with its first attempt.
    async fn first_attempt(
        &self,
        asked: &Asked,
        progress: &(dyn Fn(EnsureProgress) + Send + Sync),
    ) -> Result<Look, ServiceError> {
        let count = self.shared.environments.count(self.project());
        if count >= ENVIRONMENTS_MAX && self.shared.forget_spent(Some(self.project()), REQUESTS_KEPT).await? == 0 {
            return Err(EnvironmentProblem::Many(count).into());
        }
        let (facts, used) = self.facts(asked, None, None).await?;
        let Decision { considered, choice } = decide(&facts, &asked.spec.policy);
        progress(EnsureProgress::Considered(considered.clone()));
        let id = match &asked.key {
            Key::Once(id) => id.clone(),
            Key::Own(_) | Key::Thread(_) => self.shared.ids().environment(),
        };
        if let Choice::RefuseBroken(reason) = choice {
            let way = considered.last().map_or(Way::Live, |last| last.way);
            return Err(EnvironmentProblem::Broken { environment: id, way, reason }.into());
        }
        let attempt = self.attempt(asked, considered, Vec::new(), (restore_of(choice), None))?;
        let record = EnvironmentRecord {
            id: id.clone(),
            project: self.project().clone(),
            key: asked.key.clone(),
            client_key: asked.spec.client_key.clone(),
            workspace: asked.workspace.clone(),
            policy: asked.spec.policy.clone(),
            secrets: asked.spec.secrets.clone(),
            values: self.sealed_values(asked, None),
            labels: asked.spec.labels.clone(),
            sandbox: None,
            snapshot: None,
            commit: None,
            attempt: Some(attempt.clone()),
            last: None,
            leases: Vec::new(),
            ending: None,
            retired: Vec::new(),
            created: self.shared.now(),
            removed: false,
        };
        let made = self.made(Made::Environment(id));
        match self.begin_attempt(record, attempt, asked, (made, (self.staying().await?, used))).await {
            // Another caller was first.
            Err(ServiceError::Store(StoreError::KeyTaken { .. })) => Ok(Look::Wait),
            begun => begun,
        }
    }

    async fn begin_attempt(
        &self,
        record: EnvironmentRecord,
        attempt: Attempt,
        asked: &Asked,
        (requests, held): (Vec<dorm_store::RequestRecord>, impl Send + 'static),
    ) -> Result<Look, ServiceError> {
        let waiter = Waiter::new(&self.shared, &record.id, &attempt.id, asked.spec.on_leave);
        let differences = record.workspace.differences(&asked.workspace);
        let others = Change { requests, ..Change::default() };
        self.shared.write_environment(record, others, (held, self.request.clone())).await?;
        Ok(Look::Follow { waiter, joined: false, differences })
    }

    fn attempt(
        &self,
        asked: &Asked,
        considered: Vec<Considered>,
        drift: Vec<String>,
        (restore, before): (Option<RestoredFrom>, Option<&EnvironmentRecord>),
    ) -> Result<Attempt, ServiceError> {
        let ids = self.shared.ids();
        let token = match &asked.spec.token {
            Some(TokenSpec::Secret(name)) => Some(self.project_secret(name)?),
            Some(TokenSpec::Value(value)) => Some(value.clone()),
            None => None,
        };
        Ok(Attempt {
            id: ids.operation(),
            began: self.shared.now(),
            caller: self.caller(),
            on_leave: asked.spec.on_leave,
            cancel: false,
            considered,
            drift,
            sandbox: ids.sandbox(),
            replaces: before.and_then(|record| record.sandbox.clone()),
            before: before.map(EnvironmentRecord::settings),
            restore,
            setup: None,
            token: token.map(|token| self.shared.seal_token(&token)),
            steps: Vec::new(),
            phases: Vec::new(),
            snapshot_failure: None,
            commit: None,
        })
    }

    /// Returns the secrets of a request, sealed. Those that have not changed stay as they are.
    fn sealed_values(&self, asked: &Asked, before: Option<&Variables>) -> Variables {
        let opened =
            |(name, sealed): (&String, &String)| Some((name.clone(), self.shared.open_secret(name, sealed).ok()?));
        match before {
            Some(before) if before.0.iter().filter_map(opened).eq(asked.spec.values.0.clone()) => before.clone(),
            Some(_) | None => self.shared.seal_secrets(asked.spec.values.clone()),
        }
    }

    /// Returns the value of a secret of this project.
    pub(crate) fn project_secret(&self, name: &SecretName) -> Result<SecretValue, EnvironmentProblem> {
        let problem = |error: dorm_ports::VaultError| EnvironmentProblem::Secret {
            name: name.clone(),
            reason: error.to_string(),
        };
        self.vault().secret(self.project(), name).map_err(problem)
    }

    /// Returns the environment of a request: the one with its key, else the one that a client
    /// library made with the key that it computes, if that knows no other key.
    async fn environment_of(&self, asked: &Asked) -> Result<Option<EnvironmentRecord>, ServiceError> {
        let store = &self.shared.store;
        if let Some(found) = store.environment_with(self.project(), &asked.key).await? {
            return Ok(Some(found));
        }
        match (&asked.key, &asked.spec.client_key) {
            (Key::Thread(_), Some(client_key)) => {
                Ok(store.environment_with(self.project(), &Key::Own(client_key.clone())).await?)
            }
            _ => Ok(None),
        }
    }

    /// Joins an attempt: it continues if one of its callers wants that, also after a restart.
    async fn join(&self, mut record: EnvironmentRecord, asked: &Asked, turn: Turn) -> Result<(), ServiceError> {
        let Some(attempt) = &mut record.attempt else { return Ok(()) };
        if attempt.on_leave == asked.spec.on_leave || attempt.on_leave == OnLeave::Continue {
            return Ok(());
        }
        attempt.on_leave = OnLeave::Continue;
        self.shared.write_environment(record, Change::default(), turn).await
    }

    /// Records the policy of a request, if it is another one.
    async fn with_policy(
        &self,
        record: EnvironmentRecord,
        asked: &Asked,
        turn: Turn,
    ) -> Result<EnvironmentRecord, ServiceError> {
        let next = EnvironmentRecord {
            policy: asked.spec.policy.clone(),
            secrets: asked.spec.secrets.clone(),
            values: self.sealed_values(asked, Some(&record.values)),
            client_key: asked.spec.client_key.clone().or(record.client_key.clone()),
            ..record.clone()
        };
        if next == record {
            return Ok(record);
        }
        self.shared.write_environment(next.clone(), Change::default(), turn).await?;
        if let (Some(sandbox), true) = (&next.sandbox, next.policy.keep_alive != record.policy.keep_alive) {
            self.set_timeouts(sandbox, timeouts(&next.policy)).await?;
        }
        Ok(next)
    }

    /// Resumes the sandbox of an environment. The inner error says why it is broken.
    async fn resume_of(
        &self,
        asked: &Asked,
        record: &EnvironmentRecord,
        sandbox: &SandboxId,
    ) -> Result<Result<(SandboxView, Vec<Phase>), String>, ServiceError> {
        let began = Instant::now();
        self.refresh_secrets(record, sandbox).await?;
        match self.resume(sandbox, Initiator::User).await {
            Ok(view) => Ok(Ok((view, vec![Phase { name: "resume".to_owned(), took: began.elapsed() }]))),
            // It ended meanwhile: the next look says so.
            Err(ServiceError::Denied { .. } | ServiceError::NoSandbox(_)) => Ok(Err("it has ended".to_owned())),
            Err(error) if error.code() == dorm_store::Code::Damaged => match asked.spec.policy.on_broken {
                dorm_lifecycle::environment::OnBroken::Next => Ok(Err(error.message())),
                dorm_lifecycle::environment::OnBroken::Refuse => {
                    let (environment, reason) = (record.id.clone(), error.message());
                    Err(EnvironmentProblem::Broken { environment, way: Way::Resume, reason }.into())
                }
            },
            Err(error) => Err(error),
        }
    }

    /// Gives a suspended sandbox the present values of the secrets of its environment.
    pub(crate) async fn refresh_secrets(
        &self,
        record: &EnvironmentRecord,
        sandbox: &SandboxId,
    ) -> Result<(), ServiceError> {
        let wanted = self.secret_values(record)?;
        let has = self.record(sandbox).await?.sandbox;
        if has.spec.secrets.0.is_empty() && wanted.0.is_empty() {
            return Ok(());
        }
        if self.shared.secrets_of(&has).is_ok_and(|values| values == wanted) {
            return Ok(());
        }
        let secrets = Some(self.shared.seal_secrets(wanted));
        let update = dorm_lifecycle::Update { secrets, ..dorm_lifecycle::Update::default() };
        self.update(sandbox, update).await.map(drop)
    }

    /// Returns the values of the secrets of an environment, by the name of their variable.
    pub(crate) fn secret_values(&self, record: &EnvironmentRecord) -> Result<Variables, ServiceError> {
        let value = |(variable, name): (&String, &SecretName)| {
            Ok((variable.clone(), self.project_secret(name)?.expose().to_owned()))
        };
        let mut values = Variables::default();
        for (name, sealed) in &record.values.0 {
            let lost =
                |error: crate::SealError| EnvironmentProblem::Lost { name: name.clone(), reason: error.to_string() };
            values.0.insert(name.clone(), self.shared.open_secret(name, sealed).map_err(lost)?);
        }
        values.0.extend(record.secrets.iter().map(value).collect::<Result<BTreeMap<_, _>, ServiceError>>()?);
        Ok(values)
    }

    /// Returns the result of an attempt; `None` if its sandbox has been terminated since.
    async fn made_by(
        &self,
        record: EnvironmentRecord,
        end: AttemptEnd,
        joined: bool,
        drift: Vec<String>,
    ) -> Result<Option<Ensured>, ServiceError> {
        let AttemptEnd { attempt, result, .. } = end;
        match result {
            AttemptResult::Ready => {}
            AttemptResult::Cancelled => return Err(EnvironmentProblem::Cancelled(record.id).into()),
            AttemptResult::Failed(failure) => {
                let failure = Box::new(failure);
                return Err(EnvironmentProblem::Failed { environment: record.id, failure }.into());
            }
        }
        let view = match self.describe(&attempt.sandbox).await {
            Ok(view) if view.sandbox.state.name() != dorm_lifecycle::StateName::Terminated => view,
            Ok(_) | Err(ServiceError::NoSandbox(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let by = match attempt.restore.as_ref().and_then(|restored| restored.of) {
            Some(_) => EnsuredBy::Restored,
            None => EnsuredBy::Created,
        };
        Ok(Some(Ensured {
            lost: facts::lost(&attempt, &record),
            environment: record,
            sandbox: view,
            by,
            considered: attempt.considered,
            restored: attempt.restore,
            drift,
            phases: attempt.phases,
            steps: attempt.steps,
            snapshot_failure: attempt.snapshot_failure,
            joined,
            lease: None,
        }))
    }
}

/// Rejects requests that contradict themselves.
fn check_spec(spec: &EnsureSpec) -> Result<(), ServiceError> {
    let bad = |what| Err(ServiceError::from(EnvironmentProblem::Bad(what)));
    let is_client_key = |key: &String| key.len() == 16 && key.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
    if spec.client_key.as_ref().is_some_and(|key| !is_client_key(key)) {
        return bad("a client key has 16 hexadecimal digits in lower case");
    }
    if spec.token.is_some() && !matches!(spec.workspace.code, Some(Code::Git { .. })) {
        return bad("there is a token, but no repository to clone with it");
    }
    let named = spec.secrets.keys().chain(spec.values.0.keys());
    if named.clone().any(|name| spec.workspace.variables.contains_key(name))
        || spec.values.0.keys().any(|name| spec.secrets.contains_key(name))
    {
        return bad("a variable is given twice, as an environment variable, a secret or a secret value: give it once");
    }
    let policy = &spec.policy;
    if spec.lease.is_some_and(|lease| lease.is_zero() || lease > LEASE_MAX) {
        return bad("a lease must last longer than 0 s, and at most 24 hours");
    }
    if policy.keep_alive.is_some_and(|time| time.is_zero()) {
        return bad("keep_alive is 0: omit it to keep the sandbox running");
    }
    if policy.snapshot == SnapshotWhen::AfterRun && policy.snapshot_kind == SnapshotKind::Memory && named.count() > 0 {
        return bad(
            "a memory snapshot after a run would contain the secrets: set snapshot_kind to filesystem, or omit them",
        );
    }
    Ok(())
}

/// Returns the time limits of a sandbox of an environment.
pub(crate) fn timeouts(policy: &Policy) -> Timeouts {
    Timeouts { idle: policy.keep_alive, ..Timeouts::default() }
}

fn restore_of(choice: Choice) -> Option<RestoredFrom> {
    match choice {
        Choice::Restore { snapshot, of, age } => Some(RestoredFrom { snapshot, of: Some(of), age }),
        _ => None,
    }
}

/// Returns the result for a sandbox that the environment had already.
fn existing(
    environment: EnvironmentRecord,
    sandbox: SandboxView,
    (by, considered): (EnsuredBy, Vec<Considered>),
    drift: Vec<String>,
    phases: Vec<Phase>,
) -> Ensured {
    Ensured {
        environment,
        sandbox,
        by,
        considered,
        restored: None,
        lost: Vec::new(),
        drift,
        phases,
        steps: Vec::new(),
        snapshot_failure: None,
        joined: false,
        lease: None,
    }
}
