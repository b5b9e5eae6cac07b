//! The rows of projects, to the domain's types and back.

use dorm_lifecycle::{ProjectId, SecretName};
use serde::{Deserialize, Serialize};

use crate::codec::word::{Millis, Text, present};
use crate::{ProjectBudgets, ProjectRecord, SecretRecord, codec};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct ProjectRow {
    v: u64,
    id: Text<ProjectId>,
    budgets: BudgetsRow,
    created: Millis,
    #[serde(deserialize_with = "present")]
    removed: Option<Millis>,
    secrets: Vec<SecretRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretRow {
    name: Text<SecretName>,
    sealed: String,
    created: Millis,
    changed: Millis,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetsRow {
    #[serde(deserialize_with = "present")]
    sandboxes: Option<u64>,
    #[serde(deserialize_with = "present")]
    running: Option<u64>,
    #[serde(deserialize_with = "present")]
    cpu_millis: Option<u64>,
    #[serde(deserialize_with = "present")]
    memory_bytes: Option<u64>,
    #[serde(deserialize_with = "present")]
    disk_bytes: Option<u64>,
}

impl From<&ProjectRecord> for ProjectRow {
    fn from(record: &ProjectRecord) -> Self {
        let ProjectRecord { id, budgets, created, removed, secrets } = record;
        let ProjectBudgets { sandboxes, running, cpu_millis, memory_bytes, disk_bytes } = *budgets;
        Self {
            v: codec::PROJECT,
            id: Text(id.clone()),
            budgets: BudgetsRow { sandboxes, running, cpu_millis, memory_bytes, disk_bytes },
            created: Millis(*created),
            removed: removed.map(Millis),
            secrets: secrets.iter().map(SecretRow::from).collect(),
        }
    }
}

impl From<ProjectRow> for ProjectRecord {
    fn from(row: ProjectRow) -> Self {
        let BudgetsRow { sandboxes, running, cpu_millis, memory_bytes, disk_bytes } = row.budgets;
        Self {
            id: row.id.0,
            budgets: ProjectBudgets { sandboxes, running, cpu_millis, memory_bytes, disk_bytes },
            created: row.created.0,
            removed: row.removed.map(|removed| removed.0),
            secrets: row.secrets.into_iter().map(SecretRow::record).collect(),
        }
    }
}

impl From<(&SecretName, &SecretRecord)> for SecretRow {
    fn from((name, record): (&SecretName, &SecretRecord)) -> Self {
        let SecretRecord { sealed, created, changed } = record;
        Self { name: Text(name.clone()), sealed: sealed.clone(), created: Millis(*created), changed: Millis(*changed) }
    }
}

impl SecretRow {
    fn record(self) -> (SecretName, SecretRecord) {
        let record = SecretRecord { sealed: self.sealed, created: self.created.0, changed: self.changed.0 };
        (self.name.0, record)
    }
}
