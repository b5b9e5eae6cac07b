//! The rows of API keys, to the domain's types and back.

use dorm_lifecycle::{ApiKeyId, ProjectId, SandboxId};
use serde::{Deserialize, Serialize};

use crate::codec::word::{Millis, Text, present};
use crate::{ApiKeyRecord, KeyScope, codec};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct ApiKeyRow {
    v: u64,
    id: Text<ApiKeyId>,
    project: Text<ProjectId>,
    name: String,
    scope: ScopeRow,
    hash: [u8; 32],
    created: Millis,
    #[serde(deserialize_with = "present")]
    expires: Option<Millis>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ScopeRow {
    Full,
    ReadOnly,
    Sandbox { sandbox: Text<SandboxId> },
}

impl From<&ApiKeyRecord> for ApiKeyRow {
    fn from(record: &ApiKeyRecord) -> Self {
        let ApiKeyRecord { id, project, name, scope, hash, created, expires } = record;
        Self {
            v: codec::API_KEY,
            id: Text(id.clone()),
            project: Text(project.clone()),
            name: name.clone(),
            scope: match scope {
                KeyScope::Full => ScopeRow::Full,
                KeyScope::ReadOnly => ScopeRow::ReadOnly,
                KeyScope::Sandbox(sandbox) => ScopeRow::Sandbox { sandbox: Text(sandbox.clone()) },
            },
            hash: *hash,
            created: Millis(*created),
            expires: expires.map(Millis),
        }
    }
}

impl From<ApiKeyRow> for ApiKeyRecord {
    fn from(row: ApiKeyRow) -> Self {
        Self {
            id: row.id.0,
            project: row.project.0,
            name: row.name,
            scope: match row.scope {
                ScopeRow::Full => KeyScope::Full,
                ScopeRow::ReadOnly => KeyScope::ReadOnly,
                ScopeRow::Sandbox { sandbox } => KeyScope::Sandbox(sandbox.0),
            },
            hash: row.hash,
            created: row.created.0,
            expires: row.expires.map(|expires| expires.0),
        }
    }
}
