//! API keys and ports.

use dorm_api_types as wire;
use dorm_lifecycle as life;
use dorm_store::{ApiKeyRecord, KeyScope};

use super::{Of, time};

impl Of<ApiKeyRecord> for wire::Key {
    fn of(record: ApiKeyRecord) -> Self {
        let ApiKeyRecord { id, project, name, scope, hash: _, created, expires } = record;
        let (scope, sandbox) = match scope {
            KeyScope::Full => (wire::KeyScope::Full, None),
            KeyScope::ReadOnly => (wire::KeyScope::ReadOnly, None),
            KeyScope::Sandbox(sandbox) => (wire::KeyScope::Sandbox, Some(sandbox.to_string())),
        };
        Self {
            id: id.to_string(),
            project: project.to_string(),
            name,
            scope,
            sandbox,
            created_at: time(created),
            expires_at: expires.map(time),
        }
    }
}

impl Of<life::PortAccess> for wire::PortAccess {
    fn of(access: life::PortAccess) -> Self {
        match access {
            life::PortAccess::Public => Self::Public,
            life::PortAccess::Private => Self::Private,
        }
    }
}

impl Of<wire::PortAccess> for life::PortAccess {
    fn of(access: wire::PortAccess) -> Self {
        match access {
            wire::PortAccess::Public => Self::Public,
            wire::PortAccess::Private => Self::Private,
        }
    }
}
