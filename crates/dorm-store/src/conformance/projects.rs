//! Projects are replaced as a whole and listed in the order of their ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sample::{at, project};
use crate::{Change, ProjectBudgets, ProjectRecord, SecretRecord, Store, StoreError};

type Checked = Result<(), StoreError>;

pub(super) async fn a_project_is_rewritten_and_kept(store: Arc<dyn Store>) -> Checked {
    let write =
        async |projects: Vec<ProjectRecord>| store.commit(Change { projects, ..Change::default() }).await.map(drop);
    let budgets = ProjectBudgets { sandboxes: Some(3), disk_bytes: Some(u64::MAX), ..ProjectBudgets::default() };
    let secret = SecretRecord { sealed: "sealed:1:".to_owned(), created: at(1_000), changed: at(1_500) };
    let secrets = [("TOKEN".parse().expect("a name"), secret)].into();
    let one = ProjectRecord { id: project("one"), budgets, created: at(1_000), removed: None, secrets };
    let other = ProjectRecord {
        id: project("other"),
        budgets: ProjectBudgets::default(),
        secrets: BTreeMap::new(),
        ..one.clone()
    };
    write(vec![other.clone(), one.clone()]).await?;
    assert_eq!(store.projects().await?, [one.clone(), other.clone()]);
    let removed = ProjectRecord { secrets: BTreeMap::new(), removed: Some(at(2_000)), ..one };
    write(vec![removed.clone()]).await?;
    assert_eq!(store.projects().await?, [removed, other]);
    Ok(())
}
