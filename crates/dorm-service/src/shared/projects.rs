//! The projects, as in the store.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use dorm_lifecycle::ProjectId;
use dorm_store::{ProjectBudgets, ProjectRecord, Store, StoreError};

/// The projects, removed ones included.
#[derive(Default)]
pub(crate) struct Projects {
    known: RwLock<Arc<BTreeMap<ProjectId, ProjectRecord>>>,
    /// Held from deciding about a project until that is recorded.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl Projects {
    /// Reads the projects. One with an unreadable record admits nobody.
    pub(crate) async fn load(&self, store: &dyn Store) -> Result<(), StoreError> {
        let projects = store.projects().await?;
        self.set(projects.into_iter().map(|project| (project.id.clone(), project)).collect());
        Ok(())
    }

    pub(crate) fn known(&self) -> Arc<BTreeMap<ProjectId, ProjectRecord>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, projects: BTreeMap<ProjectId, ProjectRecord>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(projects);
    }

    /// Follows a change that was recorded.
    pub(crate) fn put(&self, project: ProjectRecord) {
        let mut projects = (*self.known()).clone();
        projects.insert(project.id.clone(), project);
        self.set(projects);
    }

    /// Whether a project exists. `local` always does.
    pub(crate) fn exists(&self, id: &ProjectId) -> bool {
        *id == ProjectId::local() || self.known().get(id).is_some_and(|project| project.removed.is_none())
    }

    /// Whether there are projects besides `local`.
    pub(crate) fn are_many(&self) -> bool {
        self.known().values().any(|project| project.removed.is_none() && project.id != ProjectId::local())
    }

    pub(crate) fn budgets(&self, id: &ProjectId) -> ProjectBudgets {
        self.known().get(id).map(|project| project.budgets).unwrap_or_default()
    }
}
