//! Projects are replaced as a whole and listed in the order of their ids.

use std::sync::Arc;

use super::sample::{at, project};
use crate::{Change, ProjectBudgets, ProjectRecord, Store, StoreError};

type Checked = Result<(), StoreError>;

pub(super) async fn a_project_is_rewritten_and_kept(store: Arc<dyn Store>) -> Checked {
    let write =
        async |projects: Vec<ProjectRecord>| store.commit(Change { projects, ..Change::default() }).await.map(drop);
    let budgets = ProjectBudgets { sandboxes: Some(3), disk_bytes: Some(u64::MAX), ..ProjectBudgets::default() };
    let one = ProjectRecord { id: project("one"), budgets, created: at(1_000), removed: None };
    let other = ProjectRecord { id: project("other"), budgets: ProjectBudgets::default(), ..one.clone() };
    write(vec![other.clone(), one.clone()]).await?;
    assert_eq!(store.projects().await?, [one.clone(), other.clone()]);
    let removed = ProjectRecord { removed: Some(at(2_000)), ..one };
    write(vec![removed.clone()]).await?;
    assert_eq!(store.projects().await?, [removed, other]);
    Ok(())
}
