//! Projects: sandboxes, snapshots, volumes, webhooks and keys that see nothing of other projects.
//!
//! A [`Service`] is the service of one project. Objects of other projects do not exist for it.

use std::collections::BTreeMap;

use dorm_lifecycle::{ProjectId, SandboxId, Timestamp};
use dorm_store::{Change, ProjectBudgets, ProjectRecord, RowKind, SnapshotFilter};

use crate::admission::ProjectUse;
use crate::error::{ProjectProblem, ServiceError};
use crate::shared::Service;

/// The maximum number of projects.
pub const PROJECTS_MAX: usize = 1000;

/// A project, and how much of its budgets it uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProjectView {
    /// Its record.
    pub project: ProjectRecord,
    /// The use of each budget.
    pub used: ProjectUse,
}

impl Service {
    /// Returns the service of a project.
    ///
    /// # Errors
    ///
    /// `Project` if there is none.
    pub fn for_project(&self, id: &ProjectId) -> Result<Self, ServiceError> {
        match self.shared.projects.exists(id) {
            true => Ok(self.of_project(id)),
            false => Err(ProjectProblem::Missing(id.to_string()).into()),
        }
    }

    /// Returns the service of a project that a record names.
    pub(crate) fn of_project(&self, id: &ProjectId) -> Self {
        Self { project: id.clone(), ..self.clone() }
    }

    /// Returns the service of the project that a sandbox belongs to.
    ///
    /// # Errors
    ///
    /// `NoSandbox`.
    pub async fn of_sandbox(&self, id: &SandboxId) -> Result<Self, ServiceError> {
        if let Some(handle) = self.shared.actor(id) {
            return Ok(self.of_project(&handle.project));
        }
        let record = self.shared.store.sandbox(id).await?;
        let record = record.ok_or_else(|| ServiceError::NoSandbox(id.to_string()))?;
        Ok(self.of_project(&record.sandbox.project))
    }

    /// Creates a project. Creating one that exists with the same budgets is a success.
    ///
    /// # Errors
    ///
    /// `Project` if it exists with other budgets, or was removed: names of projects are not used
    /// again; and for too many projects.
    pub async fn create_project(&self, id: ProjectId, budgets: ProjectBudgets) -> Result<ProjectView, ServiceError> {
        self.to_the_end(|own| async move { own.create_project_now(id, budgets).await }).await
    }

    async fn create_project_now(&self, id: ProjectId, budgets: ProjectBudgets) -> Result<ProjectView, ServiceError> {
        let projects = &self.shared.projects;
        let _turn = projects.turn.lock().await;
        let known = projects.known();
        match known.get(&id) {
            Some(project) if project.removed.is_none() && project.budgets == budgets => {
                return self.view_project(project.clone()).await;
            }
            Some(project) => {
                let is_removed = project.removed.is_some();
                return Err(ProjectProblem::Taken { project: id, is_removed }.into());
            }
            None if id == ProjectId::local() => {
                return Err(ProjectProblem::Taken { project: id, is_removed: false }.into());
            }
            None => {}
        }
        if known.values().filter(|project| project.removed.is_none()).count() >= PROJECTS_MAX {
            return Err(ProjectProblem::TooMany.into());
        }
        let project =
            ProjectRecord { id, budgets, created: self.shared.now(), removed: None, secrets: BTreeMap::new() };
        self.write_project(project).await
    }

    /// Returns every project that is not removed, in the order of ids.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn projects(&self) -> Result<Vec<ProjectView>, ServiceError> {
        let known = self.shared.projects.known();
        let mut projects: Vec<ProjectRecord> =
            known.values().filter(|project| project.removed.is_none()).cloned().collect();
        if !known.contains_key(&ProjectId::local()) {
            projects.push(self.local());
        }
        projects.sort_by(|one, other| one.id.cmp(&other.id));
        let mut uses = self.shared.project_uses().await?;
        let view = |project: ProjectRecord| {
            let used = uses.remove(&project.id).unwrap_or_default();
            let created = self.shared.clock.shown(project.created);
            ProjectView { project: ProjectRecord { created, ..project }, used }
        };
        Ok(projects.into_iter().map(view).collect())
    }

    /// Returns a project.
    ///
    /// # Errors
    ///
    /// `Project` if there is none.
    pub async fn describe_project(&self, id: &ProjectId) -> Result<ProjectView, ServiceError> {
        self.view_project(self.project_record(id)?).await
    }

    /// Replaces the budgets of a project. Everything that it has stays, even if it is more.
    ///
    /// # Errors
    ///
    /// `Project` if there is none.
    pub async fn set_project_budgets(
        &self,
        id: &ProjectId,
        budgets: ProjectBudgets,
    ) -> Result<ProjectView, ServiceError> {
        let id = id.clone();
        self.to_the_end(|own| async move { own.set_budgets_now(&id, budgets).await }).await
    }

    async fn set_budgets_now(&self, id: &ProjectId, budgets: ProjectBudgets) -> Result<ProjectView, ServiceError> {
        let _turn = self.shared.projects.turn.lock().await;
        let project = self.project_record(id)?;
        let created = match project.created == Timestamp::default() {
            true => self.shared.now(),
            false => project.created,
        };
        self.write_project(ProjectRecord { budgets, created, ..project }).await
    }

    /// Removes a project with its keys, webhooks and secrets. Its history stays until retention
    /// removes it. Removing a removed project is a success.
    ///
    /// # Errors
    ///
    /// `Project` if there is none, while it has sandboxes, snapshots, volumes or pools, and for
    /// `local`.
    pub async fn remove_project(&self, id: &ProjectId) -> Result<(), ServiceError> {
        let id = id.clone();
        self.to_the_end(|own| async move { own.remove_project_now(&id).await }).await
    }

    async fn remove_project_now(&self, id: &ProjectId) -> Result<(), ServiceError> {
        let shared = &self.shared;
        let _turn = shared.projects.turn.lock().await;
        if shared.projects.known().get(id).is_some_and(|project| project.removed.is_some()) {
            return Ok(());
        }
        let project = self.project_record(id)?;
        let in_use = |users: Vec<String>| ServiceError::from(ProjectProblem::InUse { project: id.clone(), users });
        if *id == ProjectId::local() {
            return Err(in_use(vec!["the daemon, whose own project it is".to_owned()]));
        }
        let keys = &shared.api_keys;
        let _keys = keys.turn.lock().await;
        let _webhooks = shared.webhooks.lock().await;
        // Whatever makes something in a project holds one of these from checking that the project
        // exists until it is recorded.
        let _snapshots = shared.holding.write().await;
        let _runs = shared.ledger.turn.lock().await;
        let _volumes = shared.leasing.lock().await;
        let what = self.contents(id).await?;
        if !what.is_empty() {
            return Err(in_use(what));
        }
        let removed = ProjectRecord { removed: Some(shared.now()), secrets: BTreeMap::new(), ..project };
        let gone = keys.known().iter().filter(|key| key.project == *id).map(|key| key.id.clone()).collect();
        let webhooks = shared.store.webhooks().await?;
        let webhooks = webhooks.into_iter().filter(|webhook| webhook.project == *id).map(|webhook| webhook.id);
        let change = Change {
            projects: vec![removed.clone()],
            removed_api_keys: gone,
            removed_webhooks: webhooks.collect(),
            ..Change::default()
        };
        shared.commit_known(change).await?;
        shared.projects.put(removed);
        keys.set(keys.known().iter().filter(|key| key.project != *id).cloned().collect());
        shared.webhook_news.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Fails if the project of this handle does not exist any more.
    pub(super) fn exists(&self) -> Result<(), ServiceError> {
        self.for_project(&self.project).map(drop)
    }

    pub(super) fn project_record(&self, id: &ProjectId) -> Result<ProjectRecord, ServiceError> {
        match self.shared.projects.known().get(id) {
            Some(project) if project.removed.is_none() => Ok(project.clone()),
            None if *id == ProjectId::local() => Ok(self.local()),
            Some(_) | None => Err(ProjectProblem::Missing(id.to_string()).into()),
        }
    }

    /// Returns the record of the project that exists without one.
    fn local(&self) -> ProjectRecord {
        let created = Timestamp::default();
        let budgets = ProjectBudgets::default();
        ProjectRecord { id: ProjectId::local(), budgets, created, removed: None, secrets: BTreeMap::new() }
    }

    /// Fails if the record of a project may exist and cannot be read.
    pub(super) async fn refuse_unreadable(&self, id: &ProjectId) -> Result<(), ServiceError> {
        Ok(self.shared.unreadable().await?.refuse(RowKind::Project, id.as_str(), id.as_str())?)
    }

    pub(super) async fn write_project(&self, project: ProjectRecord) -> Result<ProjectView, ServiceError> {
        self.refuse_unreadable(&project.id).await?;
        let change = Change { projects: vec![project.clone()], ..Change::default() };
        self.shared.commit_known(change).await?;
        self.shared.projects.put(project.clone());
        self.view_project(project).await
    }

    async fn view_project(&self, project: ProjectRecord) -> Result<ProjectView, ServiceError> {
        let used = self.shared.project_use(&project.id).await?;
        let created = self.shared.clock.shown(project.created);
        Ok(ProjectView { project: ProjectRecord { created, ..project }, used })
    }

    /// Returns what a project has, a few words for each kind.
    async fn contents(&self, id: &ProjectId) -> Result<Vec<String>, ServiceError> {
        let shared = &self.shared;
        let own = |of: &ProjectId| *of == *id;
        let sandboxes = shared.of_living(|sandbox| own(&sandbox.project).then_some(())).await?.len();
        let mine = SnapshotFilter { project: Some(id.clone()), ..SnapshotFilter::default() };
        let snapshots = shared.store.find_snapshots(&mine).await?.len();
        let volumes = shared.store.volumes().await?.iter().filter(|volume| own(&volume.project)).count();
        let pools = shared.store.pools().await?.iter().filter(|pool| own(&pool.project) && !pool.removed).count();
        let builds = shared.store.builds().await?;
        let builds = builds.iter().filter(|build| own(&build.project) && !build.state.has_ended()).count();
        let templates = shared.store.templates().await?.iter().filter(|template| own(&template.project)).count();
        let environments = shared.store.environments().await?.iter().filter(|one| own(&one.project)).count();
        let rows = shared.unreadable().await?;
        let unreadable = rows.rows().iter().filter(|row| row.project.as_ref().is_none_or(own)).count();
        let counts = [
            (sandboxes, "sandboxes"),
            (snapshots, "snapshots"),
            (volumes, "volumes"),
            (pools, "sandbox pools"),
            (builds, "builds in progress"),
            (templates, "templates"),
            (environments, "environments"),
            (unreadable, "records that cannot be read"),
        ];
        let found = counts.into_iter().filter(|(count, _)| *count > 0);
        Ok(found.map(|(count, what)| format!("{count} {what}")).collect())
    }
}
